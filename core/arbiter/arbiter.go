// Package arbiter decides what one device does next.
//
// The problem: weights apply only to requests that queue, but the threads of a shared server do
// page-cache I/O that never queues. So the daemon does the device I/O itself, in quanta. The daemon
// stages the bytes that an application will read: it reads them into the page cache ahead of the
// reader. It drains the bytes that an application has written: it writes their pages from the page
// cache to the device. This design extends IBIS, sections 3 and 4. The arbiter decides which
// quantum is dispatched next, how many quanta are in flight, how far each stream may go, and how
// long a stream may wait.
//
// The arbiter is a state machine without clock, threads, files or locks, in the style of a
// consensus library. The events are Open, Progress, Close, Done, Reassign, Apply, SetParts and
// Observe; most carry the time at which they happened. Decide returns actions (start this request,
// let this stream go up to this position, close its files) and the time by which Decide must be
// called again. The caller implements File, which provides facts that only the kernel knows. The
// daemon, the simulator and the tests run the same code, and equal sequences of events lead to
// equal decisions.
//
// A flow is one application's queue at the device. The scheduler (core/sfq) selects the flow. Only
// then is a stream of the flow selected (streamqueue.go) and a request created. So a stream takes
// little memory, whatever range its agent claims, and leaves no queued requests behind when it
// closes. Each further decision has its own file and type:
//
//	anticipation.go    idling for a flow that is about to return
//	overtaken.go       reads that the kernel serves too late
//	forced.go          streams that have waited for too long
//	limits.go          rate limits of flows
//	reserve.go         guaranteed rates of flows
//	latency.go         latency goals of small reads
//	strict.go          guaranteed rates that are not lent to others
//	backlog.go         how much writers may have written and not drained
//	deferred.go        intermediate writes whose draining is deferred
//	staged.go          how much is staged ahead of readers
//	free.go            whether small reads need not wait
//	storage.go         the share of a storage service on the same device
//	pricing.go         the cost of requests
//	queuetree.go       the weights of flows and queues
//
// An Arbiter is not safe for concurrent use.
package arbiter

import (
	"fmt"
	"math"
	"time"

	"penstock/core/depth"
	"penstock/core/limit"
	"penstock/core/reserve"
	"penstock/core/sfq"
)

// Special marks. The values are those of the wire format.
const (
	Open    = math.MaxInt64     // no bound
	Refused = math.MaxInt64 - 1 // the operation, which has not begun, is refused
)

// Mode determines whether the streams of an application are accounted for, and whether they wait.
type Mode uint8

// The modes, from the weakest to the strongest.
const (
	Off     Mode = iota // streams are not accounted for
	Observe             // streams are accounted for, and never wait
	Enforce             // streams wait for their marks
)

var modeNames = [...]string{Off: "off", Observe: "observe", Enforce: "enforce"}

func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "unknown"
}

// ParseMode parses off, observe or enforce.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return Off, fmt.Errorf("mode %q: use off, observe or enforce", s)
}

// Rule is what the operator's policy gives to one flow.
type Rule struct {
	Weight int    // 1 to 1,000,000
	Mode   Mode   // the weaker of this mode and the daemon's mode applies
	Limit  int64  // bytes per second on one device, reads and writes together, at least MinLimit; 0 means no limit
	Queue  *Queue // the flow's queue; nil means the root
	// Reserve is the least rate of the flow while it is backlogged.
	Reserve reserve.Rate
	// OfTotal means that Reserve is the device's part of a guaranteed rate of the whole application (WithTotal).
	OfTotal bool
	// Order is the place of the rule in the policy. If the device cannot keep all guaranteed rates, those with a
	// smaller Order come first.
	Order int
	// Latency is the goal of the 99th percentile of the flow's small reads (latency.go), 10 ms to 10 s; 0
	// means none.
	Latency time.Duration
}

// WithTotal returns the rule with the device's parts of a guaranteed rate and of a limit for the whole application, in bytes per
// second; 0: none. A part of a limit counts if it is below the rule's limit. A part of a guaranteed rate replaces none: a
// rule has one or the other.
func (r Rule) WithTotal(guaranteed, most int64) Rule {
	if most > 0 && (r.Limit == 0 || most < r.Limit) {
		r.Limit = max(most, MinLimit)
	}
	if guaranteed >= limit.MinRate && r.Reserve == (reserve.Rate{}) {
		r.Reserve, r.OfTotal = reserve.Rate{Bytes: guaranteed}, true
		if r.Limit > 0 {
			r.Reserve.Bytes = min(guaranteed, r.Limit)
		}
	}
	return r
}

// Policy returns the rule of a flow. It must not block.
type Policy func(flow string) Rule

// ActionKind is the type of an action.
type ActionKind uint8

// The actions.
const (
	Start   ActionKind = iota // start Request on the device, and call Done when it has ended
	Mark                      // let Stream go up to Position
	Release                   // close the files of Stream
)

// Action is an operation that the caller must perform.
type Action struct {
	Kind     ActionKind
	Stream   *Stream
	Request  *Request // for Start
	Position int64    // for Mark
}

// Options configures an Arbiter.
type Options struct {
	Config Config
	Mode   Mode
	Policy Policy

	// Scheduler returns the scheduler to use if Config.Peer is set.
	Scheduler func(maxFlows int) Scheduler
}

