// Package slowdown repeats IBIS, section 7.5 (Figure 11), in small: two jobs share a cluster, and
// both shall be slowed down alike, each compared with its own time alone.
//
// The pairs are TeraSort beside TeraGen, as in the paper, and a WordCount that mostly computes beside
// TeraGen. Each job runs alone, and both run together: natively, under Penstock with equal weights,
// and under Penstock with the queue's word "goal: equal-slowdown". Each job has a CPU of its own, as
// each has half of the cluster's CPU slots in the paper, so only the disks are contended. Package
// together has the machine and explains when a run begins.
//
// A slowdown is the completion divided by the median completion alone, less one, in per cent. The
// paper's best result with the Fair Scheduler alone is 83 and 61, and with IBIS 42 and 42.
package slowdown
