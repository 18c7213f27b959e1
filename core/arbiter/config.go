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
	// Algorithm is sfq (one request at a time), sfqd (a fixed depth) or sfqd2 (a depth that
	// follows the device's latency). Default sfqd2.
	Algorithm string

	// Peer says that Options.Scheduler makes the scheduler, and Algorithm is only its name.
	// Its depth is fixed.
	Peer bool

	// FixedDepth is how many requests sfqd and peers have at the device at a time,
	// 1..1024. Default 4.
	FixedDepth int

	// Depth configures the depth of sfqd2, and gives the reference latencies.
	Depth depth.Config

	// Quantum is the bytes of one device request, 64 KiB..64 MiB, whole pages.
	// It has to be worth its seek: on a slow modelled disk 64 KiB quanta reached
	// 0.65 of the native throughput, 1 MiB 0.95 and 2 MiB 0.97. Default 2 MiB.
	Quantum int64

	// Ahead is how many quanta are staged ahead of a reader's position, beside
	// those in flight, 1..16. Default 2: with one, a protected reader has nothing
	// ready each time one of its requests ends.
	Ahead int

	// Backlog is how many bytes one application may always have written that the device
	// does not have yet, at least two quanta. Each writer overshoots it by at most one
	// lease (1 MiB). Default 8 MiB or two quanta.
	Backlog int64

	// Dirty bounds the backlog of all applications on the device together. With
	// many applications that write, each gets an equal part of it where that is less than
	// Backlog; one whose share of the device is large may have more (backlog.go). It has
	// to stay well under the kernel's background dirty threshold, or the kernel writes
	// pages out by itself, in its own order. Default 32 MiB. SetRoom changes it.
	Dirty int64

	// Staged bounds the bytes that are staged, or being staged, and that their readers
	// have not passed yet. Past it only readers that wait at their marks are staged for, in
	// small quanta (staged.go). It has to stay well under the memory that is free for the
	// page cache, or pages are dropped before they are read, and fetched a second time
	// outside of the schedule. Default 256 MiB. SetRoom changes it.
	Staged int64

	// Run and RunTime bound how long one file is served in a row when the flow that is due
	// has several files at work, to save seeks. The file is charged for all of it, so the
	// shares inside the flow stay the same. Defaults 8 MiB and 1 s.
	Run     int64
	RunTime time.Duration

	// Cost is what a request costs of the device's time, from its profile.
	// Without a profile the reference latencies of Depth stand in for it: their ratios
	// hold, and their scale in seconds is learnt from the first load.
	Cost cost.Model

	// Seek is the assumed cost of a new place on top of that, where there is no profile, in
	// the same unit; 0..1 s. It counts in the account of service and not in shares, as a
	// guess is no reason to give a flow less. Default 0.
	Seek time.Duration

	// Period is how often the depth moves. Default 1 s, as in the paper.
	Period time.Duration

	// MaxWait is how long a stream may wait, 1 s..10 min, unless its client bears less
	// (Opening.Patience). After that one packet is let through whatever the flow's share or
	// limit says (forced.go). Default 45 s, three quarters of the 60 s of an HDFS client.
	MaxWait time.Duration

	// Stuck is how long the device may hold one quantum before it counts as stuck, and all
	// of its streams are let through, 1 s..1 min. Default 12 s.
	Stuck time.Duration

	// Debt bounds how long a flow has to wait for service that it was given beside the
	// queue, in the device's time, 1 s..24 h. Default 10 s.
	Debt time.Duration

	// FlushAge is when a slow writer's backlog is drained although it fills no
	// quantum; it has to come well before the kernel's own 30 s. Default 5 s.
	FlushAge time.Duration

	// Lazy bounds the bytes of kind intermediate that all applications together may leave
	// undrained on the device. Each may have a part by its weight, beside Backlog and Dirty,
	// or less where its share of the device would take too long to drain that much. At
	// least 64 KiB. Default half of Dirty. SetRoom changes it.
	Lazy int64

	// LazyAge is FlushAge for streams of kind intermediate, which are otherwise
	// drained only as far as Lazy asks for. Default 22 s.
	LazyAge time.Duration

	// LazyFiles is how many closed files of one application, of kind intermediate,
	// may wait to be deleted or drained, 1..65,536; past it the oldest is drained.
	// Each holds a descriptor. Default 1,024.
	LazyFiles int

	// Network says that the device is a network: it sends and has no files. Rate is in bytes
	// a second; 0: it is not known, and nothing is held back.
	Network bool
	Rate    int64

	// WeightScale is the largest factor that makes the scheduler's weights, 1..1,000,000, so
	// that parts (SetParts) can be finer than weights; without parts it is 1. At each level of
	// the queue tree it is halved until the largest weight there fits. Default 1.
	WeightScale int

	// MaxFlows bounds the flows of the device. Past it a new application takes the
	// place of the flow that has been idle longest or, if all have streams, shares the
	// unattributed flow. Default 4,096.
	MaxFlows int
}

