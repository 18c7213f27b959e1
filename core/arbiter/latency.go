package arbiter

import (
	"math"
	"time"

	"penstock/core/sfq"
)

// Latency goals. A flow with a goal makes small reads, and the 99th percentile of their times must be at most the
// goal. Requests at the device cannot be called back. So before such a read comes, little may be in flight: while the
// flow is active, every request is cut into slices, and fewer requests are in flight.
//
//   - By the cost model, all that is in flight and the flow's own read take at most the goal times a factor: this is the
//     budget. A slice that begins elsewhere is shorter, or waits, because it costs a seek.
//   - D is the largest for which D slices without seeks fill the budget and are not short. It is 2 rather than 1, even if
//     slices become short: with one request in flight, the device idles between its end and the next start.
//   - The factor follows the measured reads: it decreases by a quarter while more than 1 % of them are late, and
//     increases by a tenth while 99 % take at most three quarters of the goal.
//   - After a slice, the device continues with the same flow until it has had a whole quantum, unless a small read with a
//     goal waits. Otherwise each slice would cost a seek. Then the device continues with this flow until the next small read, after
//     which the device seeks in any case, or until the flow has had D quanta, as many as may be in flight without the goal.
//   - A small read with a goal goes before the other flows, as long as such reads take at most the flow's share of the
//     device's time. They are charged to the start tag, so the flow has no more than its share.
//
// This is not in IBIS, whose depth follows the latency of all requests.

const (
	smallRead       = 128 << 10              // bytes of a stream that counts as a small read, at most
	leastSlice      = 128 << 10              // slices are not shorter
	goodSlice       = 512 << 10              // while slices would be shorter, the depth decreases to 2
	longRun         = 4                      // quanta of one flow in a row, at most
	goalActive      = 5 * time.Second        // a flow is active until this time after a small read
	goalWindow      = 10 * time.Second       // of the controller, and a sixth of the reported time
	firstFactor     = 0.85                   // of the goal, that the model may use at first
	leastFactor     = 0.1                    // see latencyGoal.factor
	mostFactor      = 1.5                    // the model may be too high by a half
	priorityCredit  = 250 * time.Millisecond // device time that reads with a goal save up
	latencyBuckets  = 96
	bucketsOfOctave = 4
	firstBucket     = 100 * time.Microsecond
)

// latencies counts the small reads of a time by how long they took.
type latencies struct {
	counts [latencyBuckets]uint32
	reads  uint32
	late   uint32 // longer than the goal
}

// latencyGoal is the state of a flow's goal.
type latencyGoal struct {
	goal    time.Duration
	used    time.Duration // time of the last small read; 0 if there was none
	windows [6]latencies  // of goalWindow each
	current int
	turned  time.Duration // when the current window began
	factor  float64       // part of the goal that the model may use
	reads   int           // since the last change of factor
	late    int           // of these, longer than the goal
	near    int           // of these, longer than three quarters of the goal
	judged  time.Duration // when factor was last judged
	due     time.Duration // of the next small read: its key in latencyControl.ready
	credit  time.Duration // device time that reads may use before other flows
	share   float64       // of the device's time, by weight
	least   time.Duration // the model's time of a read beside the shortest slices
}

// latencyControl is what goals have put into force.
type latencyControl struct {
	flows       int   // flows with a goal
	slice       int64 // most bytes of a request; 0 if no goal is active
	depth       int
	budget      time.Duration      // device time of the requests in flight, at most
	since       time.Duration      // when a goal became active
	ready       indexedHeap[*flow] // flows with a small read that may go first
	run         *flow              // the flow of the last slice
	left        int64              // bytes that it may still have in a row
	extra       int64              // of these, bytes beyond a quantum: a small read ends the run
	owed        bool               // its quantum began as a reserved request
	interrupted bool               // a small read went first, and the interrupted flow has not continued since
	file        File               // of the last request that started
	end         int64              // of that request, in bytes
}

// active reports whether the goal is in force now.
func (g *latencyGoal) active(now time.Duration) bool {
	return g != nil && g.used > 0 && now-g.used <= goalActive
}

