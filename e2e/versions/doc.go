// Package versions runs Penstock on each supported Hadoop except the default version, with which
// all other end-to-end tests run.
//
// The agent uses internal methods of the DataNode, which differ from release to release without
// notice. Its own build verifies that every class of each release can be woven (agent, WovenJvmIT).
// That cannot show that data still passes through the woven methods. So here each release really
// runs, in a small cluster: two DataNodes with the agent on modelled disks, the daemon, and clients
// with names. Files with two replicas are written and read. The bytes of every application must be
// attributed to it and match HDFS's count. Writers and readers must have been held back and
// released. And the contents must be as written, even from a single replica. One of the disks has ext4, the other one xfs.
//
// A further test has volumes and files of all kinds, with the default version, and compares a node with and without a daemon.
package versions
