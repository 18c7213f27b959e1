package coordination

import (
	"math/rand/v2"
	"time"
)

const (
	// retryLeast and retryMost bound the wait between attempts to get a stream from a broker that
	// is there, but does not take the node; with several brokers it is a period at most.
	retryLeast = 100 * time.Millisecond
	retryMost  = 3 * time.Second
)

// Retry is a node's waits between attempts to get a stream. A broker that is not there gives an
// attempt no work, so it is asked twice a period: it is to know of everybody within two periods
// of its start. One that is there and turns nodes away has too much to do, and is asked ever more seldom.
type Retry struct {
	Period time.Duration // between reports
	Most   time.Duration // between attempts; 0: retryMost
	Rand   *rand.Rand    // of the waits, for who repeats a run by its seed; nil: the process's own

	next time.Duration
}

// Reset: there was a stream for a while.
func (r *Retry) Reset() { r.next = 0 }

// After returns how long to wait after an attempt that failed, and whether the broker's machine had
// taken the connection in it. Waits differ by up to half, so that not all nodes come at once.
func (r *Retry) After(reached bool) time.Duration {
	most := r.Most
	if most == 0 {
		most = retryMost
	}
	wait := max(r.Period/2, retryLeast)
	if reached {
		wait = max(r.next, retryLeast)
		r.next = min(2*wait, most)
	}
	wait = min(wait, most)
	if r.Rand != nil {
		return wait/2 + time.Duration(r.Rand.Int64N(int64(wait)))
	}
	return wait/2 + rand.N(wait)
}
