// Package soak runs Penstock under real load for hours. It kills, stops and confuses the daemon and
// the DataNodes, and then verifies that nothing was lost, and measures the longest waits.
//
// The failure tests (e2e/failure) cause faults at moments that their authors thought of; the
// remaining defects occur at other moments. So the faults are drawn from a seed (plan.go): the same
// seed gives the same sequence of faults. The exact moment at which a fault hits a job is not
// repeatable, so there are hundreds of faults.
//
// The judges are independent of Penstock. TeraValidate's checksum must equal TeraGen's, TestDFSIO's
// files and other files must have the written content, in each replica, and the NameNode must
// report a healthy file system. The wait for a dead daemon is measured twice: exactly, by the
// agent, because only waits at its gates delay an operation; and from a client's point of view,
// by a probe that continuously writes and reads a little. A busy machine delays the probe, too, so
// times without a fault, drawn from the same seed, are measured for comparison. Faults of
// DataNodes, for which HDFS's clients have to wait, are counted separately.
//
// Two DataNodes hold two replicas of every block. Only one DataNode is killed at a time, and only
// while each block has a replica on the other one. So Penstock is responsible for any loss.
package soak
