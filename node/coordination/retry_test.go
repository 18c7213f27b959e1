package coordination

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestRetry: a node that waits for a broker's restart reports its rates within two periods of the
// restart. The waits grow after refusals by a broker.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		period, most          time.Duration
		reached               bool
		attempts              int
		atLeast, atMost, last time.Duration // limits of all waits; the minimum of the last one
	}{
		{time.Second, 0, false, 100, 250 * time.Millisecond, 750 * time.Millisecond, 250 * time.Millisecond},
		{30 * time.Second, 0, false, 100, retryMost / 2, retryMost * 3 / 2, retryMost / 2},
		{100 * time.Millisecond, 0, false, 100, retryLeast / 2, retryLeast * 3 / 2, retryLeast / 2},
		{time.Second, 0, true, 100, retryLeast / 2, retryMost * 3 / 2, retryMost / 2},
		{time.Second, time.Second, true, 100, retryLeast / 2, 1500 * time.Millisecond, 500 * time.Millisecond},
	} {
		r := Retry{Period: c.period, Most: c.most}
		var wait time.Duration
		for range c.attempts {
			wait = r.After(c.reached)
			if wait < c.atLeast || wait > c.atMost {
				t.Fatalf("%+v: a wait of %v", c, wait)
			}
		}
		if wait < c.last {
			t.Errorf("%+v: the last wait is %v", c, wait)
		}
		r.Reset()
		if wait := r.After(true); wait > retryLeast*3/2 {
			t.Errorf("%+v: %v after a reset", c, wait)
		}
	}
}

// With its own source, the waits follow its seed, within the same bounds.
func TestRetryBySeed(t *testing.T) {
	waits := func(seed uint64) (all [20]time.Duration) {
		r := Retry{Period: time.Second, Rand: rand.New(rand.NewPCG(seed, 1))}
		for i := range all {
			all[i] = r.After(false)
			if all[i] < 250*time.Millisecond || all[i] > 750*time.Millisecond {
				t.Fatalf("a wait of %v", all[i])
			}
		}
		return all
	}
	first, again, other := waits(1), waits(1), waits(2)
	if first != again || first == other {
		t.Errorf("by seed 1 %v, then %v; by seed 2 %v", first, again, other)
	}
}
