package arbiter

import (
	"fmt"
	"math"
	"time"

	"penstock/core/limit"
	"penstock/core/sfq"
)

// flow is one application's queue at the device.
type flow struct {
	name string
	id   sfq.Flow
	rule Rule

	ready     streamQueue
	announced int64 // cost of its next request, as announced to the scheduler; 0: not ready

	streams       int
	writers       int                  // streams that write: open, or with a backlog
	writing       int                  // of them, open
	parked        indexedHeap[*Stream] // writers that wait for a lease, the one that waits longest first
	granting      bool                 // among Arbiter.generous
	backlog       int64
	tails         indexedHeap[*Stream] // writers with bytes that no request has yet, the oldest first
	deferredQueue indexedHeap[*Stream] // lazy writers with bytes that wait, the oldest first
	deletedCheck  time.Duration        // when their files were last checked for being deleted
	deferred      int64                // of the backlog, bytes of kind intermediate that need not be drained yet
	room          int64                // bound of its backlog (bound)
	deferredRoom  int64                // bound of lazy (lazyBound)
	usesDeferred  bool                 // lazy was more than half of its part at the last tick
	early         int64                // bytes that drainInTime may still let go
	kept          int                  // closed streams with lazy bytes
	idle          time.Duration        // when the last stream left

	inFlight      int           // requests that have started and not ended
	draining      int           // of them, writes
	used          time.Duration // when it last had a request; 0: never
	readySince    time.Duration // when it became ready; 0: it is not
	readyTime     time.Duration // how long it was ready before that
	busy          float64       // part of the ticks with a request, lately; 1 at first
	inactiveSince time.Duration // when it left Arbiter.active; 0: it is there
	soonAverage   float64       // part of its returns that came soon, lately

	limit     *limit.Bucket // nil: none
	due       time.Duration // when the limit allows the next request
	heldIndex int           // its place in Arbiter.held

	leaf             leaf    // to the device, among the others
	addedEntitlement float64 // of it, to anticipation.waiting

	overdue      indexedHeap[*Stream] // readers whose patience is over, by deadline
	overdueIndex int                  // its place in forced.overdue
	lastPacket   time.Duration        // when it last had a packet out of its turn

	staged int64 // bytes ahead of its readers
	before Mode  // before the Apply that goes on

	kinds       [kinds]account
	resident    int64 // bytes read that needed no device
	unscheduled int64 // bytes that the kernel moved for the flow, unscheduled
	requests    int64
	forced      int64 // packets let through when a stream's patience was over
	forcedBytes int64
	wouldWait   time.Duration // observe: what enforcing would have delayed
	refused     int64         // operations
	stalled     int           // streams at their marks, or beyond them in observe mode
	waits       int64

	limitWaits   int64 // times that its next request waited for the limit
	dropped      int64 // lazy files deleted before they were drained
	droppedBytes int64
}

// account is what was done for a flow's streams of one kind.
type account struct {
	opened   int64
	streamed [2]int64 // bytes that the streams have passed, by direction
	bytes    [2]int64 // of them, what the device has moved
	service  int64    // ns of the device's time
}

// book enters what the device has done.
func (f *flow) book(k Kind, write bool, bytes, service int64) {
	f.kinds[k].bytes[direction(write)] += bytes
	f.kinds[k].service += service
}

// flow returns the flow of that name, new or known. If there are too many flows and all have
// streams, it is the unattributed one.
func (a *Arbiter) flow(name string, now time.Duration) *flow {
	if f := a.flows[name]; f != nil {
		return f
	}
	if len(a.all) >= a.cfg.MaxFlows-1 && name != UnattributedFlow && !a.forgetIdlest() {
		return a.flow(UnattributedFlow, now)
	}
	f := &flow{name: name, idle: now, busy: 1, inactiveSince: now, ready: newStreamQueue(), rule: a.policy(name)}
	f.parked = indexedHeap[*Stream]{
		less:  func(s, t *Stream) bool { return s.parked < t.parked },
		index: func(s *Stream) *int { return &s.parkedIndex },
	}
	f.tails = indexedHeap[*Stream]{
		less:  func(s, t *Stream) bool { return s.unflushed < t.unflushed },
		index: func(s *Stream) *int { return &s.tailIndex },
	}
	f.deferredQueue = f.tails
	f.overdue = indexedHeap[*Stream]{
		less:  func(s, t *Stream) bool { return s.deadline < t.deadline },
		index: func(s *Stream) *int { return &s.overdueIndex },
	}
	f.leaf = a.tree.newLeaf(f)
	id, err := a.sched.AddFlow(f.leaf.schedWeight)
	if err != nil { // the bound above is the scheduler's, too: a bug
		panic(fmt.Sprintf("arbiter: no flow for %s: %v", name, err))
	}
	f.id = id
	a.flows[name] = f
	a.all = append(a.all, f)
	for int(id) >= len(a.byID) {
		a.byID = append(a.byID, nil)
	}
	a.byID[id] = f
	a.weigh(f)
	a.setRule(f, f.rule, now)
	return f
}

