// Package arbiter decides what one device does next.
//
// Problem: a weight binds only what queues, and what the threads of a shared server do is
// page-cache I/O that never queues anywhere. So the daemon does the device I/O itself, in
// quanta: it stages what applications read and drains what they wrote (IBIS, sections 3 and
// 4, taken one step further). Which quantum goes next, how many are at the device, how far a
// stream may go and for how long it may wait are all decided here.
//
// Choice: a state machine without clock, thread, file or lock, in the manner of a consensus
// library. Events come in (Open, Progress, Close, Done, Reassign, Apply, SetParts, Observe),
// each with the time at which it happened. Decide answers with actions (start this request,
// let this stream go up to this position, close its files) and with the time at which it must
// be called again. Facts that only the kernel knows come through File, which the caller
// implements. The daemon, the simulator and the tests drive the same code, and the same
// events and answers give the same decisions.
//
// One flow is one application's queue at the device. The scheduler (core/sfq) says which flow
// is due. Only then is one of its streams chosen (turns.go), and no request exists before it
// is dispatched. So a stream costs a few words however much it claims, and nothing has to be
// taken back when it closes. Each further decision has a file and a type of its own:
// forced.go, limits.go, anticipation.go, backlog.go, lazy.go, staged.go, pricing.go, weights.go.
//
// An Arbiter belongs to one caller at a time.
package arbiter

import (
	"fmt"
	"math"
	"time"

	"penstock/core/depth"
	"penstock/core/sfq"
)

// Marks that are not positions. The values are those of the wire format.
const (
	Open    = math.MaxInt64     // holds nobody back
	Refused = math.MaxInt64 - 1 // refuse the operation, which has not begun
)

// Mode says what is done to an application's streams.
type Mode uint8

// The modes, from least to most.
const (
	Off     Mode = iota // not even accounted for
	Observe             // everything but waiting
	Enforce             // streams wait for their marks
)

var modeNames = [...]string{Off: "off", Observe: "observe", Enforce: "enforce"}

func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "unknown"
}

// ParseMode reads off, observe or enforce.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return Off, fmt.Errorf("mode %q: use off, observe or enforce", s)
}

// Rule is what the operator's policy says of one flow.
type Rule struct {
	Weight int    // 1..1,000,000
	Mode   Mode   // the least of this and the daemon's own mode holds
	Limit  int64  // bytes a second at one device, both directions together, at least MinLimit; 0: none
	Queue  *Queue // the queue in which Weight counts; nil: none
}

// Policy finds the rule of a flow by its name. It must not block.
type Policy func(flow string) Rule

// ActionKind says what an action asks for.
type ActionKind uint8

// The actions.
const (
	Start   ActionKind = iota // begin Request at the device, and report its end with Done
	Mark                      // Stream may go to Position
	Release                   // nothing of Stream is needed any more: close its files
)

// Action is one thing that the caller must do.
type Action struct {
	Kind     ActionKind
	Stream   *Stream
	Request  *Request // of Start
	Position int64    // of Mark
}

// Options of a new arbiter.
type Options struct {
	Config Config
	Mode   Mode
	Policy Policy

	// Scheduler makes the scheduler where Config.Peer is set.
	Scheduler func(maxFlows int) Scheduler
}

// Arbiter is the state of one device.
type Arbiter struct {
	cfg     Config
	mode    Mode
	policy  Policy
	sched   Scheduler
	control *depth.Controller // nil where the depth is fixed
	depth   int               // how many requests may be at the device
	pricing pricing

	flows   map[string]*flow
	all     []*flow // the same flows, in a stable order
	byID    []*flow // by the scheduler's number
	active  []*flow // flows that have, or recently had, something for the device
	streams []*Stream

	running []*Request // at the device
	spare   []*Request // kept for reuse
	actions []Action

	tree         queueTree
	backlog      backlog
	staged       int64                // bytes ahead of their readers
	stagedFlows  int64                // flows that have such bytes
	roomQueue    indexedHeap[*Stream] // streams for which there was no room to stage, in their order
	roomSeq      int64                // of the last of them
	forced       forced
	anticipation anticipation
	held         indexedHeap[*flow] // flows that wait for their limits, by time
	grantQueue   []*flow            // flows that go on giving leases in the next turn
	pace         pacer

	next   time.Duration // the next tick
	period time.Duration // the next move of the depth
	swept  time.Duration // when old flows were last looked for
	stuck  bool
	faults faults
}

// faults counts errors, for the caller to log.
type faults struct {
	count int64
	what  string
	err   error
}

func (a *Arbiter) fault(what string, err error) {
	a.faults.count++
	a.faults.what, a.faults.err = what, err
}

// Fault returns the last error, what it was about, and how many there have been; err is nil
// if there was none since the last call.
func (a *Arbiter) Fault() (what string, count int64, err error) {
	what, count, err = a.faults.what, a.faults.count, a.faults.err
	a.faults.err = nil
	return what, count, err
}

