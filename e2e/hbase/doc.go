// Package hbase runs a real HBase on a governed DataNode. Its RegionServer is a service: a process in no container, whose
// client name names no application.
package hbase
