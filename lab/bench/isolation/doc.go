// Package isolation repeats the experiment of IBIS, sections 7.2 and 7.4: does a protected
// job keep its run time while an aggressor uses the same disks, and do the disks stay
// busy? Both matter: it is easy to hold the aggressor back, and hard to do so without loss of
// throughput.
//
// The protected job is WordCount, TeraSort or a TPC-H query of Spark SQL; the
// aggressor is TeraGen, TeraSort, TeraValidate (IBIS, Figure 3) or WordCount. A phase
// is one arrangement of the two:
//
//	full-speed          the protected job by itself, on disks without a limit: the demo
//	                    derives the disks' rate from this run (calibrate.go)
//	alone               the protected job by itself
//	aggressor-alone     the aggressor by itself
//	floor               the aggressor's data on other modelled disks: the cost of shared
//	                    CPU and memory, which no I/O scheduler can avoid
//	native-<scheduler>  together under a kernel scheduler, Penstock absent
//	throttler-<MB/s>    together, capped by the DataNodes' own throttler, which
//	                    does not distinguish applications
//	cgroup-weights-<N>  together, each side's containers in a cgroup: weights N to 1
//	cgroup-caps-<MB/s>  together, the aggressor's containers capped by a cgroup
//	drr-<D>             together under Penstock, deficit round robin
//	sfqd-<D>            together under Penstock, SFQ(D) with a fixed depth
//	sfqd2               together under Penstock, SFQ(D2)
//
// SFQ(D2) is compared with the best of each family of peers (compare.go). Weights,
// the kind of disk (hard disks, or solid-state as in Figure 8) and Hadoop's
// version can be chosen; docs/design/isolation.md gives reasons for the set-up.
//
// Runs are interleaved (the first of each phase, then the second of each): a machine that becomes
// slower slows every phase alike. Figures are medians with their spread. Setup holds everything
// that could change a figure. A set-up is the same in every phase. The journal contains the set-up,
// and refuses runs with another one.
//
// Only the type Machine (env.go and the files that it uses) works on the real computer. Machine
// implements the narrow interface Environment. The code for phases, order, statistics and ratios
// uses nothing but that interface.
package isolation
