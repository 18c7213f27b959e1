package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/limit"
	"penstock/core/sfq"
)

// Config describes a device. Validate fills in the defaults.
type Config struct {
	// Algorithm is sfq (one request at a time), sfqd (fixed depth) or sfqd2 (depth controlled by
	// latency). Default sfqd2.
	Algorithm string

	// Peer is set if another scheduler replaces package sfq, for comparisons (Options.Scheduler).
	// Algorithm is then only a name, and the depth is fixed.
	Peer bool

	// FixedDepth is the depth of sfqd, or of the scheduler of Options.Scheduler, 1 to 1024. Default
	// 4.
	FixedDepth int

	// Depth configures the depth controller of sfqd2 and contains the reference latencies.
	Depth depth.Config

	// Quantum is the size of a device request in bytes, 64 KiB to 64 MiB, in whole pages. It must
	// be large enough that seeks cost little: on a slow modelled disk, quanta of 64 KiB reached
	// 0.65 of the native throughput, 1 MiB 0.95 and 2 MiB 0.97. Default 2 MiB.
	Quantum int64

	// Ahead is the number of quanta that are staged ahead of a reader, in addition to those in
	// flight, 1 to 16. Default 2; with 1, a single reader has no further request ready when one of
	// its requests ends.
	Ahead int

	// Backlog is the basic bound, at least two quanta, of the bytes that an application has written
	// and that are not drained yet. Each writer may exceed the bound by at most one lease (1 MiB).
	// Default 8 MiB or two quanta, whichever is larger.
	Backlog int64

	// Dirty bounds the backlog of all applications together. If many applications write, each gets
	// an equal part of Dirty if that part is below Backlog. An application with a large share may
	// have more (backlog.go). Dirty must stay well below the kernel's background dirty threshold,
	// or the kernel writes back in its own order. Default 32 MiB. SetRoom changes it.
	Dirty int64

	// Staged limits the bytes, in sum over all readers, that are staged or being staged ahead of
	// them. When this limit is reached, each flow has a lower limit of its own. When that limit is
	// reached too, only readers at their marks still get small quanta (staged.go). Staged must stay
	// well below the memory that is free for the page cache. Otherwise the kernel drops pages before
	// they are read, and fetches them again outside of the schedule. Default 256 MiB. SetRoom changes it.
	Staged int64

	// Run and RunTime bound how long one file of the selected flow is served in a row, to save
	// seeks. The file is charged for all of this service, so the shares within the flow stay the
	// same. Defaults 8 MiB and 1 s.
	Run     int64
	RunTime time.Duration

	// Cost is the device time of requests, from the device's profile. Without a profile, the
	// reference latencies of Depth replace it: their ratios are used, and the scale is learnt from
	// the first load.
	Cost cost.Model

	// Seek is the assumed additional cost of a random request if there is no profile, 0 to 1 s. It
	// enters the account of service but not the shares, because a guess must not reduce a flow's
	// share. Default 0.
	Seek time.Duration

	// Period is the period of the depth controller. Default 1 s, as in the paper.
	Period time.Duration

	// MaxWait is how long a stream may wait, 1 s to 10 min, unless its client waits for less time
	// (Opening.Patience). After that, one packet is let through regardless of share and limit
	// (forced.go). Default 45 s, three quarters of the time-out of an HDFS client, 60 s.
	MaxWait time.Duration

	// Stuck is how long a request may take, 1 s to 1 min, before the device counts as stuck and its
	// streams no longer wait. Default 12 s.
	Stuck time.Duration

	// Debt bounds how long a flow must wait because it got service outside of the schedule. It is
	// device time, 1 s to 24 h. Default 10 s.
	Debt time.Duration

	// FlushAge is the age at which a backlog that fills no quantum is drained, for slow writers.
	// FlushAge must be well below 30 s, the age at which the kernel writes pages back. Default 5 s.
	FlushAge time.Duration

	// Lazy bounds the deferred bytes of all applications together. These are bytes of kind
	// intermediate that need not be drained yet. Each application may have a part by its weight, in
	// addition to Backlog and Dirty. The part is smaller if the application's share would take too
	// long to drain it. Lazy is at least 64 KiB. Default half of Dirty. SetRoom changes it.
	Lazy int64

	// LazyAge replaces FlushAge for streams of kind intermediate. Younger bytes of such streams are
	// drained only as far as Lazy requires. Default 22 s.
	LazyAge time.Duration

	// LazyFiles bounds the number of closed files in which one application has deferred bytes, 1 to
	// 65,536. Beyond this number, the application's oldest such file is drained. Each file needs a
	// file descriptor. Default 1,024.
	LazyFiles int

	// Storage is the part of the device's time that a storage service on this machine gets before
	// all flows, while it uses the device (storage.go): 0 to 0.99. Default 0: the service's I/O is
	// foreign I/O like any other, and gets what the kernel gives it.
	Storage float64

	// Network is set for a network device, which sends and has no files. Rate is its rate in bytes
	// per second. If Rate is 0, the rate is unknown, and streams never wait.
	Network bool
	Rate    int64

	// WeightScale is the largest factor between weights and the scheduler's weights, 1 to
	// 1,000,000. It allows parts (SetParts) that are finer than weights; without parts, the factor
	// is 1. At each level of the queue tree, the factor is halved until the largest weight fits.
	// Default 1.
	WeightScale int

	// MaxFlows bounds the flows of the device. Beyond it, a new application replaces the flow that
	// has been idle the longest or, if all flows have streams, joins the unattributed flow. Default
	// 4,096.
	MaxFlows int
}

