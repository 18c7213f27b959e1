package arbiter_test

import (
	"testing"
	"time"

	"penstock/core/arbiter"
)

// sparse is a file of any size that takes so many bytes of the device.
type sparse struct {
	endless
	written int64
}

func (s sparse) Written() (int64, bool) { return s.written, true }

// A reader that says that it is far beyond its mark is charged at most what its file takes of
// the device: the kernel has fetched no more for it.
func TestAReadersClaimIsHeldAgainstItsFile(t *testing.T) {
	const mib, quantum, size = 1 << 20, 1 << 20, 4 << 40
	for _, c := range []struct{ written, pos, want int64 }{
		{0, size, 0},
		{3 * mib, size, 3 * mib},
		{3 * mib, 3*mib + 1, 3 * mib},
		{0, mib, mib}, // within a lease nothing is asked
		{0, mib + 1, 0},
	} {
		cfg := diskConfig(2e9, 0)
		cfg.Quantum = quantum
		a, err := arbiter.New(arbiter.Options{Config: cfg, Mode: arbiter.Observe, Policy: func(string) arbiter.Rule {
			return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
		}})
		if err != nil {
			t.Fatal(err)
		}
		missing := make([]int64, 4096) // as many as the daemon asks about when it opens a file
		for i := range missing {
			missing[i] = quantum
		}
		s := a.Open(1, arbiter.Opening{Flow: "a", To: size, Missing: missing, File: sparse{written: c.written}})
		a.Progress(time.Second, s, c.pos)
		if got := a.Snapshot(time.Second).Flows[0].Behind; got != c.want {
			t.Errorf("%d bytes written, %d said to be read: %d charged, want %d", c.written, c.pos, got, c.want)
		}
	}
}
