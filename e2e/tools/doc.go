// Package tools tests the operator's tools, top and doctor, on a real node: a DataNode with the
// agent on a modelled disk, a daemon, and a second DataNode without an agent.
//
// The tools are judged from outside, like by an operator or a script: by the binary's output and
// exit code, and by the terminal, which must be restored. The foreign I/O in top is compared with
// bytes that the test itself writes without HDFS. For doctor, the nodes are really broken, each in
// one way; faults that cannot be produced here (another kernel, another owner) are in the tests of
// ops/doctor.
package tools
