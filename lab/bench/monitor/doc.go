// Package monitor measures how much background activities on a disk slow a Spark application down, and
// how much of that is regained when the activities are controlled. It repeats the experiments of the monitor-and-controller paper ("Data
// I/O provision for Spark applications in a Mesos cluster"): Table 1 (WordCount and TeraSort, alone
// and together), Table 2 (WordCount beside a reader and a writer of local files, and beside a reader
// and a writer of HDFS), and Experiments 1 and 2 (both under control).
//
// Each activity is measured natively, under the paper's mechanisms (blkio of cgroup v1 for local
// files, HTB for connections) and under Penstock (the gate, the arbiter). The paper's proportions
// are kept: WordCount alone reads at 0.45 of the disk's rate, and the background's limit is 0.2 of it.
//
// The hard part is to measure the disk and not the rest of a small machine. So WordCount has a CPU
// of its own, and everything beside it shares the other CPU. A run time is that of the job, without the
// start of Spark: executors wait until the background runs. Spark's local files are on a second
// disk without a limit, because the paper controls only HDFS data and the activities beside it. The
// figures of bytes come from the disk's own request log (package judge), not from Penstock.
//
// Waits for block I/O (the paper's blkio_delay) come from the daemon's monitor (node/monitor/processes),
// which is read once a second, and at the beginning and the end of each job. When a job reads from HDFS,
// mostly the DataNode's threads wait for the disk, so the DataNode has a cgroup of its own. Under Penstock,
// readers wait at marks instead; these waits are reported in a column of their own.
package monitor