// setLatency sets the goal of a flow.
func (a *Arbiter) setLatency(f *flow, goal time.Duration) {
	switch {
	case goal <= 0 || a.cfg.Network:
		if f.latency != nil {
			a.latency.flows--
			a.latency.ready.remove(f)
			f.latency = nil
		}
	case f.latency == nil:
		a.latency.flows++
		f.latency = &latencyGoal{goal: goal, factor: firstFactor, credit: priorityCredit}
	case f.latency.goal != goal:
		*f.latency = latencyGoal{goal: goal, used: f.latency.used, factor: firstFactor, credit: f.latency.credit, share: f.latency.share, due: f.latency.due}
	}
}

// small reports whether the stream is a small read.
func (s *Stream) small() bool {
	return !s.Write && s.Kind != Network && s.To > s.From && s.To-s.From <= smallRead
}

// beginSmallRead notes a small read that needs the device.
func (a *Arbiter) beginSmallRead(s *Stream, now time.Duration) {
	if !s.small() || s.done >= s.To {
		return
	}
	f := s.flow
	s.smallSince, s.smallFirst = max(now, 1), f.latencyIndex > 0 && (f.limit == nil || f.ready.len() == 1)
	if g := f.latency; g != nil && !s.Asked {
		g.used = now
	}
}

// endSmallRead records the time of a small read whose bytes are all in the page cache, or whose client gave up after the goal.
func (a *Arbiter) endSmallRead(s *Stream, now time.Duration) {
	if s.smallSince == 0 || s.done < s.To && !s.closed {
		return
	}
	g, took := s.flow.latency, now-s.smallSince
	began := s.smallSince
	s.smallSince = 0
	if g == nil || s.Asked || s.closed && s.done < s.To && (s.waiting == 0 || took <= g.goal) {
		return // it did not need the rest
	}
	g.used = now
	g.turn(now)
	w := &g.windows[g.current]
	w.reads++
	w.counts[latencyBucket(took)]++
	if took > g.goal {
		w.late++
	}
	if s.smallFirst && a.latency.slice > 0 && began >= a.latency.since+tickPeriod { // earlier reads found whole quanta before them
		g.reads++
		if took > g.goal {
			g.late++
		}
		if took > g.goal-g.goal/4 {
			g.near++
		}
	}
}

// turn begins further windows as time passes.
func (g *latencyGoal) turn(now time.Duration) {
	if now-g.turned >= time.Duration(len(g.windows))*goalWindow {
		g.windows, g.turned = [len(g.windows)]latencies{}, now
	}
	for now-g.turned >= goalWindow {
		g.current = (g.current + 1) % len(g.windows)
		g.windows[g.current] = latencies{}
		g.turned += goalWindow
	}
}

func latencyBucket(d time.Duration) int {
	if d <= firstBucket {
		return 0
	}
	return min(latencyBuckets-1, int(math.Ceil(bucketsOfOctave*math.Log2(float64(d)/float64(firstBucket)))))
}

// measured returns the 99th percentile of the small reads of the last minute, rounded up by at most a fifth, and how many
// there were and how many were within the goal.
func (g *latencyGoal) measured() (p99 time.Duration, reads, attained int) {
	late := 0
	for i := range g.windows {
		reads += int(g.windows[i].reads)
		late += int(g.windows[i].late)
	}
	above := reads / 100
	for b := latencyBuckets - 1; b >= 0 && reads > 0; b-- {
		n := 0
		for i := range g.windows {
			n += int(g.windows[i].counts[b])
		}
		if above -= n; above < 0 {
			return time.Duration(float64(firstBucket) * math.Exp2(float64(b)/bucketsOfOctave)), reads, reads - late
		}
	}
	return 0, reads, reads - late
}

// judge moves the factor.
func (g *latencyGoal) judge(now time.Duration) {
	switch {
	case g.late >= 2 && g.late*100 > g.reads:
		g.factor = max(leastFactor, g.factor*3/4)
	case g.reads >= 100 || now-g.judged >= goalWindow && g.reads >= 10:
		if g.near*100 <= g.reads {
			g.factor = min(mostFactor, g.factor*1.1)
		}
	case now-g.judged < goalWindow || g.reads < 10: // few reads count together with later ones
		return
	}
	g.reads, g.late, g.near, g.judged = 0, 0, 0, now
}

