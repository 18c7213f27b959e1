// Package phases tests that every byte of a job has its owner, in all of its phases: HDFS, spills
// and merges, the shuffle, MapReduce's and Spark's, on a real cluster that `penstock install` has
// prepared. It also tests that no client gets another application's share by claiming its name.
package phases
