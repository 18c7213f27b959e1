// Package hbase runs a real HBase on a governed DataNode. Its RegionServer is a service: a process in no
// container, with a client name that names no application.
package hbase