const (
	minQuantum  = 64 << 10
	maxQuantum  = 64 << 20
	firstStage  = 256 << 10 // a reader's first quantum; it doubles from there
	leaseBytes  = 1 << 20   // how far a writer may go beyond what it has reported
	leaseFloor  = 64 << 10  // the smallest lease: one HDFS packet
	packetBytes = 1 << 20   // a reader may need as much at once: io.file.buffer.size
	pageBytes   = 4096
	maxQueues   = 1 << 14                // a policy has 10,000 at most, and groups
	tickPeriod  = 100 * time.Millisecond // for what changes with time alone
	idleFlowAge = 5 * time.Minute        // a flow without streams is forgotten after this
	forgetEvery = 10 * time.Second       // looks for such flows
)

// Algorithms are those of Config.
var Algorithms = []string{"sfq", "sfqd", "sfqd2"}

// UnattributedFlow is the flow of all that no rule could attribute to another one.
const UnattributedFlow = "unattributed"

// Validate fills in defaults. An error says which settings are out of range.
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
	check(c.FixedDepth >= 1 && c.FixedDepth <= 1024, "fixed depth %d: use 1 to 1024", c.FixedDepth)
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
	check(c.MaxWait >= time.Second && c.MaxWait <= 10*time.Minute, "max wait %v: use 1s to 10m (HDFS clients give up at 60s)", c.MaxWait)
	check(c.Stuck >= time.Second && c.Stuck <= time.Minute, "stuck after %v: use 1s to 1m", c.Stuck)
	check(c.Debt >= time.Second && c.Debt <= 24*time.Hour, "debt %v: use 1s to 24h", c.Debt)
	check(c.FlushAge >= 100*time.Millisecond, "flush age %v: use at least 100ms", c.FlushAge)
	check(c.Lazy >= leaseFloor, "lazy %d: use at least %d", c.Lazy, leaseFloor)
	check(c.LazyAge >= 100*time.Millisecond, "lazy age %v: use at least 100ms", c.LazyAge)
	check(c.LazyFiles >= 1 && c.LazyFiles <= 65536, "lazy files %d: use 1 to 65536", c.LazyFiles)
	check(c.Rate == 0 || c.Network && c.Rate >= MinLimit && c.Rate <= limit.MaxRate,
		"rate %d: use at least %d bytes a second, for a network device", c.Rate, MinLimit)
	check(c.WeightScale >= 1 && c.WeightScale <= sfq.MaxWeight, "weight scale %d: use 1 to %d", c.WeightScale, sfq.MaxWeight)
	check(c.MaxFlows >= 2 && c.MaxFlows <= 65536, "flows %d: use 2 to 65536", c.MaxFlows)
	if _, err := depth.New(c.Depth); err != nil {
		errs = append(errs, fmt.Errorf("depth: %w", err))
	}
	if c.Profiled() {
		if err := c.Cost.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Stride is the bytes between an agent's progress reports: often enough that a
// lease or the staged range never runs out unnoticed.
func (c Config) Stride() uint32 { return uint32(min(c.Quantum/4, leaseBytes/2)) }

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