// forgetIdlest makes room for one flow: it forgets the one that has been without streams
// longest, and reports whether there was one.
func (a *Arbiter) forgetIdlest() bool {
	var idlest *flow
	for _, f := range a.all {
		if f.streams == 0 && f.inFlight == 0 && f.name != UnattributedFlow && (idlest == nil || f.idle < idlest.idle) {
			idlest = f
		}
	}
	return idlest != nil && a.forgetFlow(idlest)
}

// forgetFlow forgets a flow without streams, and reports whether it could. It cannot while a
// request that the flow pays for is at the device: its stream may belong to another flow by now.
func (a *Arbiter) forgetFlow(f *flow) bool {
	if f.inFlight > 0 {
		return false
	}
	a.anticipation.drop(f)
	if err := a.sched.RemoveFlow(f.id); err != nil {
		return false
	}
	a.held.remove(f)
	a.tree.leave(f)
	delete(a.flows, f.name)
	a.byID[f.id] = nil
	a.all = without(a.all, f)
	a.active = without(a.active, f)
	a.grantQueue = without(a.grantQueue, f)
	return true
}

// without removes an item from a slice and keeps the order of the others.
func without[T comparable](all []T, x T) []T {
	for i, other := range all {
		if other == x {
			copy(all[i:], all[i+1:])
			var zero T
			all[len(all)-1] = zero
			return all[:len(all)-1]
		}
	}
	return all
}

func (a *Arbiter) modeOf(f *flow) Mode { return min(a.mode, f.rule.Mode) }

// activate adds a flow to those that ticks look at.
func (a *Arbiter) activate(f *flow, now time.Duration) {
	if f.inactiveSince == 0 {
		return
	}
	if f.used > 0 { // its average has gone on falling
		f.busy *= math.Pow(1-averageGain, float64((now-f.inactiveSince)/tickPeriod))
	}
	f.inactiveSince = 0
	a.active = append(a.active, f)
}

// recent reports whether the flow has used the device lately.
func (f *flow) recent(now time.Duration) bool { return f.used > 0 && now-f.used < recently }

// atWork reports whether the flow has, or had lately, something for the device.
func (f *flow) atWork(now time.Duration) bool {
	return f.ready.len() > 0 || f.inFlight > 0 || f.backlog > 0 || f.recent(now)
}

// announce tells the scheduler whether the flow is ready, and what its next request costs.
func (a *Arbiter) announce(f *flow, now time.Duration) {
	cost := int64(0)
	if f.ready.len() > 0 && !a.heldBack(f, now) {
		next := f.ready.peek()
		_, _, bytes := a.nextOf(next)
		cost = a.pricing.charge(next.Write, bytes)
	}
	if cost == f.announced {
		return
	}
	switch {
	case f.announced == 0:
		f.readySince = now
		a.anticipation.enter(f)
	case cost == 0:
		f.readyTime += now - f.readySince
		f.readySince = 0
		a.anticipation.leave(f)
	}
	f.announced = cost
	if err := a.sched.Ready(f.id, cost); err != nil {
		a.fault("ready", err)
	}
}

// wantedBy returns how long the flow has been ready in all.
func (f *flow) readyTimeAt(now time.Duration) time.Duration {
	if f.readySince == 0 {
		return f.readyTime
	}
	return f.readyTime + now - f.readySince
}
