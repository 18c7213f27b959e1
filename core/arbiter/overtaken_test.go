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

// TestOvertakenReadAlone checks that the arbiter asks to be called at ticks only, when the wait for an overtaken read
// has ended without the read and no flow wants the device.
func TestOvertakenReadAlone(t *testing.T) {
	a := byHand(t, 4)
	a.Open(1, arbiter.Opening{Flow: "a", File: cold{}, To: 1 << 40, Flight: 1})
	now := time.Duration(1)
	started(a, now)
	other := a.Open(now, arbiter.Opening{Flow: "b", File: cold{}, To: 1 << 40})
	for flying := started(a, now); len(flying) > 0; {
		r := flying[0]
		now += 11 * time.Millisecond
		offset := r.Offset + r.Length
		end(a, now, r)
		a.Progress(now, other, offset)
		flying = append(flying[1:], started(a, now)...)
	}
	a.Close(now, other, -1)
	calls := 0
	for stop := now + time.Second; now < stop && calls < 1000; calls++ {
		_, now = a.Decide(now)
	}
	if calls > 100 {
		t.Errorf("%d calls of Decide until %v, want at most 100 in a second", calls, now)
	}
}

// TestNothingMovedOvertakesNothing checks that requests for which the device had no work overtake no read.
func TestNothingMovedOvertakesNothing(t *testing.T) {
	a := byHand(t, 4)
	a.Open(1, arbiter.Opening{Flow: "a", File: cold{}, To: 1 << 40, Flight: 1})
	now := time.Duration(1)
	started(a, now)
	other := a.Open(now, arbiter.Opening{Flow: "b", File: cold{}, To: 1 << 40})
	flying := started(a, now)
	for n := range 100 {
		if len(flying) == 0 {
			t.Fatalf("the device waits after %d requests without work", n)
		}
		r := flying[0]
		now += 10 * time.Microsecond
		offset := r.Offset + r.Length
		a.Done(now, r, arbiter.Result{})
		a.Progress(now, other, offset)
		flying = append(flying[1:], started(a, now)...)
	}
}

// TestSlowReadsDoNotIdleTheDevice checks that reads that take long for another reason than the order of service, such as
// a locked file, leave most of the device to another flow. They use no time of the device here.
func TestSlowReadsDoNotIdleTheDevice(t *testing.T) {
	const total = 60 * time.Second
	type flight struct {
		r    *arbiter.Request
		ends time.Duration
	}
	for _, slow := range []int{1, 3} {
		for _, takes := range []time.Duration{130, 200, 500, 1000, 2000, 4000} {
			takes *= time.Millisecond
			a := byHand(t, 4)
			now, busy, served := time.Duration(1), time.Duration(0), time.Duration(0)
			for range slow {
				a.Open(now, arbiter.Opening{Flow: "slow", File: cold{}, To: 1 << 40, Flight: 1})
			}
			other := a.Open(now, arbiter.Opening{Flow: "other", File: cold{}, To: 1 << 40})
			var flying []flight
			for now < total {
				actions, next := a.Decide(now)
				for _, x := range actions {
					switch {
					case x.Kind != arbiter.Start:
						continue
					case x.Request.Stream == other:
						busy = max(busy, now) + 11*time.Millisecond
						flying = append(flying, flight{x.Request, busy})
					default:
						flying = append(flying, flight{x.Request, now + takes})
					}
				}
				for _, f := range flying {
					next = min(next, f.ends)
				}
				now = max(now+1, next)
				left := flying[:0]
				for _, f := range flying {
					if f.ends > now {
						left = append(left, f)
						continue
					}
					s, offset := f.r.Stream, f.r.Offset+f.r.Length
					end(a, now, f.r)
					a.Progress(now, s, offset)
					if s == other {
						served += 11 * time.Millisecond
					}
				}
				flying = left
			}
			if served < total*3/4 {
				t.Errorf("%d reads of %v each leave %v of %v to the other flow, want three quarters", slow, takes, served, total)
			}
		}
	}
}
