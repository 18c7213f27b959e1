// Package isolation is the experiment of IBIS, sections 7.2 and 7.4: does a protected
// job keep its run time while an aggressor hammers the same disks, and does the
// storage stay busy all the same? Both halves count. Holding the aggressor down
// is easy; doing so without losing device throughput is what SFQ(D2) is for.
//
// The protected job is WordCount, TeraSort or a TPC-H query of Spark SQL; the
// aggressor is TeraGen, TeraSort, TeraValidate (IBIS, Figure 3) or WordCount. A phase
// is one arrangement of the two:
//
//	alone               the protected job by itself
//	aggressor-alone     the aggressor by itself
//	floor               the aggressor's data on other modelled disks: what
//	                    sharing CPU and memory costs, and no scheduler can undo
//	native-<scheduler>  together under a kernel scheduler, Penstock absent
//	throttler-<MB/s>    together, capped by the DataNodes' own throttler, which
//	                    knows no applications
//	cgroup-weights-<N>  together, each side's containers in a cgroup: weights N to 1
//	cgroup-caps-<MB/s>  together, the aggressor's containers capped by a cgroup
//	drr-<D>             together under Penstock, deficit round robin
//	sfqd-<D>            together under Penstock, SFQ(D) with a fixed depth
//	sfqd2               together under Penstock, SFQ(D2)
//
// SFQ(D2) is set against the best of each family of peers (compare.go). Weights,
// the kind of disk (hard disks, or one of solid state as in Figure 8) and Hadoop's
// version can be chosen; docs/design/isolation.md argues the set-up.
//
// Runs are interleaved (the first of each phase, then the second of each), so
// that a machine that slows down in the afternoon slows every phase alike, and
// figures are medians with their spread beside them. Everything that could
// change a figure is in Setup, is the same in every phase, and is hashed into
// the journal: a resumed experiment never mixes two setups.
//
// The package splits the same way as the rest of the project: what decides
// (phases, order, statistics, ratios) is plain code over the narrow interface
// Environment; what touches the machine is env.go and the files it uses.
package isolation