// Arbiter is the state of one device.
type Arbiter struct {
	cfg     Config
	mode    Mode
	policy  Policy
	sched   Scheduler
	control *depth.Controller // nil if the depth is fixed
	depth   int               // number of requests that may be in flight
	pricing pricing

	flows   map[string]*flow
	all     []*flow // the same flows, in a stable order
	byID    []*flow // indexed by sfq.Flow
	active  []*flow // flows with present or recent I/O
	streams []*Stream

	running []*Request // in flight
	started uint64     // requests so far
	slotAt  time.Duration
	// slotTime is the sum of the time with requests in flight, each moment divided by their number, in nanoseconds.
	slotTime float64
	spare    []*Request // for reuse
	actions  []Action

	tree         queueTree
	backlog      backlog
	staged       int64                // bytes staged ahead of readers
	stagedFlows  int64                // number of flows with staged bytes
	roomQueue    indexedHeap[*Stream] // streams that wait for room to stage, in order of arrival
	roomSeq      int64                // sequence number of the last stream in roomQueue
	forced       forced
	anticipation anticipation
	overtaking   overtaking
	held         indexedHeap[*flow] // flows that wait for their limits, by flow.due
	reserved     reservedQueue      // backlogged flows with guaranteed rates
	reserveLag   time.Duration      // by which reserve time is behind
	admission    admission
	strict       strict
	grantQueue   []*flow // flows with parked writers that get further leases in the next call of Decide
	pacer        pacer
	latency      latencyControl
	storage      storage
	free         free

	next   time.Duration // time of the next tick
	period time.Duration // time of the depth's next update
	swept  time.Duration // when unused flows were last removed
	stuck  bool
	faults faults
}

// faults counts errors and keeps the last one, for the caller to log.
type faults struct {
	count int64
	what  string
	err   error
}

func (a *Arbiter) fault(what string, err error) {
	a.faults.count++
	a.faults.what, a.faults.err = what, err
}

// Fault returns the last error, its subject, and the number of errors so far. err is nil if there
// was no error since the last call.
func (a *Arbiter) Fault() (what string, count int64, err error) {
	what, count, err = a.faults.what, a.faults.count, a.faults.err
	a.faults.err = nil
	return what, count, err
}

// New returns the arbiter of an idle device. An error names the setting to change.
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
	a.reserved = newReservedQueue()
	a.latency.ready = indexedHeap[*flow]{
		less: func(f, g *flow) bool {
			x, y := f.latency.due, g.latency.due
			return x < y || x == y && f.id < g.id
		},
		index: func(f *flow) *int { return &f.latencyIndex },
	}
	if err := a.schedule(o); err != nil {
		return nil, err
	}
	var err error
	if a.pacer, err = newPacer(&a.cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// schedule creates the scheduler and the depth controller.
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

// Decide does all work that is due and starts the requests that may start. It returns the actions
// that events have caused since the last call, in order, and the time by which the caller must call
// Decide again. The actions are valid until the next call of any method.
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
	if len(a.running) < a.depth {
		sooner(a.nextReservedAt(now)) // if a request is due, something else delays it
	}
	sooner(a.strict.at)
	sooner(a.storage.at)
	sooner(a.pacer.at)
	sooner(a.anticipation.until)
	if a.awaitsOvertaken(now) {
		sooner(a.overtaking.until)
	}
	sooner(a.forced.nextCheck)
	if len(a.grantQueue) > 0 {
		sooner(now + 1)
	}
	actions, a.actions = a.actions, a.actions[:0]
	return actions, max(again, now+1)
}

// Idle reports whether ticks have nothing to do except removing unused flows: no flow is at work or
// has a backlog, and nothing is in flight. Only an event changes that, so the caller may wait for
// the next event instead of calling Decide at the returned time.
func (a *Arbiter) Idle() bool {
	return len(a.active) == 0 && len(a.running) == 0 && a.roomQueue.len() == 0 && len(a.grantQueue) == 0 &&
		a.held.len() == 0 && a.forced.waiting.len() == 0 && a.forced.overdue.len() == 0 && !a.stuck
}

func (a *Arbiter) act(x Action) { a.actions = append(a.actions, x) }

// Apply sets the daemon's mode and the operator's policy, for open streams as well.
func (a *Arbiter) Apply(now time.Duration, mode Mode, policy Policy) {
	was := a.mode
	a.policy = policy
	for _, f := range a.all {
		f.before = min(was, f.rule.Mode)
		a.mode = mode
		a.setRule(f, policy(f.name), now)
		if a.modeOf(f) != f.before {
			// Service in one mode must not become debt in another mode.
			if err := a.sched.Void(f.id); err != nil {
				a.fault("void", err)
			}
			a.forfeitOverdue(f, 0, now)
		}
	}
	a.mode = mode
	a.reweigh()
	a.applyFree(now)
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
			a.updateReady(s, now) // the quantum may have changed
			a.sendMark(s)
			a.updateWait(s, now)
		}
		if i < len(a.streams) && a.streams[i] == s {
			i++ // otherwise another stream has moved to this index
		}
	}
}

// SetRoom changes Config.Dirty, Config.Lazy and Config.Staged; 0 leaves a value unchanged.
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

// Delay charges a flow for service that the flow got on other devices. Config.Debt bounds the time
// for which the flow then waits. This is the delay of DSFQ (Wang and Merchant, 2007), which IBIS
// uses (section 5). Delay is only for comparisons; the daemon uses SetParts.
func (a *Arbiter) Delay(flow string, service time.Duration) {
	if f := a.flows[flow]; f != nil && service > 0 {
		a.chargeUnscheduled(f, a.pricing.tagOf(service))
	}
}
