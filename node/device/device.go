// Package device schedules one block device: it stages what applications read
// and drains what they wrote, each quantum one request of the application's
// flow, dispatched by the production scheduler of core/sfq at the depth that
// core/depth sets.
//
// Problem: a weight binds only what queues, and what DataNode threads do is
// page-cache I/O that never queues anywhere. Choice (IBIS, sections 3 and 4,
// taken one step further): the requests that are queued are not the threads'
// calls but the device I/O itself, done here, so that
//
//   - D counts device requests in flight and latency is measured where it is
//     caused, per request;
//   - a slow client, a cancelled read or a lock inside the DataNode never holds
//     one of the D slots, since a thread only waits for a mark;
//   - a reader's next quanta are queued before it asks (ahead), which is what
//     lets a weight bind a stream of sequential reads at all.
//
// One goroutine per device owns all state: loop.go, and beside it how streams come
// and go (streams.go), a request's way (requests.go), what it costs (costs.go) and
// who is governed (govern.go); how fast a limited flow goes (limits.go), what may be
// deleted before it is drained (lazy.go), who turns out to be somebody else
// (reassign.go). A loop may also give the leave to send (network.go). Streams and
// flows are plain data (stream.go, flow.go), and the blocking system calls run in short-lived goroutines, at most D
// at a time (work.go). Nothing here is shared but the event channel and a tick
// counter.
package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/limit"
	"penstock/core/sfq"
)

// Open is a mark that holds nobody back.
const Open = math.MaxInt64

// Mode says what the daemon does to an application's streams.
type Mode uint8

// The modes, from least to most.
const (
	Off     Mode = iota // not even accounted for
	Observe             // everything but waiting
	Enforce             // streams wait for their marks
)

var modeNames = map[Mode]string{Off: "off", Observe: "observe", Enforce: "enforce"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode reads off, observe or enforce.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return m, nil
		}
	}
	return Off, fmt.Errorf("mode %q: use off, observe or enforce", s)
}

// Rule is what the operator's policy says of one flow.
type Rule struct {
	Weight int    // 1..1,000,000
	Mode   Mode   // the least of this and the daemon's own mode holds
	Limit  int64  // bytes a second at one device, both directions together, at least MinLimit; 0: none
	Queue  *Queue // that Weight counts in; nil: none
}

// Policy finds the rule of a flow by its name. It is called in the loop's
// goroutine and must not block.
type Policy func(flow string) Rule

// Config has one paragraph per setting; Validate fills in the defaults.
type Config struct {
	// Algorithm is one of sfq.Algorithms(): fifo, sfq (one request at a time),
	// sfqd and drr (a fixed depth) or sfqd2 (the depth follows the device's
	// latency). Default sfqd2.
	Algorithm string

	// Quantum is the bytes of one device request, 64 KiB..64 MiB, whole pages.
	// It has to pay for its seek: on a slow modelled disk 64 KiB quanta reached
	// 0.65 of the native throughput, 1 MiB 0.95 and 2 MiB 0.97. Default 2 MiB.
	Quantum int64

	// Ahead is how many quanta a reader is staged ahead of where it is, beside
	// those in flight, 1..16. Default 2: with one, a protected reader's queue is
	// empty each time a request of its own ends.
	Ahead int

	// Backlog is what one application may always have written on the device that the
	// device does not have yet, in bytes, at least two quanta. Writers overshoot it
	// by at most one lease (1 MiB) each. Default 8 MiB or two quanta.
	Backlog int64

	// Dirty bounds the backlog of all applications on the device together. With
	// many writers each gets an equal part of it where that is less than Backlog; and
	// where an application's share of the device is large, it may have more, up to
	// its weight's part of what is left (bound). It has to stay well under the kernel's
	// background dirty threshold, or the kernel writes out behind our back.
	// Default 32 MiB. SetRoom changes it.
	Dirty int64

	// Run is how many bytes of one file are served in a row, when the flow that
	// is due has several files at work, before another of its files gets its
	// turn; it saves seeks and moves no share. Default 8 MiB.
	Run int64

	// FixedDepth is the depth of sfqd and drr, 1..1024. Default 4.
	FixedDepth int

	// Depth configures sfqd2.
	Depth depth.Config

	// Cost is what a request costs of the device's time, from its profile.
	// Without one the reference latencies of Depth stand in for it: their ratios
	// hold, and what they are in seconds is learnt from the first load.
	Cost cost.Model

	// Seek is what a new place is taken to cost beside that, where there is no
	// profile, in the same measure; 0..1 s. The account of service has it, shares have not: a
	// guess is no ground to give a flow less. Default 0.
	Seek time.Duration

	// Period is how often sfqd2 moves the depth. Default 1 s, as in the paper.
	Period time.Duration

	// MaxWait is how long a stream may wait before a minimum quantum is let
	// through whatever its share says; the flow keeps the debt. HDFS clients
	// give up at 60 s, and the agent's own bound is 20 s. 1 s..15 s, default
	// 12 s: the quantum's own time at the device comes on top.
	MaxWait time.Duration

	// FlushAge is when a slow writer's backlog is drained although it fills no
	// quantum; it has to come well before the kernel's own 30 s. Default 5 s.
	FlushAge time.Duration

	// Lazy bounds what all applications together may have waiting on the device, of
	// kind intermediate, without being drained; each may have its weight's part, beside
	// Backlog and Dirty. Where its share of the device would take too long to drain
	// that much, it may have less (lazyBound). At least 64 KiB. Default half of Dirty,
	// until SetRoom changes it, as the daemon does.
	Lazy int64

	// LazyAge is FlushAge for streams of kind intermediate, which are otherwise
	// drained only as far as Lazy asks for. Default 22 s.
	LazyAge time.Duration

	// LazyFiles is how many closed files of one application, of kind intermediate,
	// may wait to be deleted or drained, 1..65,536; past it the oldest is drained.
	// Each holds a descriptor. Default 1,024.
	LazyFiles int

	// Network says that the device sends and has no files. Rate is what it sends,
	// in bytes a second; 0: it is not known, and nobody is held back there.
	Network bool
	Rate    int64

	// WeightScale is the most that weights are multiplied with for the scheduler, 1..1,000,000,
	// so that parts (SetParts) can be finer than weights; 1 without them. It is halved until the
	// largest weight on the device fits. Default 1.
	WeightScale int

	// MaxFlows bounds the flows of the device. Past it a new application takes the
	// place of the one that has been idle the longest or, where all have streams,
	// shares the unattributed flow. Default 4,096.
	MaxFlows int
}

