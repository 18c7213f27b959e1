// Package forecast measures two things that Penstock says of running applications: when they end, and
// what they use. `penstock-lab bench forecast` performs it on a real HDFS, YARN, Spark, broker and node
// daemon, on one modelled hard disk.
//
// Forecasts (IBIS, section 9, "models"): WordCount and TeraSort of MapReduce and a TPC-H query of Spark
// SQL run beside a client that reads another file of HDFS all the time, so that the end depends on
// shares. At fixed marks of the application's progress, as the broker reports it, and of its work, as the
// broker knows it from earlier runs, the broker is asked for the end, as `penstock app forecast` asks it. It
// runs over all turns and learns from each, as for an operator; the first run of each application is
// without history, and its forecasts are a figure of their own. In half of the rows, the policy changes
// the weights at a third of the work. YARN's own account of the application's end is the judge. The
// forecasts of interest are those at half of the work and of the progress. The intervals are judged
// over the forecasts at all marks; those of one run are not independent.
//
// Profiles ("Understanding and Minimizing Disk Contention Effects", Table II and Figure 1): six
// applications run alone while `penstock app profile` follows them, and their classes are compared with
// the paper's. What MapReduce does not have, Spark has: the query, Bayes and K-means. The hard part is
// that classes are relative to a machine. The paper's node has 24 hardware threads, one disk and 24 GB
// for seven tasks. Here a node has the machine's CPUs, one disk whose rate is in proportion to these
// CPUs, and the memory that the NodeManager offers.
package forecast
