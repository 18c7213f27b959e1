// Package sharedfs measures MapReduce on a real parallel file system, as the paper "Progress on Efficient Integration of
// Lustre and Hadoop/YARN" did: with and without locality, with intermediate data on local disks or on the file
// system, and there with Hadoop's own shuffle or in place.
//
// Hosts are network namespaces with mounts of their own (package storage). Each has a modelled hard disk for its server's data
// and, in the cases with local intermediate data, for its NodeManager's folder as well. There is no HDFS.
//
// The paper's second job is PageRank (package pagerank). The paper gives YARN virtual machines of several sizes. Here YARN
// gets some CPUs and a cgroup of the memory controller instead; a virtual machine would read over a network of its own.
//
// Further rows measure whether analytics hurt the storage service: clients of the file system, in the pattern of IOR, work beside many
// TeraSorts (contest.go, compete.go). What is hard about it: on one machine, clients, servers and tasks also share the CPUs. So the
// row floor has the same TeraSorts on other disks, and the differences between the rows come from the disks.
package sharedfs
