// Package hive runs a real Hive on Tez on a governed node. Tasks of Tez write and sort their intermediate data on local disks,
// and read the data of tasks on the same node directly, past the NodeManager. All of these bytes must be attributed to the
// application, and match Tez's own counters.
package hive
