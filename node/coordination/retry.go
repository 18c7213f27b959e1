package coordination

import (
	"math/rand/v2"
	"time"
)

const (
	// retryLeast and retryMost limit the wait between attempts to get a stream from a broker that
	// is reachable but does not accept the node. With several brokers the maximum is one period.
	retryLeast = 100 * time.Millisecond
	retryMost  = 3 * time.Second
)

// Retry computes a node's waits between attempts to get a stream. An attempt causes an
// unreachable broker no work, so the node tries twice per period: within two periods of its
// start, a broker should hear from all nodes. A reachable broker that refuses nodes is
// overloaded, and the waits grow.
type Retry struct {
	Period time.Duration // between reports
	Most   time.Duration // the longest wait; 0: retryMost
	Rand   *rand.Rand    // random source, for runs that are repeated with their seed; nil: the process's own

	next time.Duration
}

// Reset resets the waits after a stream that lasted for a while.
func (r *Retry) Reset() { r.next = 0 }

// After returns the wait after a failed attempt. reached reports whether the broker's machine had
// accepted the connection. Waits vary at random by up to half, so that not all nodes try at the
// same time.
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
