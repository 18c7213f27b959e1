// Package versions runs Penstock on each supported Hadoop except the default version, with which
// all other end-to-end tests run.
//
// The agent reaches into the DataNode's private parts, which differ from release to release without
// notice. Its own build verifies that every class of each release can be woven (agent, WovenJvmIT);
// what that cannot show is that data still passes through the woven methods. So here each release
// really runs, in a small cluster: two DataNodes with the agent on modelled disks, the daemon,
// clients with names. Files with two replicas are written and read; the bytes of every application
// must be attributed to it and match HDFS's count; writers and readers must have been held back and
// released; and the contents must be as written, also from a single replica.
package versions
