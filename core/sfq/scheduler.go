// Package sfq decides which application's device request is dispatched next.
//
// The family is start-time fair queueing (IBIS, section 4). Every request
// carries a start tag S = max(v, F of the flow's previous request) and a finish
// tag F = S + cost/weight. The smallest S is dispatched first, v (virtual time)
// is the S of the last dispatched request, and at the end of a busy period v
// becomes the largest F. SFQ lets one request be outstanding, SFQ(D) up to D;
// SFQ(D2) is SFQ(D) whose depth is moved by package depth. For two flows that
// are always backlogged the service per weight differs by no more than
// (D+1)(c_f/w_f + c_g/w_g), c being a flow's largest cost. Flows may be put into queues
// with weights of their own (Queues).
//
// The package is pure: no clock, goroutine, lock, input or output, and nothing
// depends on the iteration order of a map. The same calls give the same
// decisions in the daemon, in a simulation and in a test. A Scheduler belongs
// to one caller at a time; whoever shares one, locks.
//
// A further algorithm is one new file: a type with the methods of Scheduler,
// usually on top of table (flows, handles, queues, bounds) and heap (flows by
// their first request), and one call of register.
package sfq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits that hold for every algorithm.
const (
	MaxWeight = 1_000_000 // largest weight of a flow
	MaxCost   = 1 << 40   // largest cost of one request or charge, in cost units
	MaxDepth  = 1 << 16   // largest depth
)

// Flow names one application's queue. Numbers are dense, so callers may index
// with them, and are given out again after RemoveFlow.
type Flow int32

// Handle names one request from Submit to Complete or Cancel. Zero is never a
// valid handle. A handle that is over is refused: its slot counts how often it
// has been used, and only after 2^32 uses does a number come back.
type Handle uint64

// Request is what Next dispatches. Cost is as submitted, in cost units; Ref is
// the caller's own and not looked at.
type Request struct {
	Handle Handle
	Flow   Flow
	Cost   int64
	Ref    uint64
}

// Scheduler orders the requests of many flows before one device. Methods that
// return an error have changed nothing when they do.
type Scheduler interface {
	// AddFlow admits a flow of weight 1 to MaxWeight. It starts without debt
	// or credit, also when its number was another flow's before. Errors:
	// ErrWeight, ErrTooManyFlows.
	AddFlow(weight int) (Flow, error)
	// RemoveFlow forgets a flow. Errors: ErrUnknownFlow, and ErrFlowBusy while
	// it has queued or outstanding requests.
	RemoveFlow(f Flow) error
	// SetWeight changes a flow's weight, at once: what it was served stays its
	// service, and what it has to wait for that is as if the new weight had
	// held when it was dispatched. Errors: ErrUnknownFlow, ErrWeight.
	SetWeight(f Flow, weight int) error
	// Submit queues a request of cost 1 to MaxCost behind the flow's others.
	// Errors: ErrUnknownFlow, ErrCost, ErrTooManyRequests.
	Submit(f Flow, cost int64, ref uint64) (Handle, error)
	// Next dispatches a request if one is queued and fewer than Depth are
	// outstanding.
	Next() (Request, bool)
	// Complete ends an outstanding request with the cost that it really had,
	// 0 to MaxCost; the flow's later tags move by the difference. Errors:
	// ErrUnknownRequest, ErrNotDispatched, ErrCost.
	Complete(h Handle, cost int64) error
	// Cancel ends a request that was not served. Queued: the flow's later
	// requests move up. Outstanding: its slot is free and its charge given
	// back. Errors: ErrUnknownRequest.
	Cancel(h Handle) error
	// Charge books service of cost 1 to MaxCost that the device gave the flow
	// outside of the queue, such as kernel writeback or readahead: all that
	// the flow has queued, or will queue, moves back. Errors: ErrUnknownFlow,
	// ErrCost.
	Charge(f Flow, cost int64) error
	// SetDepth sets how many requests may be outstanding, forced into 1 to
	// MaxDepth: at 0 the device would stand still for good, and whoever wants
	// no scheduling dispatches without asking. Outstanding requests are not
	// recalled when the depth sinks. SFQ stays at 1.
	SetDepth(d int)
	// Depth returns how many requests may be outstanding.
	Depth() int
	// Outstanding returns how many requests are dispatched and not ended.
	Outstanding() int
	// Waiting returns how many requests of all flows are queued. If it is not
	// 0 when Next says no, the depth is the limit.
	Waiting() int
	// Queued returns how many requests a flow has queued, 0 if it is unknown.
	Queued(f Flow) int
	// String prints the whole state in a few lines, for tests and debugging.
	String() string
}

