// Package latency measures the latency of small random reads of HDFS (pread, as HBase makes them):
// alone, beside two writers and beside TeraGen; natively, with a weight, and with a latency goal. It
// also measures what the goal costs the device's throughput.
//
// The same DataNode with the same modelled disk serves natively, without the agent, and under Penstock. It is started
// again in between.
package latency
