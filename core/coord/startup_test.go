package coord

import (
	"strconv"
	"testing"
	"time"
)

// TestStartup checks that totals are complete after the least time, later if nodes keep connecting,
// and never later than the maximum. A node that connects afterwards does not change that.
func TestStartup(t *testing.T) {
	const period = time.Second
	for _, c := range []struct {
		name  string
		comes func(after time.Duration) bool // each 50 ms
		same  bool                           // the same node connects each time
		whole time.Duration
	}{
		{"nobody", func(time.Duration) bool { return false }, false, 2 * time.Second},
		{"all at once", func(after time.Duration) bool { return after <= 750*time.Millisecond }, false, 2 * time.Second},
		{"the last after 10 s", func(after time.Duration) bool { return after <= 10*time.Second }, false, 11250 * time.Millisecond},
		{"without an end", func(time.Duration) bool { return true }, false, MaxStartup},
		{"one again and again", func(time.Duration) bool { return true }, true, 2 * time.Second},
	} {
		b := Startup{Least: 2 * time.Second}
		for _, began := range []time.Duration{0, time.Hour} {
			b.Reset(began)
			whole := time.Duration(-1)
			for after := time.Duration(0); after < 2*MaxStartup; after += 50 * time.Millisecond {
				if c.comes(after) || after > 90*time.Second {
					name := "one"
					if !c.same {
						name = strconv.Itoa(int(after / (50 * time.Millisecond)))
					}
					b.Join(name, began+after, period)
				}
				switch now := b.Complete(began+after, period); {
				case now && whole < 0:
					whole = after
				case !now && whole >= 0:
					t.Fatalf("%s: complete after %v, but not after %v", c.name, whole, after)
				}
			}
			if whole != c.whole {
				t.Errorf("%s: complete after %v, want %v", c.name, whole, c.whole)
			}
		}
	}
	b := Startup{Least: 2 * time.Second}
	b.Reset(0)
	if b.Complete(20*time.Second-1, 10*time.Second) || !b.Complete(20*time.Second, 10*time.Second) {
		t.Error("period of 10 s: not complete after two periods")
	}
}