// The errors of a Scheduler, to be told apart by errors.Is. They are returned
// as they are, so that a full queue costs no allocation.
var (
	ErrTooManyFlows    = errors.New("sfq: no room for another flow: remove one, use a shared flow, or raise Config.MaxFlows")
	ErrTooManyRequests = errors.New("sfq: the flow's queue is full: hold its submitter back until one of its requests is dispatched, or raise Config.MaxQueued")
	ErrFlowBusy        = errors.New("sfq: the flow has queued or outstanding requests: complete or cancel them before removing it")
	ErrUnknownFlow     = errors.New("sfq: no such flow: use a number that AddFlow returned and RemoveFlow has not taken back")
	ErrUnknownRequest  = errors.New("sfq: no such request: it was completed or cancelled before, or never submitted here")
	ErrNotDispatched   = errors.New("sfq: the request is still queued: complete it after Next returned it, or withdraw it with Cancel")
	ErrWeight          = fmt.Errorf("sfq: a weight must be 1 to %d: scale all weights alike, only their ratios count", MaxWeight)
	ErrCost            = fmt.Errorf("sfq: a cost must be 1 to %d cost units (0 only at completion): split the request", int64(MaxCost))
)

// Config chooses an algorithm and its bounds.
type Config struct {
	// Algorithm is one of Algorithms(): "fifo" (arrival order, whatever the
	// weights), "sfq" (one outstanding request), "sfqd" (Depth of them), or
	// "sfqd2", the same scheduler as "sfqd", said by a caller who moves the
	// depth with package depth; or "drr", deficit round robin, with Depth
	// requests outstanding. It has no default.
	Algorithm string

	// Depth is how many requests may be outstanding at first, 1 to MaxDepth.
	// 0 means 1. "sfq" takes no other.
	Depth int

	// MaxFlows bounds the flows, 1 to 2^20; 0 means 65,536. A flow takes about
	// 100 bytes, and memory is taken only as flows come.
	MaxFlows int

	// MaxQueued bounds each flow's queued requests, 1 to 2^20; 0 means 4,096:
	// 256 MiB in quanta of 64 KiB, far more than a stream should run ahead.
	// MaxFlows times MaxQueued must not exceed 2^30, as slots are 32 bits.
	MaxQueued int

	// MaxQueues bounds the queues that flows are put into (Queues), 1 to 2^16; 0
	// means 4,096. One takes about 200 bytes, and memory is taken only as they come.
	MaxQueues int
}

func (c *Config) validate() error {
	if c.Depth == 0 {
		c.Depth = 1
	}
	if c.MaxFlows == 0 {
		c.MaxFlows = 65_536
	}
	if c.MaxQueued == 0 {
		c.MaxQueued = 4096
	}
	if c.MaxQueues == 0 {
		c.MaxQueues = 4096
	}
	switch {
	case c.Depth < 1 || c.Depth > MaxDepth:
		return fmt.Errorf("sfq: depth %d: give 1 to %d", c.Depth, MaxDepth)
	case c.MaxFlows < 1 || c.MaxFlows > 1<<20:
		return fmt.Errorf("sfq: at most %d flows: give 1 to %d", c.MaxFlows, 1<<20)
	case c.MaxQueued < 1 || c.MaxQueued > 1<<20:
		return fmt.Errorf("sfq: at most %d queued requests a flow: give 1 to %d", c.MaxQueued, 1<<20)
	case c.MaxQueues < 1 || c.MaxQueues > 1<<16:
		return fmt.Errorf("sfq: at most %d queues: give 1 to %d", c.MaxQueues, 1<<16)
	case c.MaxFlows*c.MaxQueued > 1<<30:
		return fmt.Errorf("sfq: %d flows of %d queued requests are more than 2^30: lower one of them", c.MaxFlows, c.MaxQueued)
	}
	return nil
}

type algorithm struct {
	name  string
	build func(Config) (Scheduler, error)
}

// algorithms is filled by the files of the algorithms while the program starts.
var algorithms []algorithm

// register makes an algorithm known to New. It returns a value so that a file
// can call it where it declares a variable.
func register(name string, build func(Config) (Scheduler, error)) bool {
	algorithms = append(algorithms, algorithm{name, build})
	return true
}

// Algorithms returns the names that New knows, sorted.
func Algorithms() []string {
	var names []string
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	slices.Sort(names)
	return names
}

// New returns an empty scheduler. An error says which setting to change.
func New(cfg Config) (Scheduler, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	for _, a := range algorithms {
		if a.name == cfg.Algorithm {
			return a.build(cfg)
		}
	}
	return nil, fmt.Errorf("sfq: unknown algorithm %q: choose one of %s", cfg.Algorithm, strings.Join(Algorithms(), ", "))
}