// New returns the arbiter of an idle device. An error says which setting to change.
func New(o Options) (*Arbiter, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	a := &Arbiter{
		cfg: o.Config, mode: o.Mode, policy: o.Policy,
		flows:   map[string]*flow{},
		depth:   o.Config.FixedDepth,
		pricing: newPricing(&o.Config),
	}
	a.forced = newForced(a.cfg.MaxWait)
	a.tree = newQueueTree()
	a.roomQueue = indexedHeap[*Stream]{
		less:  func(s, t *Stream) bool { return s.roomSeq < t.roomSeq },
		index: func(s *Stream) *int { return &s.roomIndex },
	}
	a.held = indexedHeap[*flow]{
		less:  func(f, g *flow) bool { return f.due < g.due || f.due == g.due && f.id < g.id },
		index: func(f *flow) *int { return &f.heldIndex },
	}
	if err := a.schedule(o); err != nil {
		return nil, err
	}
	var err error
	if a.pace, err = newPacer(&a.cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// schedule makes the scheduler, and the controller of the depth.
func (a *Arbiter) schedule(o Options) (err error) {
	if a.cfg.Peer {
		a.sched = o.Scheduler(a.cfg.MaxFlows)
		return nil
	}
	if a.sched, err = sfq.New(sfq.Config{MaxFlows: a.cfg.MaxFlows, MaxQueues: maxQueues, MaxLead: int64(a.cfg.Debt)}); err != nil {
		return err
	}
	switch a.cfg.Algorithm {
	case "sfq":
		a.depth = 1
	case "sfqd2":
		if a.control, err = depth.New(a.cfg.Depth); err != nil {
			return err
		}
		a.depth = a.control.Depth()
	}
	return nil
}

// Decide does what is due by now and starts the requests that may start. It returns the
// actions of all events since the last call, in order, and the latest time for the next call.
// The caller may use the actions until it calls any method again.
func (a *Arbiter) Decide(now time.Duration) (actions []Action, again time.Duration) {
	if now >= a.next {
		a.tick(now)
		a.next = now + tickPeriod
	}
	if a.control != nil && now >= a.period {
		if a.period > 0 {
			a.depth = a.control.Update()
		}
		a.period = now + a.cfg.Period
	}
	a.releaseHeld(now)
	a.continueGrants(now)
	a.dispatch(now)
	again = a.next
	sooner := func(at time.Duration) {
		if at > 0 && at < again {
			again = at
		}
	}
	if a.held.len() > 0 {
		sooner(a.held.first().due)
	}
	sooner(a.pace.at)
	sooner(a.anticipation.until)
	sooner(a.forced.nextCheck)
	if len(a.grantQueue) > 0 {
		sooner(now + 1)
	}
	actions, a.actions = a.actions, a.actions[:0]
	return actions, max(again, now+1)
}

// Idle reports whether ticks find nothing to do but to forget flows that are no longer used: no
// flow is at work or has a backlog, and nothing is at the device. What changes that is an event,
// so a caller may wait for one instead of the time that Decide has named.
func (a *Arbiter) Idle() bool {
	return len(a.active) == 0 && len(a.running) == 0 && a.roomQueue.len() == 0 && len(a.grantQueue) == 0 &&
		a.held.len() == 0 && a.forced.waiting.len() == 0 && a.forced.overdue.len() == 0 && !a.stuck
}

func (a *Arbiter) act(x Action) { a.actions = append(a.actions, x) }

// Apply sets the daemon's mode and the operator's policy, for streams that are open as well.
func (a *Arbiter) Apply(now time.Duration, mode Mode, policy Policy) {
	was := a.mode
	a.policy = policy
	for _, f := range a.all {
		f.before = min(was, f.rule.Mode)
		a.mode = mode
		a.setRule(f, policy(f.name), now)
		if a.modeOf(f) != f.before {
			// What it did in one mode is no debt in another.
			if err := a.sched.Void(f.id); err != nil {
				a.fault("void", err)
			}
		}
	}
	a.mode = mode
	a.reweigh()
	for i := 0; i < len(a.streams); {
		s := a.streams[i]
		if a.modeOf(s.flow) == Off {
			a.ungovern(s, now)
		} else {
			if a.modeOf(s.flow) != s.flow.before {
				if s.waiting > 0 && s.flow.before == Observe {
					s.flow.wouldWait += now - s.waiting
				}
				a.restartWait(s, now)
			}
			a.updateReady(s, now) // its quantum may be another one
			a.sendMark(s)
			a.updateWait(s, now)
		}
		if i < len(a.streams) && a.streams[i] == s {
			i++ // else another stream has taken its place
		}
	}
}

// SetRoom changes Config.Dirty, Config.Lazy and Config.Staged; 0 leaves one as it is.
func (a *Arbiter) SetRoom(dirty, lazy, staged int64) {
	if dirty > 0 {
		a.cfg.Dirty = max(a.cfg.Backlog, dirty)
	}
	if lazy > 0 {
		a.cfg.Lazy = max(leaseFloor, lazy)
	}
	if staged > 0 {
		a.cfg.Staged = max(2*a.cfg.Quantum, staged)
	}
}

// Delay books service that a flow was given elsewhere: the delay of DSFQ (Wang and Merchant,
// 2007), which IBIS has in section 5, within Config.Debt. It is for comparisons: the daemon's
// cluster sets parts.
func (a *Arbiter) Delay(flow string, service time.Duration) {
	if f := a.flows[flow]; f != nil && service > 0 {
		a.chargeUnscheduled(f, a.pricing.tagOf(service))
	}
}

// MinLimit is the lowest limit, in bytes a second. A stream that has waited for MaxWait is let
// through whatever the limit says, so a lower limit would not hold.
const MinLimit = 64 << 10
