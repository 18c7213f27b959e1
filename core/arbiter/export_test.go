package arbiter

import (
	"fmt"
	"math"
)

// Check compares derived state with its sources, for tests. It returns the first difference, or ""
// if there is none.
func (a *Arbiter) Check() string {
	var staged, backlog, writing int64
	ready, kept, flying, waiting := 0, 0, 0, 0.0
	for i, r := range a.running {
		if r.index != i+1 {
			return fmt.Sprintf("running request %d has the index %d", i+1, r.index)
		}
	}
	standing, aheads := map[*flow]int{}, map[*flow]int64{}
	for i, s := range a.streams {
		if s.index != i+1 || s.released {
			return fmt.Sprintf("stream %d has the index %d, released: %v", i+1, s.index, s.released)
		}
		staged += s.ahead
		flying += s.inFlight
		if s.deadline > 0 && s.waiting == 0 && s.probe == 0 && (s.Write || s.Kind == Network || s.mark == Open || s.done-s.pos >= packetBytes) {
			return "a stream that does not wait has a deadline"
		}
		if s.deadline > 0 && s.overdueIndex == 0 && (s.forcedIndex == 0 || s.checkAt > s.deadline) {
			return "a stream with a deadline is in no queue of deadlines, or checked too late"
		}
		if s.waiting > 0 {
			standing[s.flow]++
		}
		aheads[s.flow] += s.ahead
		if _, _, bytes := a.nextOf(s); bytes > 0 != (s.queued.index > 0) {
			return fmt.Sprintf("a stream of %s wants %d bytes and has the queue index %d", s.flow.name, bytes, s.queued.index)
		}
		if s.next < s.From || !s.Write && s.done > s.next && s.done != s.To || s.drains() && s.next > s.pos {
			return fmt.Sprintf("a stream of %s has from %d, done %d, next %d, pos %d, to %d", s.flow.name, s.From, s.done, s.next, s.pos, s.To)
		}
	}
	stagers := int64(0)
	for _, f := range a.all {
		if f.staged > 0 {
			stagers++
		}
	}
	if stagers != a.stagedFlows {
		return fmt.Sprintf("%d flows have staged bytes, the counter is %d", stagers, a.stagedFlows)
	}
	if staged != a.staged {
		return fmt.Sprintf("the staged counter is %d, the streams have %d", a.staged, staged)
	}
	for _, f := range a.all {
		if f.stalled != standing[f] || f.staged != aheads[f] {
			return fmt.Sprintf("%s: %d streams are stalled and %d bytes are staged, the counters are %d and %d", f.name, standing[f], aheads[f], f.stalled, f.staged)
		}
		if (f.overdue.len() > 0) != (f.overdueIndex > 0) || !sound(&f.overdue) {
			return f.name + ": the readers past their deadlines are out of order"
		}
		if f.announced > 0 {
			ready++
			waiting += f.addedEntitlement
		}
		if promised := f.reserve.clock != nil && f.announced > 0 && a.modeOf(f) == Enforce && f.reserve.enforced() > 0; promised != (f.reserve.pendingIndex > 0) != (f.reserve.dueIndex > 0) || (f.reserve.dueIndex > 0) != (f.reserve.deadlineIndex > 0) {
			return fmt.Sprintf("%s has the indexes %d, %d and %d among the reservations, want one: %v", f.name, f.reserve.pendingIndex, f.reserve.dueIndex, f.reserve.deadlineIndex, promised)
		}
		if v := &f.reserve; v.pendingIndex+v.dueIndex > 0 && v.clock.PaidUntil(0) > v.due {
			return fmt.Sprintf("%s has the reservation tag %v, its account %v", f.name, v.due, v.clock.PaidUntil(0))
		}
		if f.ready.len() == 0 && f.announced > 0 || f.ready.len() > 0 && f.announced == 0 && f.heldIndex == 0 {
			return fmt.Sprintf("%s has %d queued streams and the announced cost %d", f.name, f.ready.len(), f.announced)
		}
		if f.backlog < 0 || f.deferred < 0 || f.deferred > f.backlog || f.writing < 0 || f.writing > f.writers || f.kept < 0 || f.kept > f.writers || f.inFlight < 0 || f.draining < 0 {
			return fmt.Sprintf("%s has backlog %d, lazy %d, %d writers, %d open, %d kept, %d in flight, %d drain", f.name, f.backlog, f.deferred, f.writers, f.writing, f.kept, f.inFlight, f.draining)
		}
		backlog += f.backlog
		kept += f.kept
		if f.writers > 0 {
			writing++
		}
		if (f.announced > 0 || f.inFlight > 0 || f.backlog > 0) && f.inactiveSince > 0 {
			return f.name + " is inactive but has work to do"
		}
		for _, p := range []*indexedHeap[*Stream]{&f.tails, &f.deferredQueue} {
			if !sound(p) {
				return f.name + ": a heap of writers is out of order"
			}
		}
		if broken := f.users.broken(a, f); broken != "" {
			return f.name + ": " + broken
		}
		for d := range f.ready.dirs {
			lane := &f.ready.dirs[d]
			n := 0
			if !sound(&lane.users) {
				return f.name + ": users are out of order"
			}
			for _, u := range lane.users.items {
				n += u.streams.len()
				if !sound(&u.streams) || u.streams.len() == 0 {
					return f.name + ": the streams of " + u.name + " are out of order"
				}
			}
			departed := map[*userQueue]bool{}
			for _, u := range lane.departed {
				if departed[u] || lane.byName[u.name] != u {
					return f.name + ": departed user " + u.name + " is remembered twice, or is unknown"
				}
				departed[u] = true
			}
			if n != lane.n {
				return fmt.Sprintf("%s: %d streams are queued in a direction, the counter is %d", f.name, n, lane.n)
			}
		}
	}
	if !sound(&a.reserved.pending) || !sound(&a.reserved.due) || !sound(&a.reserved.deadlines) {
		return "the reservations are out of order"
	}
	if ready != a.anticipation.ready || math.Abs(waiting-a.anticipation.waiting) > 1e-6*(1+waiting) {
		return fmt.Sprintf("%d flows with entitlement %g are ready, the counters are %d and %g", ready, waiting, a.anticipation.ready, a.anticipation.waiting)
	}
	if backlog != a.backlog.all || kept != a.backlog.kept || writing != a.backlog.writing {
		return fmt.Sprintf("backlog %d, %d kept, %d write; the counters are %d, %d, %d", backlog, kept, writing, a.backlog.all, a.backlog.kept, a.backlog.writing)
	}
	if !sound(&a.forced.waiting) || !sound(&a.forced.overdue) || !sound(&a.held) || !sound(&a.latency.ready) || !sound(&a.roomQueue) {
		return "deadlines or limits are out of order"
	}
	return ""
}

