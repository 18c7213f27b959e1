// Package overhead measures what Penstock costs where it is of no use: an
// application that is alone on a disk which holds nobody up. IBIS, section 7.7:
// run times of jobs (Figure 13) and CPU and memory of the daemons (Table 2).
//
// An overhead of a few per cent is less than what two JVMs of the same program
// differ by, and far less than what the machine's speed changes by in an hour. So:
//
//   - CPU seconds per GB of the DataNode's process are the figure, from the
//     kernel's account of it, not throughput;
//   - two DataNodes live side by side, one with the agent and one without; each
//     round starts both anew, exchanges their places, warms both with the same
//     bytes, and measures every variant on the same pair, so that a round is one
//     independent sample and ratios are taken within it (lab/experiment/figures);
//   - DataNodes and client have a CPU each, where there are two; the compilers of
//     the DataNode's JVM are left out; and streams are held to a rate, for without
//     these three the same stream takes the same DataNode once or twice the time;
//   - the client is one JVM that lives as long as the measurement, and the jobs
//     run within it (LocalJobRunner): a job's run time is then its work, of
//     which HDFS is a larger part than in a job that starts JVMs;
//   - the disks are those of package disk with the model off: block devices in
//     memory, which a daemon can govern, unlike a folder in memory. What serves
//     them takes CPU from the jobs, but the same in every variant.
//
// The variants are: native (no agent); absent (the agent, but no daemon, as after
// the daemon's death); observe; enforce. Reads are told twice, cold and from the
// page cache: natively a cold read's device I/O is the DataNode's own, with
// Penstock it is the daemon's, so the daemon's CPU time stands beside it.
//
// That is the DataNode alone. What all of Penstock costs a job with tasks of its own
// is another measurement, of fewer and larger parts (yarn.go, and the files named
// after it): a TeraSort on one of two clusters, without Penstock or with everything
// on, in pairs.
package overhead