const (
	minQuantum  = 64 << 10
	maxQuantum  = 64 << 20
	firstStage  = 256 << 10 // a reader's first quantum; each following one is twice as large
	leaseBytes  = 1 << 20   // how far a writer may go beyond its reported position
	leaseFloor  = 64 << 10  // the smallest lease: one HDFS packet
	packetBytes = 1 << 20   // most bytes that a reader needs at once (io.file.buffer.size)
	pageBytes   = 4096
	maxQueues   = 1 << 14                // a policy has at most 10,000 queues; groups count too
	tickPeriod  = 100 * time.Millisecond // between two ticks
	idleFlowAge = 5 * time.Minute        // a flow without streams is removed after this time
	maxStorage  = 0.99                   // flows that stop would hold their memory and their containers
	forgetEvery = 10 * time.Second       // between two searches for such flows
)

// Algorithms are the values of Config.Algorithm.
var Algorithms = []string{"sfq", "sfqd", "sfqd2"}

// UnattributedFlow is the flow of all I/O that could not be attributed to an application.
const UnattributedFlow = "unattributed"

// Validate fills in the defaults. An error lists the settings that are out of range.
func (c *Config) Validate() error {
	if c.Network {
		c.networkDefaults()
	}
	setDefault(&c.Algorithm, "sfqd2")
	setDefault(&c.FixedDepth, 4)
	setDefault(&c.Quantum, 2<<20)
	setDefault(&c.Ahead, 2)
	setDefault(&c.Backlog, max(8<<20, 2*c.Quantum))
	setDefault(&c.Dirty, max(32<<20, c.Backlog))
	setDefault(&c.Staged, max(256<<20, 8*c.Quantum))
	setDefault(&c.Run, max(8<<20, c.Quantum))
	setDefault(&c.RunTime, time.Second)
	setDefault(&c.Period, time.Second)
	setDefault(&c.MaxWait, 45*time.Second)
	setDefault(&c.Stuck, 12*time.Second)
	setDefault(&c.Debt, 10*time.Second)
	setDefault(&c.FlushAge, 5*time.Second)
	setDefault(&c.Lazy, c.Dirty/2)
	setDefault(&c.LazyAge, 22*time.Second)
	setDefault(&c.LazyFiles, 1024)
	setDefault(&c.MaxFlows, 4096)
	setDefault(&c.WeightScale, 1)
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Peer || slices.Contains(Algorithms, c.Algorithm), "algorithm %q: use one of %s", c.Algorithm, strings.Join(Algorithms, ", "))
	check(c.FixedDepth >= 1 && c.FixedDepth <= 1024, "depth: fixed %d: use 1 to 1024", c.FixedDepth)
	check(c.Quantum >= minQuantum && c.Quantum <= maxQuantum && c.Quantum%pageBytes == 0,
		"quantum %d: use whole pages between 64 KiB and 64 MiB", c.Quantum)
	check(c.Ahead >= 1 && c.Ahead <= 16, "ahead %d: use 1 to 16 quanta", c.Ahead)
	check(c.Backlog >= 2*c.Quantum, "backlog %d: use at least two quanta (%d)", c.Backlog, 2*c.Quantum)
	check(c.Dirty >= c.Backlog, "dirty %d: use at least the backlog of one application (%d)", c.Dirty, c.Backlog)
	check(c.Staged >= 2*c.Quantum, "staged %d: use at least two quanta (%d)", c.Staged, 2*c.Quantum)
	check(c.Run >= c.Quantum, "run %d: use at least one quantum (%d)", c.Run, c.Quantum)
	check(c.RunTime >= 0, "run time %v: use 0s or more", c.RunTime)
	check(c.Seek >= 0 && c.Seek <= time.Second, "seek %v: use up to 1s", c.Seek)
	check(c.Period >= 100*time.Millisecond, "period %v: use at least 100ms", c.Period)
	check(c.MaxWait >= time.Second && c.MaxWait <= 10*time.Minute, "max wait %v: use 1s to 10m (HDFS clients give up after 60s)", c.MaxWait)
	check(c.Stuck >= time.Second && c.Stuck <= time.Minute, "stuck after %v: use 1s to 1m", c.Stuck)
	check(c.Debt >= time.Second && c.Debt <= 24*time.Hour, "debt %v: use 1s to 24h", c.Debt)
	check(c.FlushAge >= 100*time.Millisecond, "flush age %v: use at least 100ms", c.FlushAge)
	check(c.Lazy >= leaseFloor, "lazy %d: use at least %d", c.Lazy, leaseFloor)
	check(c.LazyAge >= 100*time.Millisecond, "lazy age %v: use at least 100ms", c.LazyAge)
	check(c.LazyFiles >= 1 && c.LazyFiles <= 65536, "lazy files %d: use 1 to 65536", c.LazyFiles)
	check(c.Rate == 0 || c.Network && c.Rate >= MinLimit && c.Rate <= limit.MaxRate,
		"rate %d: use at least %d bytes a second, for a network device", c.Rate, MinLimit)
	check(c.Storage >= 0 && c.Storage <= maxStorage && !(c.Network && c.Storage > 0), "storage share %v: use 0 to %v, for a disk", c.Storage, maxStorage)
	check(c.WeightScale >= 1 && c.WeightScale <= sfq.MaxWeight, "weight scale %d: use 1 to %d", c.WeightScale, sfq.MaxWeight)
	check(c.MaxFlows >= 2 && c.MaxFlows <= 65536, "max flows %d: use 2 to 65536", c.MaxFlows)
	if _, err := depth.New(c.Depth); err != nil {
		errs = append(errs, err)
	}
	if c.Profiled() {
		if err := c.Cost.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Stride returns the number of bytes between two progress reports of an agent. It is small enough
// that an agent reports before its lease or its staged range is used up.
func (c Config) Stride() uint32 { return uint32(min(c.Quantum/4, leaseBytes/2)) }

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
