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
	announced int64 // cost of the next request as announced to the scheduler; 0 if not backlogged

	streams        int
	writers        int          // writing streams: open ones, and closed ones with a backlog
	writing        int          // writing streams that are open
	reading        int          // other streams that are open
	stalled        int          // streams at their marks or, in observe mode, beyond them
	stalledWriters int          // of these, streams that are drained
	users          writingUsers // users with writing streams, and writers that wait for a lease
	granting       bool         // in Arbiter.grantQueue
	backlog        int64
	tails          indexedHeap[*Stream] // writers with bytes that are not requested yet, oldest first
	deferredQueue  indexedHeap[*Stream] // writers with deferred bytes, oldest first
	deletedCheck   time.Duration        // when deferredQueue was last checked for deleted files
	deferred       int64                // deferred bytes: the part of the backlog that need not be drained yet
	room           int64                // bound of the backlog (backlogBound)
	deferredRoom   int64                // bound of the deferred bytes (deferredBound)
	usesDeferred   bool                 // whether the flow used more than half of its part of Config.Lazy at the last tick
	early          int64                // bytes that drainInTime may still release
	kept           int                  // closed streams with deferred bytes
	idle           time.Duration        // when the flow's last stream ended

	inFlight      int           // requests in flight
	draining      int           // writes in flight
	used          time.Duration // when the flow last had a request in flight; 0 if never
	readySince    time.Duration // when the flow became backlogged; 0 if it is not
	readyTime     time.Duration // total time with a backlog before readySince
	waitAccount   waitAccount
	busy          float64       // moving average of the part of ticks with a request, initially 1
	inactiveSince time.Duration // when the flow left Arbiter.active; 0 if it is active
	soonAverage   float64       // moving average of the part of the flow's returns that came soon

	limit     *limit.Bucket // nil if the flow has no limit
	due       time.Duration // when the limit allows the next request
	heldIndex int           // index in Arbiter.held

	reserve reservation

	latency      *latencyGoal // nil without a goal
	latencyIndex int          // index in latencyControl.ready

	leaf             leaf    // the flow's place in the queue tree
	addedEntitlement float64 // entitlement as added to anticipation.waiting

	overdue      indexedHeap[*Stream] // readers whose deadline has passed, by deadline
	overdueIndex int                  // index in forced.overdue
	lastPacket   time.Duration        // time of the flow's last forced packet

	staged int64 // bytes staged ahead of the flow's readers
	before Mode  // mode before the current Apply

	kinds       [kinds]account
	passed      [2]passed // of the present and the last second
	resident    int64     // bytes read that needed no device I/O
	unscheduled int64     // bytes that the kernel moved for the flow outside of the schedule
	requests    int64
	forced      int64 // forced packets
	forcedBytes int64
	wouldWait   time.Duration // in observe mode: delay that enforce mode would have caused
	refused     int64         // refused operations
	waits       int64

	limitWaits   int64 // number of waits for the limit
	dropped      int64 // files deleted before they were drained
	droppedBytes int64
}

// account is the I/O of a flow's streams of one kind.
type account struct {
	opened   int64
	streamed [2]int64 // bytes that the streams have read or written, by direction
	remote   int64    // of these, bytes of streams from or to another machine
	bytes    [2]int64 // bytes that the device has moved, by direction
	service  int64    // device time in ns
}

// countStreamed adds bytes that a stream has read, written or sent.
func (f *flow) countStreamed(s *Stream, bytes int64) {
	acc := &f.kinds[s.Kind]
	if acc.streamed[direction(s.Write)] += bytes; s.Remote {
		acc.remote += bytes
	}
}

// book adds device I/O to the account of a kind.
func (f *flow) book(k Kind, write bool, bytes, service int64) {
	f.kinds[k].bytes[direction(write)] += bytes
	f.kinds[k].service += service
}

// flow returns the flow with this name, new or existing. If there are too many flows and all have
// streams, it returns the unattributed flow.
func (a *Arbiter) flow(name string, now time.Duration) *flow {
	if f := a.flows[name]; f != nil {
		return f
	}
	if len(a.all) >= a.cfg.MaxFlows-1 && name != UnattributedFlow && !a.forgetIdlest() {
		return a.flow(UnattributedFlow, now)
	}
	f := &flow{name: name, idle: now, waitAccount: waitAccount{at: now}, busy: 1, inactiveSince: now, ready: newStreamQueue(), users: newWritingUsers(), rule: a.policy(name)}
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
	if err != nil { // a bug: the scheduler has the same bound
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

// forgetIdlest makes room for a new flow. It removes the flow that has been without streams the
// longest, and reports whether there was such a flow.
func (a *Arbiter) forgetIdlest() bool {
	var idlest *flow
	for _, f := range a.all {
		if f.streams == 0 && f.inFlight == 0 && f.name != UnattributedFlow && (idlest == nil || f.idle < idlest.idle) {
			idlest = f
		}
	}
	return idlest != nil && a.forgetFlow(idlest)
}

// forgetFlow removes a flow without streams, and reports whether the flow could be removed. A flow
// with requests in flight must stay, because it pays for them even if their streams have moved to
// another flow.
func (a *Arbiter) forgetFlow(f *flow) bool {
	if f.inFlight > 0 {
		return false
	}
	a.anticipation.drop(f)
	if err := a.sched.RemoveFlow(f.id); err != nil {
		return false
	}
	a.held.remove(f)
	a.reserved.remove(f)
	a.setLatency(f, 0)
	if a.latency.run == f {
		a.latency.run = nil
	}
	a.tree.leave(f)
	delete(a.flows, f.name)
	a.byID[f.id] = nil
	a.all = without(a.all, f)
	a.active = without(a.active, f)
	a.grantQueue = without(a.grantQueue, f)
	return true
}

// without removes an item from a slice, keeping the order.
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

// activate adds a flow to the flows that ticks visit.
func (a *Arbiter) activate(f *flow, now time.Duration) {
	if f.inactiveSince == 0 {
		return
	}
	if f.used > 0 { // the average decayed while the flow was inactive
		f.busy *= math.Pow(1-averageGain, float64((now-f.inactiveSince)/tickPeriod))
	}
	f.inactiveSince = 0
	a.active = append(a.active, f)
}

// recent reports whether the flow has used the device recently.
func (f *flow) recent(now time.Duration) bool { return f.used > 0 && now-f.used < recently }

// atWork reports whether the flow has present or recent I/O.
func (f *flow) atWork(now time.Duration) bool {
	return f.ready.len() > 0 || f.inFlight > 0 || f.backlog > 0 || f.recent(now)
}

// announce reports to the scheduler whether the flow is backlogged, and the cost of its next
// request.
func (a *Arbiter) announce(f *flow, now time.Duration) {
	cost := int64(0)
	if f.ready.len() > 0 && !a.heldBack(f, now) {
		next := f.ready.peek()
		_, _, bytes := a.nextOf(next)
		cost = a.pricing.charge(next.Write, a.mostOf(bytes))
	}
	if cost == f.announced {
		a.updateLatency(f)
		return
	}
	a.settleRequests(f, now)
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
	a.updateReserved(f, now)
	a.updateLatency(f)
}

// readyTimeAt returns the total time for which the flow was backlogged.
func (f *flow) readyTimeAt(now time.Duration) time.Duration {
	if f.readySince == 0 {
		return f.readyTime
	}
	return f.readyTime + now - f.readySince
}
