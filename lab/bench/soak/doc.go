// Package soak wears Penstock down: for as long as one likes, under real load, it
// kills, stops and confuses the daemon and the DataNodes, and then asks whether
// anything was lost and how long anybody had to wait.
//
// A failure test (e2e/failure) picks the moments of which somebody has thought.
// The defects that are left lie in moments of which nobody has. So the faults are
// drawn from a seed (plan.go), which is pure: the same seed is the same sequence,
// so that what one campaign finds another can look for. When exactly a fault hits
// a job is not repeatable, which is the point of doing it hundreds of times.
//
// Whether anything was lost is not for Penstock to say: TeraValidate's checksum
// must be TeraGen's, TestDFSIO's files and files of our own must hold what was
// written, replica by replica, and the NameNode must find the file system healthy.
// How long anybody waits for a dead daemon is told twice: exactly, by the agent,
// whose waits are the only thing that Penstock adds to an operation; and as a
// client feels it, by a probe that writes and reads a little all the time. The
// probe also feels the busy machine, so that spells without any fault, drawn by
// the same seed, are measured beside it; and faults of DataNodes, which HDFS's
// clients sit out by themselves, are counted apart.
//
// Two DataNodes hold two replicas of everything, and only one of them is killed at
// a time, when nothing depends on it alone: whatever is lost was lost by us.
package soak
