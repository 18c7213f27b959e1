// Package hbase runs a real HBase on a governed DataNode. Its RegionServer is a service: a process in no
// container, with a client name that names no application. A rule gives it a flow of its own.
package hbase