const (
	minQuantum  = 64 << 10
	maxQuantum  = 64 << 20
	firstStage  = 256 << 10 // a reader's first quantum; it doubles from there
	leaseBytes  = 1 << 20   // how far a writer may go beyond what it has reported
	leaseFloor  = 64 << 10  // the least lease: one HDFS packet
	packetBytes = 1 << 20   // a reader may need as much at once: io.file.buffer.size
	maxAside    = 64        // requests in flight beyond the depth, let through after MaxWait
	pageBytes   = 4096
	maxQueued   = 4096    // requests that one flow has ready
	maxQueues   = 1 << 14 // that flows are in; a policy has 10,000 at most, and groups
	tickPeriod  = 100 * time.Millisecond
	idleFlowAge = 5 * time.Minute // a flow without streams is forgotten after this
)

// UnattributedFlow is the flow of what no rule of naming could attribute.
const UnattributedFlow = "unattributed"

// Validate fills in defaults and refuses what is out of range.
func (c *Config) Validate() error {
	if c.Network {
		c.networkDefaults()
	}
	setDefault(&c.Algorithm, "sfqd2")
	setDefault(&c.Quantum, 2<<20)
	setDefault(&c.Ahead, 2)
	setDefault(&c.Backlog, max(8<<20, 2*c.Quantum))
	setDefault(&c.Dirty, max(32<<20, c.Backlog))
	setDefault(&c.Run, max(8<<20, c.Quantum))
	setDefault(&c.FixedDepth, 4)
	setDefault(&c.Period, time.Second)
	setDefault(&c.MaxWait, 12*time.Second)
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
	check(slices.Contains(sfq.Algorithms(), c.Algorithm), "algorithm %q: use one of %s", c.Algorithm, strings.Join(sfq.Algorithms(), ", "))
	check(c.Quantum >= minQuantum && c.Quantum <= maxQuantum && c.Quantum%pageBytes == 0,
		"quantum %d: use whole pages between 64 KiB and 64 MiB", c.Quantum)
	check(c.Ahead >= 1 && c.Ahead <= 16, "ahead %d: use 1 to 16 quanta", c.Ahead)
	check(c.Backlog >= 2*c.Quantum, "backlog %d: use at least two quanta (%d)", c.Backlog, 2*c.Quantum)
	check(c.Dirty >= c.Backlog, "dirty %d: use at least the backlog of one application (%d)", c.Dirty, c.Backlog)
	check(c.Run >= c.Quantum, "run %d: use at least one quantum (%d)", c.Run, c.Quantum)
	check(c.FixedDepth >= 1 && c.FixedDepth <= 1024, "fixed depth %d: use 1 to 1024", c.FixedDepth)
	check(c.Seek >= 0 && c.Seek <= time.Second, "seek %v: use up to 1s", c.Seek)
	check(c.Period >= 100*time.Millisecond, "period %v: use at least 100ms", c.Period)
	check(c.MaxWait >= time.Second && c.MaxWait <= 15*time.Second,
		"max wait %v: use 1s to 15s (agents give up at 20s, HDFS clients at 60s)", c.MaxWait)
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
	if c.profiled() {
		if err := c.Cost.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// scheduler makes the scheduler that the config asks for.
func (c *Config) scheduler() (sfq.Scheduler, error) {
	fixed := c.FixedDepth
	if c.Algorithm == "sfq" {
		fixed = 1
	}
	return sfq.New(sfq.Config{Algorithm: c.Algorithm, Depth: fixed, MaxFlows: c.MaxFlows, MaxQueued: maxQueued, MaxQueues: maxQueues})
}
