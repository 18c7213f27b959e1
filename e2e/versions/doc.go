// Package versions runs Penstock on each supported Hadoop beside the default
// one, on which all other end-to-end tests run.
//
// The agent reaches into the DataNode's private parts, which differ from release
// to release without notice. Its own build verifies that every class of each
// release can be woven (agent, WovenJvmIT); what that cannot show is that the
// woven methods are still the ones that data passes through. So here each release
// runs for real, small: two DataNodes with the agent on modelled disks, the
// daemon, clients with names. Files with two replicas are written and read; what
// every application moved must be booked as its own, to the byte as HDFS counts
// them, writers and readers must have been held back and let go, and the contents
// must be what was written, also from one replica alone.
package versions
