package sim

import "time"

// Engine is a virtual clock and what is to happen on it, in order of time and, at one
// time, of being asked for: so a run depends on nothing but its input.
type Engine struct {
	now    time.Duration
	seq    uint64
	events []event // a heap with four children a node
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// Now is the time since the beginning.
func (e *Engine) Now() time.Duration { return e.now }

// At has something done at a time, now at the earliest.
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

// After has something done some time from now.
func (e *Engine) After(d time.Duration, do func()) { e.At(e.now+d, do) }

// Run does what is due up to and including a time, and stands there then.
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
