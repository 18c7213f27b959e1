package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Load is a stream of requests of one kind, with a number of them in flight.
type Load struct {
	Write       bool  `json:"write"`
	Sequential  bool  `json:"sequential"`
	Bytes       int64 `json:"bytes"`
	Concurrency int   `json:"concurrency"`
}

func (l Load) String() string {
	order, direction := "random", "reads"
	if l.Sequential {
		order = "sequential"
	}
	if l.Write {
		direction = "writes"
	}
	return fmt.Sprintf("%s %s of %d KiB, %d at a time", order, direction, l.Bytes>>10, l.Concurrency)
}

// Point is the result of one load.
type Point struct {
	Load
	BytesPerSecond float64       `json:"bytes_per_second"`
	Latency        time.Duration `json:"latency_ns"` // mean
	Requests       int           `json:"requests"`
	Saturated      bool          `json:"saturated"` // more requests in flight hardly increase the throughput
}

// took returns the device's time per request when it is saturated.
func (p Point) took() float64 { return float64(p.Bytes) / p.BytesPerSecond * 1e9 }

const (
	requestsMin = 3 // requests that count, at least; and at least two for each worker
	patience    = 6 // the load ends after this many times its length, even with fewer requests
)

// runner performs one load. Its fields are guarded by mu while workers run.
type runner struct {
	target target
	load   Load
	random *rand.Rand

	mu       sync.Mutex
	next     int64
	inFlight map[int64]bool
	finished int
	first    time.Time // when as many requests had finished as there are workers
	last     time.Time
	latency  time.Duration
	counted  int
	bytes    int64 // total of all requests
	stopped  bool
	err      error
}

// run keeps up the load for about length and returns its result. The throughput is counted from the
// time at which as many requests have ended as there are workers, to the end of the last request.
// Requests end at the same rate as before while the last ones in flight end, so this does not lower
// the throughput.
func (r *runner) run(ctx context.Context, length time.Duration) (Point, error) {
	r.inFlight = map[int64]bool{}
	slots := r.target.size() / r.load.Bytes
	if slots <= int64(2*r.load.Concurrency) {
		return Point{}, fmt.Errorf("%s: there is space for only %d requests; allow more with --space", r.load, slots)
	}
	r.next = r.random.Int64N(slots)
	began := time.Now()
	done := func(now time.Time) bool {
		if now.Sub(began) < length {
			return false
		}
		return r.counted >= max(requestsMin, 2*r.load.Concurrency) || r.counted > 0 && now.Sub(began) > patience*length
	}
	var workers sync.WaitGroup
	for w := range r.load.Concurrency {
		workers.Go(func() { r.work(ctx, w, slots, done) })
	}
	workers.Wait()
	if r.err != nil {
		return Point{}, fmt.Errorf("%s: %w", r.load, r.err)
	}
	if err := ctx.Err(); err != nil {
		return Point{}, err
	}
	p := Point{Load: r.load, Requests: r.counted}
	if r.counted == 0 || !r.last.After(r.first) {
		return p, fmt.Errorf("%s: the requests took no time: this is not a disk", r.load)
	}
	p.BytesPerSecond = float64(int64(r.counted)*r.load.Bytes) / r.last.Sub(r.first).Seconds()
	p.Latency = r.latency / time.Duration(r.counted)
	return p, nil
}

func (r *runner) work(ctx context.Context, worker int, slots int64, done func(time.Time) bool) {
	for {
		off, ok := r.take(slots)
		if !ok || ctx.Err() != nil {
			return
		}
		err := r.target.prepare(r.load.Write, off, r.load.Bytes)
		begin := time.Now()
		if err == nil {
			err = r.target.do(worker, r.load.Write, off, r.load.Bytes)
		}
		now := time.Now()
		r.mu.Lock()
		r.bytes += r.load.Bytes
		r.finished++
		switch {
		case err != nil:
			r.err, r.stopped = err, true
		case r.finished == r.load.Concurrency:
			r.first = now
		case r.finished > r.load.Concurrency:
			r.counted++
			r.latency += now.Sub(begin)
			r.last = now
		}
		r.stopped = r.stopped || done(now)
		r.mu.Unlock()
		// Forget the range before the place is free again.
		err = r.target.forget(off, r.load.Bytes)
		r.mu.Lock()
		delete(r.inFlight, off)
		if err != nil && r.err == nil {
			r.err, r.stopped = err, true
		}
		r.mu.Unlock()
	}
}

// take returns the place of the next request, where no other request is in flight.
func (r *runner) take(slots int64) (off int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return 0, false
	}
	for {
		slot := r.next % slots
		if r.load.Sequential {
			r.next++
		} else {
			r.next = r.random.Int64N(slots)
		}
		if off = slot * r.load.Bytes; !r.inFlight[off] {
			r.inFlight[off] = true
			return off, true
		}
	}
}