// measureLatency puts the strictest active goal into force. It runs at every tick.
func (a *Arbiter) measureLatency(now time.Duration) {
	k := &a.latency
	if k.flows == 0 {
		k.slice, k.depth, k.run, k.left = 0, 0, nil, 0
		return
	}
	total := 0.0
	for _, f := range a.active {
		if f.atWork(now) {
			total += f.leaf.entitled
		}
	}
	was := k.slice
	k.slice, k.depth, k.budget = 0, 0, 0
	for _, f := range a.all {
		g := f.latency
		if g == nil {
			continue
		}
		g.turn(now)
		if g.share = 1; total > f.leaf.entitled {
			g.share = f.leaf.entitled / total
		}
		if !f.reserve.rule.Strict { // strict rates leave only the rest, of which other flows need a part
			g.share *= 1 - a.strict.part
		}
		g.credit = min(priorityCredit, g.credit+time.Duration(g.share*float64(tickPeriod)))
		a.updateLatency(f)
		if !g.active(now) || a.modeOf(f) != Enforce {
			continue
		}
		g.judge(now)
		if budget, slice, d := a.sliceFor(g); k.slice == 0 || budget < k.budget {
			k.budget, k.slice, k.depth = budget, slice, d
		}
	}
	switch {
	case k.slice == 0:
		k.run, k.left = nil, 0
	case was == 0:
		k.since = now
	}
}

// sliceFor returns the device time that requests in flight may take for a goal, and the largest slice and depth within it.
func (a *Arbiter) sliceFor(g *latencyGoal) (budget time.Duration, slice int64, d int) {
	quantum := a.cfg.Quantum
	least := min(leastSlice, quantum)
	own := a.sliceTime(smallRead/2, false)
	g.least = a.sliceTime(least, false) + own
	budget = time.Duration(float64(g.goal)*g.factor) - own
	for d = max(1, a.depth); d > 1; d-- {
		slice = a.sliceIn(budget/time.Duration(d), true)
		if slice >= min(quantum, goodSlice) || d == 2 && slice >= least {
			return budget, slice, d
		}
	}
	return budget, max(least, a.sliceIn(budget, true)), 1
}

// sliceTime returns the device time of a request, in the slower direction. goesOn is set if the request needs no seek.
func (a *Arbiter) sliceTime(bytes int64, goesOn bool) time.Duration {
	p := &a.pricing
	t := max(p.served(false, goesOn, bytes), p.served(true, goesOn, bytes))
	if !goesOn {
		t = max(t, a.seekTime()+p.served(false, true, bytes))
	}
	return t
}

// sliceIn returns the bytes of the largest request, at most a quantum, that takes at most this device time. It may be 0.
func (a *Arbiter) sliceIn(room time.Duration, goesOn bool) int64 {
	quantum := a.cfg.Quantum
	whole, shortest := a.sliceTime(quantum, goesOn), a.sliceTime(minQuantum, goesOn)
	switch {
	case room >= whole:
		return quantum
	case room < shortest || whole <= shortest:
		return 0
	}
	bytes := minQuantum + int64(float64(quantum-minQuantum)*float64(room-shortest)/float64(whole-shortest))
	return bytes / minQuantum * minQuantum
}

// nextSlice returns the most bytes of the next request, or 0 if none may start, because with it all that is in flight would
// take longer than the budget.
func (a *Arbiter) nextSlice(now time.Duration) int64 {
	k := &a.latency
	if k.slice == 0 {
		return a.cfg.Quantum
	}
	room := k.budget
	for _, r := range a.running {
		room -= r.expected
	}
	goesOn := false
	if k.run != nil && k.left > 0 && k.run.announced > 0 && (a.owesSlice() || !a.reservedDue(now)) {
		last := k.run.ready.last
		goesOn = last != nil && last.queued.index > 0 && last.Opening.File == k.file && last.next == k.end
	}
	slice := min(k.slice, a.sliceIn(room, goesOn))
	if least := min(leastSlice, a.cfg.Quantum); slice < least {
		if len(a.running) > 0 {
			return 0
		}
		return least
	}
	return slice
}

// seekTime returns the guessed time of a seek without a profile.
func (a *Arbiter) seekTime() time.Duration {
	if a.pricing.guessed {
		return a.cfg.Seek
	}
	return 0
}

