// Package soak runs Penstock under real load for hours. It kills, stops and confuses the daemon and
// the DataNodes, and measures the longest waits. Then it verifies that nothing was lost.
//
// The failure tests (e2e/failure) cause faults at moments that their authors thought of; the
// remaining defects occur at other moments. So the faults are drawn from a seed (plan.go): the same
// seed gives the same sequence of faults. The exact moment at which a fault hits a job is not
// repeatable, so there are hundreds of faults.
//
// The judges are independent of Penstock. TeraValidate's checksum must equal TeraGen's, TestDFSIO's
// files and other files must have the written content, in each replica, and the NameNode must
// report a healthy file system. The time for which clients wait for a dead daemon is measured
// twice. The agent measures it exactly, because a dead daemon delays an operation only at the
// agent's gates. A probe, which continuously writes and reads a little, measures it as a client
// sees it. A busy machine delays the probe, too, so periods without a fault, drawn from the same
// seed, are measured for comparison. Faults of DataNodes, for which HDFS's clients have to wait,
// are counted separately.
//
// Two DataNodes hold two replicas of every block. Only one DataNode is killed at a time, and only
// while each block has a replica on the other one. So Penstock is responsible for any loss.
package soak
