package arbiter_test

import (
	"cmp"
	"slices"
	"time"

	"penstock/core/arbiter"
	"penstock/core/cost"
)

// server serves requests in virtual time. next returns when the next request ends, or noEnd. take returns a request that
// has ended by now, or nil.
type server interface {
	start(now time.Duration, r *arbiter.Request)
	next() time.Duration
	take(now time.Duration) *arbiter.Request
}

const noEnd = time.Duration(1) << 62

// serve gives the arbiter's requests to the server until the time total. The processes take all bytes at once.
func serve(a *arbiter.Arbiter, d server, total time.Duration, ended func(now time.Duration, r arbiter.Request)) {
	for now := time.Duration(1); now < total; {
		actions, again := a.Decide(now)
		for _, x := range actions {
			if x.Kind == arbiter.Start {
				d.start(now, x.Request)
			}
		}
		now = max(now+1, min(again, d.next()))
		for r := d.take(now); r != nil; r = d.take(now) {
			was := *r // the arbiter uses r again
			end(a, now, r)
			a.Progress(now, was.Stream, was.Offset+was.Length)
			ended(now, was)
		}
	}
}

// beside is a server that works on all requests at the same time. The function ends returns when a request ends.
type beside struct {
	ends   func(now time.Duration, r *arbiter.Request) time.Duration
	flying []flight // by their ends
}

type flight struct {
	r    *arbiter.Request
	ends time.Duration
}

func (b *beside) start(now time.Duration, r *arbiter.Request) {
	f := flight{r, b.ends(now, r)}
	i, _ := slices.BinarySearchFunc(b.flying, f, func(x, y flight) int { return cmp.Compare(x.ends, y.ends) })
	b.flying = slices.Insert(b.flying, i, f)
}

func (b *beside) next() time.Duration {
	if len(b.flying) == 0 {
		return noEnd
	}
	return b.flying[0].ends
}

func (b *beside) take(now time.Duration) *arbiter.Request {
	if b.next() > now {
		return nil
	}
	r := b.flying[0].r
	b.flying = b.flying[1:]
	return r
}

// elevator is a hard disk behind mq-deadline. It serves one read at a time, by ascending position. After 16 reads, or if
// no read is above the head, a read that has waited for 500 ms goes first.
type elevator struct {
	lines   cost.Coefficients
	place   map[*arbiter.Stream]int64 // where the streams' files begin
	queue   []queued
	serving *arbiter.Request
	until   time.Duration
	head    int64
	batch   int
}

type queued struct {
	r     *arbiter.Request
	at    int64
	since time.Duration
}

func (e *elevator) start(now time.Duration, r *arbiter.Request) {
	e.queue = append(e.queue, queued{r, e.place[r.Stream] + r.Offset, now})
	e.serve(now)
}

func (e *elevator) serve(now time.Duration) {
	if e.serving != nil || len(e.queue) == 0 {
		return
	}
	oldest, up := 0, -1
	for i, q := range e.queue {
		if q.since < e.queue[oldest].since {
			oldest = i
		}
		if q.at >= e.head && (up < 0 || q.at < e.queue[up].at) {
			up = i
		}
	}
	next := up
	if up < 0 || e.batch >= 16 {
		if e.batch = 0; up < 0 || now-e.queue[oldest].since >= 500*time.Millisecond {
			next = oldest
		}
	}
	q := e.queue[next]
	e.queue = slices.Delete(e.queue, next, next+1)
	line := e.lines.Random
	if q.at == e.head {
		line = e.lines.Sequential
	}
	e.serving, e.until, e.head = q.r, now+line.Of(q.r.Length), q.at+q.r.Length
	e.batch++
}

func (e *elevator) next() time.Duration {
	if e.serving == nil {
		return noEnd
	}
	return e.until
}

func (e *elevator) take(now time.Duration) *arbiter.Request {
	if e.next() > now {
		return nil
	}
	r := e.serving
	e.serving = nil
	e.serve(e.until)
	return r
}
