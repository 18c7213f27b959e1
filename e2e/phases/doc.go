// Package phases tests that every byte of a job has its owner, in all of its phases:
// HDFS, spills and merges, the shuffle, MapReduce's and Spark's, on a real cluster
// that `penstock install` has prepared. And that nobody gets another's share by
// saying its name.
package phases
