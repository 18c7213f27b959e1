// Package failure tests failures: a small real HDFS on modelled disks, with the agent in its
// DataNodes and the daemon as a process, and many kinds of faults that an operator may meet.
//
// The promise is always the same: Hadoop comes first. If the daemon fails in any way, no operation
// fails, none is delayed by more than about a second, and no byte is lost. If Hadoop fails in any
// way, the daemon survives, keeps no slot for dead processes and serves the others.
//
// One HDFS serves all tests, because its start takes most of the time; each test has its own daemon
// and applications. Tests wait for events: a client stops at a byte that the test sets and reports
// it (client/Client.java), and metrics are polled until they have the expected values. A duration
// is judged only if it is part of the promise, and then with bounds that a busy machine can meet.
package failure
