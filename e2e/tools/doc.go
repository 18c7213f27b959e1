// Package tools tries what an operator has in hand, top and doctor, on a real
// node: a DataNode with the agent on a modelled disk, a daemon, and beside it a
// DataNode that somebody forgot to give an agent.
//
// The tools are judged from outside, as an operator or a script meets them: the
// binary's output and exit code, a terminal that must be as it was before. What
// top says of foreign I/O is held against bytes that the test itself writes past
// HDFS. The nodes that doctor has to find fault with are really broken, each in
// one way; the ways that cannot be had here (another kernel, another owner) are
// tests of ops/doctor.
package tools