// updateLatency adds a flow to those whose small read may go first, or removes it.
func (a *Arbiter) updateLatency(f *flow) {
	if g := f.latency; g == nil {
		return
	} else if f.announced == 0 || g.credit <= 0 || a.modeOf(f) != Enforce || !f.ready.peek().small() || f.ready.peek().Asked {
		a.latency.ready.remove(f)
	} else {
		g.due = f.ready.peek().moved + g.goal
		a.latency.ready.set(f)
	}
}

// latencyDue reports whether a small read goes first.
func (a *Arbiter) latencyDue() bool { return a.latency.ready.len() > 0 }

// owesSlice reports whether the next slice of a reserved quantum comes before the reserved requests of other flows. Otherwise the
// slices of several flows with guaranteed rates would alternate, each with a seek.
func (a *Arbiter) owesSlice() bool {
	k := &a.latency
	return k.run != nil && k.owed && k.left > 0 && k.run.announced > 0 && !a.latencyDue()
}

// nextByLatency dispatches a small read with a goal, or the next slice of a quantum. ok is false if there is neither.
// first is set for a small read, and reserved for the next slice of a quantum that the flow's guaranteed rate pays for.
func (a *Arbiter) nextByLatency() (t sfq.Ticket, first, reserved, ok bool) {
	k := &a.latency
	f := k.run
	switch {
	case k.ready.len() > 0:
		f, first = k.ready.first(), true
	case f == nil || k.left <= 0 || f.announced == 0:
		return t, false, false, false
	}
	t, err := a.sched.Force(f.id, f.announced)
	if err != nil {
		a.fault("latency goal", err)
		k.ready.remove(f)
		k.run = nil
		return t, false, false, false
	}
	return t, first, !first && k.owed, true
}

// mostOf returns the most bytes of a request.
func (a *Arbiter) mostOf(bytes int64) int64 {
	if a.latency.slice > 0 {
		return min(bytes, a.latency.slice)
	}
	return bytes
}

// noteSlice records a request that starts. next is set for the next slice of a quantum and for a small read that goes first, small for
// every small read, and reserved for a request of a guaranteed rate.
func (a *Arbiter) noteSlice(r *Request, next, small, reserved bool) {
	k := &a.latency
	switch {
	case k.slice == 0:
		return
	case next && k.run == r.flow: // also a small read: otherwise a flow of small reads would never use up its quantum
		k.left -= r.Length
	case small:
	default:
		quantum := a.quantum(r.flow)
		if k.run, k.extra, k.owed = r.flow, 0, reserved; !reserved {
			k.extra = int64(min(max(1, a.depth), longRun)-1) * quantum
		}
		k.left = quantum + k.extra - r.Length
	}
	if small && k.left <= k.extra {
		k.left = 0
	}
}

// expect records the device time that a request which starts is expected to take.
func (a *Arbiter) expect(r *Request) {
	k := &a.latency
	if k.flows == 0 {
		return
	}
	goesOn := k.file == r.File() && k.end == r.Offset
	r.expected = a.pricing.served(r.Write, goesOn, r.Length)
	if !goesOn {
		r.expected += a.seekTime()
	}
	k.file, k.end = r.File(), r.Offset+r.Length
}

// LatencySnapshot is the state of a flow's latency goal.
type LatencySnapshot struct {
	Goal     time.Duration // 0 if there is none
	P99      time.Duration // of the small reads of the last minute that needed the device; 0 if there was none
	Reads    int           // of the last minute
	Attained float64       // part of them that took at most the goal; 1 if there was none
	Active   bool          // whether the goal is in force
	Slice    int64         // most bytes of a request now; 0 if no goal is in force
	Depth    int           // bound of the requests in flight; 0 if no goal is in force
	Least    time.Duration // the model's time of a read beside the shortest slices: a lower goal cannot be kept
}

func (a *Arbiter) latencySnapshot(f *flow, now time.Duration) (s LatencySnapshot) {
	g := f.latency
	if g == nil {
		return s
	}
	g.turn(now)
	a.sliceFor(g) // for least
	s = LatencySnapshot{Goal: g.goal, Active: g.active(now) && a.modeOf(f) == Enforce, Slice: a.latency.slice, Depth: a.latency.depth, Least: g.least, Attained: 1}
	attained := 0
	if s.P99, s.Reads, attained = g.measured(); s.Reads > 0 {
		s.Attained = float64(attained) / float64(s.Reads)
	}
	return s
}
