// Package network measures what a container network costs, as the paper "Analysis of a Network IO Bottleneck in Big
// Data Environments based on Docker Containers" did in Figures 3 to 5: streams and their CPU time, round trips, and
// round trips against the number of containers. It runs ops/network in interleaved turns, compares set-ups within a
// run, and states the paper's figures beside its own.
package network
