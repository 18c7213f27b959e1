// Package java runs Penstock on the versions of Java and Hadoop that clusters have: Java 8 and 11, on which most clusters
// with Hadoop 3.3 and 3.4 run, and Java 17 and 21.
//
// Java 8 and 11 have no Unix sockets, so their agents connect by the daemon's loopback port, and the
// daemon must find out by itself which process a connection belongs to. So all JVMs of a real
// cluster, DataNode, NodeManager and tasks, run on such a Java (lab/jre fetches it). Two MapReduce
// jobs run at once, and every byte must be attributed to its job, as with Unix sockets. Then two
// applications share the disk by weight, and the daemon is killed under a reader. At the end, a daemon without the port must
// leave the DataNode ungoverned, and the DataNode must say so once.
package java
