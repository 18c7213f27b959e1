// Package overhead measures Penstock's cost where it has no benefit: an application alone on a disk
// that is never the bottleneck. As in IBIS, section 7.7, the figures are run times of jobs (Figure
// 13), and CPU time and memory of the daemons (Table 2).
//
// Problem: an overhead of a few per cent is less than the difference between two JVMs of the same
// program, and far less than the change of a machine's speed within an hour. Choices:
//
//   - The figure is the CPU time per GB of the DataNode's process, as the kernel accounts for it, not
//     throughput.
//   - Two DataNodes run side by side, one with the agent and one without. Each round restarts both,
//     exchanges their places, warms both with the same bytes, and measures every variant on the same
//     pair. So a round is one independent sample, and ratios are taken within it (package figures).
//   - DataNodes and client have one CPU each, if there are two. The compiler threads of the DataNode's
//     JVM are left out. Streams are held to a rate. Without these three measures, a DataNode's CPU time
//     for the same stream varies by a factor of two.
//   - The client is one JVM that lives as long as the measurement, and jobs run within it
//     (LocalJobRunner). So a job's run time is its work, of which HDFS is a larger part than in a job
//     that starts JVMs.
//   - The disks are those of package disk without a model: block devices in memory, which a daemon can
//     govern. Their servers take CPU from the jobs, but the same amount in every variant.
//
// The variants are: native (no agent); absent (the agent, but no daemon, as after the daemon's
// death); observe; enforce. Reads are measured cold and from the page cache. The device I/O of a
// cold read is done by the DataNode natively, and by the daemon with Penstock. So the tables have
// the daemon's CPU time next to the DataNode's.
//
// Another measurement (yarn.go) shows the cost of all parts of Penstock for a job with tasks. A
// TeraSort runs on two clusters in turn. One cluster is without Penstock; on the other, everything
// is enabled.
package overhead
