// Package containers measures Hadoop against the number of its containers on one machine, as the paper "Analysis of a
// Network IO Bottleneck in Big Data Environments based on Docker Containers" did in Figures 6 and 8, and what joining
// the containers' connections changes.
//
// A container is a network namespace on a bridge whose router masquerades, with a DataNode, a NodeManager and a small
// modelled disk of its own. The four jobs of the paper move the same number of bytes with each number of
// containers. More containers help while the disks are the limit. The knee is the number from which on they no longer
// help much (knee.go has the rule). Rules over figures that are measured during each job tell its causes apart: the CPU,
// the delay in the run queue, context switches and the network's round trip.
package containers
