// Package sharedfs measures MapReduce on a real parallel file system, as the paper "Progress on Efficient Integration of
// Lustre and Hadoop/YARN" did: with and without locality, with intermediate data on local disks or on the file
// system, and there with Hadoop's own shuffle or in place.
//
// Hosts are network namespaces with mounts of their own (package storage). Each has a modelled hard disk for its server's data
// and, in the cases with local intermediate data, for its NodeManager's folder as well. There is no HDFS.
//
// The paper's second job is PageRank (package pagerank). The paper gives YARN virtual machines of several sizes. Here YARN
// gets some CPUs and a cgroup of the memory controller instead; a virtual machine would read over a network of its own.
package sharedfs
