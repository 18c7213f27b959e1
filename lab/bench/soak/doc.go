// Package soak runs Penstock under real load for hours. It kills, stops and confuses the daemon and the
// DataNodes, and then verifies that nothing was lost and how long anybody had to wait.
//
// The failure tests (e2e/failure) choose moments that somebody has thought of; the remaining defects are
// in others. So the faults are drawn from a seed (plan.go): the same seed gives the same sequence of
// faults. The exact moment at which a fault hits a job is not repeatable, which is why there are hundreds.
//
// The judges are independent of Penstock. TeraValidate's checksum must equal TeraGen's, TestDFSIO's files
// and other files must hold what was written, replica by replica, and the NameNode must report a healthy
// file system. The wait for a dead daemon is measured twice: exactly, by the agent, whose waits are all
// that Penstock adds to an operation; and as a client feels it, by a probe that writes and reads a little
// all the time. The probe also feels a busy machine, so spells without a fault, drawn by the same seed,
// are measured beside it. Faults of DataNodes, which HDFS's clients sit out, are counted separately.
//
// Two DataNodes hold two replicas of everything, and only one is killed at a time, when nothing depends on
// it alone. So Penstock is responsible for anything that is lost.
package soak
