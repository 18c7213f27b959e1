// Package traffic tests what else moves on a cluster's disks than its applications: the
// copies that HDFS makes when a DataNode is lost, I/O of programs that are nothing of
// Hadoop's and of clients that read past the DataNode, and files that are deleted before
// they need to reach the disk. On a real cluster with a modelled disk for each DataNode
// and one for what tasks write.
package traffic
