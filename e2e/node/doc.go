// Package node holds the end-to-end tests that share one real cluster: three DataNodes with a
// modelled disk each, YARN with local directories on one more disk, and one daemon. They are part
// of `make test`.
//
// Most of them test I/O that does not come from an application's own tasks: copies that HDFS makes
// when a DataNode is lost, the balancer and the scanner, programs beside Hadoop, clients that
// bypass the DataNode, and files that are deleted before they reach the disk. The others need only
// a modelled disk: staging and draining by another process, and profiles.
package node
