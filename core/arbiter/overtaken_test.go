package arbiter_test

import (
	"testing"
	"time"

	"penstock/core/arbiter"
)

// TestOvertakenRead checks that a device waits for a read after later requests of other flows that
// are worth D quanta have ended before it, that this wait ends with the read or after twice the time
// for which the read had been in flight, and that the device waits once for each read.
func TestOvertakenRead(t *testing.T) {
	const depth, quantumTime = 4, 11 * time.Millisecond
	for _, ends := range []bool{true, false} {
		a := byHand(t, depth)
		a.Open(1, arbiter.Opening{Flow: "a", File: cold{}, To: 1 << 40, Flight: 1})
		now := time.Duration(1)
		late := started(a, now)
		if len(late) != 1 {
			t.Fatalf("%d requests started, want 1", len(late))
		}
		other := a.Open(now, arbiter.Opening{Flow: "b", File: cold{}, To: 1 << 40})
		flying := started(a, now)
		// overtake ends up to most requests of the other flow. The flow's process takes all bytes at once.
		overtake := func(most int) (n int) {
			for ; len(flying) > 0 && n < most; n++ {
				r := flying[0]
				now += quantumTime
				offset := r.Offset + r.Length
				end(a, now, r)
				a.Progress(now, other, offset)
				flying = append(flying[1:], started(a, now)...)
			}
			return n
		}
		// The first requests are small, because a stream's readahead grows with its progress.
		if n := overtake(100); n < depth || n > 4*depth {
			t.Errorf("%d requests overtook the read, want %d to %d", n, depth, 4*depth)
		}
		if ends {
			end(a, now, late[0])
		} else {
			for from := now; len(flying) == 0 && now <= 3*from; { // the read has been in flight since 0
				_, now = a.Decide(now)
				flying = started(a, now)
			}
			if now <= quantumTime {
				t.Error("the device has not waited")
			}
		}
		if flying = append(flying, started(a, now)...); len(flying) == 0 {
			t.Fatalf("no request starts after the wait (the read has ended: %v)", ends)
		}
		if n := overtake(100); n < 100 {
			t.Errorf("the device waits again after %d requests (the read has ended: %v)", n, ends)
		}
	}
}