// WaitsFor returns the flow that the device idles for, or "" if there is none.
func (a *Arbiter) WaitsFor() string {
	if f := a.anticipation.flow; f != nil {
		return f.name
	}
	return ""
}

// Shorts returns the number of streams that wait for room to stage.
func (a *Arbiter) Shorts() int { return a.roomQueue.len() }

// sound reports whether a heap is ordered and its items have the right indexes.
func sound[T any](p *indexedHeap[T]) bool {
	for i, x := range p.items {
		if *p.index(x) != i+1 || i > 0 && p.less(x, p.items[(i-1)/2]) {
			return false
		}
	}
	return true
}

// Describe formats the state of a stream.
func Describe(s *Stream) string {
	return fmt.Sprintf("pos %d done %d next %d mark %d sent %d closed %v gone %v in %s of mode %v, pending %d, meta %v", s.pos, s.done, s.next, s.mark, s.sent, s.closed, s.deleted, s.flow.name, s.flow.rule.Mode, len(s.pending), s.meta)
}

// NeverAwait makes the device wait for no overtaken read, for comparisons.
func (a *Arbiter) NeverAwait() { a.overtaking.rest = 1 << 62 }

// broken describes an account of the flow's writing users that does not match the streams; "" if all do.
func (w *writingUsers) broken(a *Arbiter, f *flow) string {
	parked, users := 0, map[string]*writingUser{}
	for _, s := range a.streams {
		if s.flow != f || !s.drains() {
			continue
		}
		u := users[s.User]
		if u == nil {
			u = &writingUser{}
			users[s.User] = u
		}
		u.writers++
		if !s.deferred() {
			u.backlog += s.undrained()
		}
		if s.writer != w.byName[s.User] || s.parkedIndex > 0 && s.closed {
			return "a writer has another user, or is closed and parked"
		}
		parked += min(1, s.parkedIndex)
	}
	waiting := 0
	for name, u := range w.byName {
		if is := users[name]; is == nil || is.writers != u.writers || is.backlog != u.backlog {
			return fmt.Sprintf("user %q: %d writers, backlog %d; by its streams %+v", name, u.writers, u.backlog, is)
		}
		if !sound(&u.parked) || (u.parked.len() > 0) != (u.index > 0) {
			return fmt.Sprintf("user %q: parked writers are out of order", name)
		}
		waiting += u.parked.len()
	}
	if len(users) != len(w.byName) || parked != w.parked || waiting != w.parked || !sound(&w.turns) {
		return fmt.Sprintf("%d users of %d, %d writers parked, %d in heaps, the counter is %d", len(w.byName), len(users), parked, waiting, w.parked)
	}
	return ""
}
