package sim

import "time"

// Engine is a virtual clock with a queue of events. Events run in order of their time; events with
// the same time run in the order in which they were added. So a run depends only on its input.
type Engine struct {
	now    time.Duration
	seq    uint64
	events []event // a heap with four children per node
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// Now returns the time since the beginning.
func (e *Engine) Now() time.Duration { return e.now }

// At schedules a call at a time, or at the current time if that is later.
func (e *Engine) At(at time.Duration, do func()) {
	ev := event{max(at, e.now), e.seq, do}
	e.seq++
	e.events = append(e.events, ev)
	i := len(e.events) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !ev.before(&e.events[parent]) {
			break
		}
		e.events[i] = e.events[parent]
		i = parent
	}
	e.events[i] = ev
}

// After schedules a call after a duration.
func (e *Engine) After(d time.Duration, do func()) { e.At(e.now+d, do) }

// Run makes all calls that are due up to and including until, and sets the clock to until.
func (e *Engine) Run(until time.Duration) {
	for len(e.events) > 0 && e.events[0].at <= until {
		ev := e.pop()
		e.now = ev.at
		ev.do()
	}
	e.now = max(e.now, until)
}

func (e *Engine) pop() event {
	first := e.events[0]
	last := e.events[len(e.events)-1]
	e.events[len(e.events)-1] = event{}
	e.events = e.events[:len(e.events)-1]
	n := len(e.events)
	i := 0
	for n > 0 {
		child := 4*i + 1
		if child >= n {
			break
		}
		for c := child + 1; c < min(4*i+5, n); c++ {
			if e.events[c].before(&e.events[child]) {
				child = c
			}
		}
		if !e.events[child].before(&last) {
			break
		}
		e.events[i] = e.events[child]
		i = child
	}
	if n > 0 {
		e.events[i] = last
	}
	return first
}
