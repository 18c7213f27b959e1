// Package guarantees measures how guaranteed rates and limits are kept: of one disk, and of a whole
// application on three nodes whose tasks move; when a disk becomes slow; and what is promised beyond
// the nodes' capacity. Real HDFS clients contend for modelled disks. The disks' own request logs
// judge.
package guarantees
