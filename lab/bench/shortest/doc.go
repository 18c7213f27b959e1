// Package shortest repeats the experiments of the disk contention paper ("Understanding and
// Minimizing Disk Contention Effects for Data-Intensive Processing in Virtualized Systems", sections
// IV and V, Tables III to V, Figures 2, 3 and 5) with a real HDFS and YARN: several jobs run at the
// same time, and the shortest gets the largest slice of the disks.
//
// There are two workloads: TeraGen with sizes 1:2:3 (Table III), and Sort, WordCount and TeraSort
// (Tables IV and V; WordCount stands for K-means, because it also reads its input, computes and
// writes little). The rows are ways of dividing the disks (Rows). Package together has the machine
// and explains when a run begins.
//
// How good can an order be? It depends on the jobs' volumes and on the time in which they do no I/O.
// So the jobs run alone first, and the simulator predicts the gain of each order from their measured
// volumes and start-up times, before any other run (predict.go). The result is the gain achieved
// divided by the gain predicted.
//
// The paper's own mechanism are caps of cgroups, on a kernel that was patched to cap buffered writes. Here
// the rows caps-... have the same caps on an unpatched kernel. They act on what a container's own threads
// read and write. HDFS data is written by the DataNodes, and buffered writes by the kernel.
package shortest
