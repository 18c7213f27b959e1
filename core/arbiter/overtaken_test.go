package arbiter_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/core/depth"
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
	for _, slow := range []int{1, 3} {
		for _, takes := range []time.Duration{130, 200, 500, 1000, 2000, 4000} {
			takes *= time.Millisecond
			a := byHand(t, 4)
			for range slow {
				a.Open(1, arbiter.Opening{Flow: "slow", File: cold{}, To: 1 << 40, Flight: 1})
			}
			other := a.Open(1, arbiter.Opening{Flow: "other", File: cold{}, To: 1 << 40})
			busy, served := time.Duration(0), time.Duration(0)
			serve(a, &beside{ends: func(now time.Duration, r *arbiter.Request) time.Duration {
				if r.Stream != other {
					return now + takes
				}
				busy = max(busy, now) + 11*time.Millisecond
				return busy
			}}, total, func(_ time.Duration, r arbiter.Request) {
				if r.Stream == other {
					served += 11 * time.Millisecond
				}
			})
			if served < total*3/4 {
				t.Errorf("%d reads of %v each leave %v of %v to the other flow, want three quarters", slow, takes, served, total)
			}
		}
	}
}

// reordered returns the arbiter of a device with that depth, profile and assumed seek, for flows with weights.
func reordered(t *testing.T, fixed int, c cost.Coefficients, seek time.Duration, weights map[string]int) *arbiter.Arbiter {
	t.Helper()
	a, err := arbiter.New(arbiter.Options{
		Mode: arbiter.Enforce, Policy: func(flow string) arbiter.Rule { return arbiter.Rule{Weight: weights[flow], Mode: arbiter.Enforce} },
		Config: arbiter.Config{
			Algorithm: "sfqd", FixedDepth: fixed, Quantum: mib, Cost: cost.Model{Read: c, Write: c}, Seek: seek,
			Depth: depth.Config{Read: depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 14 * time.Millisecond}}, Staged: 64 * mib,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestWaitsOnAParallelDevice checks that waits for overtaken reads cost a device that serves twelve requests at a time at most
// 2 % of its throughput, also if latencies differ widely, and at most 10 % if the slots fall into step with slow reads. Waits
// that may waste a fifth of the time cost 12 %.
func TestWaitsOnAParallelDevice(t *testing.T) {
	const total, depth = 2 * time.Minute, 12
	line := cost.Line{PerMiB: 10 * time.Millisecond}
	spreads := map[string]func(flow string, r *rand.Rand) float64{
		"exponential": func(_ string, r *rand.Rand) float64 { return r.ExpFloat64() },
		"uniform":     func(_ string, r *rand.Rand) float64 { return 2 * r.Float64() },
		"two kinds":   func(_ string, r *rand.Rand) float64 { return []float64{0.5, 5}[r.IntN(10)/9] },
		"one slowly": func(flow string, r *rand.Rand) float64 {
			return (0.9 + r.Float64()/5) * map[string]float64{"a": 1, "b": 3}[flow]
		},
		// The slots fall into step with the slow reads, and waits waste more than the measurement shows.
		"one by turns": func(flow string, r *rand.Rand) float64 {
			return (0.9 + r.Float64()/5) * map[string]float64{"a": 1, "b": 2.2}[flow]
		},
		"one randomly": func(flow string, r *rand.Rand) float64 { return 1 + map[string]float64{"b": 4}[flow]*r.Float64() },
	}
	for _, device := range []struct {
		name    string
		profile cost.Coefficients
		seek    time.Duration
	}{
		{name: "a virtual disk without a profile", seek: 8 * time.Millisecond},
		{name: "a flash disk without a profile"},
		{name: "with a profile", profile: cost.Coefficients{Random: line, Sequential: line, Alone: cost.Line{PerMiB: depth * line.PerMiB}}},
		{name: "with a profile without latencies", profile: cost.Coefficients{Random: line, Sequential: line}},
	} {
		for _, spread := range slices.Sorted(maps.Keys(spreads)) {
			run := func(waits bool) (bytes int64) {
				rng := rand.New(rand.NewPCG(1, 2))
				a := reordered(t, depth, device.profile, device.seek, map[string]int{"a": 1, "b": 1})
				if !waits {
					a.NeverAwait()
				}
				for i := range 4 {
					a.Open(1, arbiter.Opening{Flow: "a", File: cold{}, To: 1 << 40})
					if !strings.HasPrefix(spread, "one") {
						a.Open(1, arbiter.Opening{Flow: "b", File: cold{}, To: 1 << 40})
					} else if i == 0 {
						a.Open(1, arbiter.Opening{Flow: "b", File: cold{}, To: 1 << 40, Flight: 1})
					}
				}
				serve(a, &beside{ends: func(now time.Duration, r *arbiter.Request) time.Duration {
					mean := float64(depth * line.Of(r.Length))
					return now + time.Duration(mean*spreads[spread](r.Stream.Flow, rng))
				}}, total, func(_ time.Duration, r arbiter.Request) { bytes += r.Length })
				return bytes
			}
			with, without := run(true), run(false)
			part := float64(with) / float64(without)
			t.Logf("%s, %s: %.3f of %.1f MiB/s", device.name, spread, part, float64(without)/float64(mib)/total.Seconds())
			least := 0.98
			if spread == "one by turns" {
				least = 0.9
			}
			if part < least {
				t.Errorf("%s, %s: waits leave %.3f of the throughput, want %v", device.name, spread, part, least)
			}
		}
	}
}

// TestSmallBlocksOnAHardDisk checks that readers with weights of 3:1, which read small blocks and their checksum files one
// after the other, have nearly such shares on a disk whose scheduler serves reads by position.
func TestSmallBlocksOnAHardDisk(t *testing.T) {
	const total, weight = 2 * time.Minute, 3
	lines := cost.Coefficients{Random: cost.Line{Fixed: 8 * time.Millisecond, PerMiB: 10 * time.Millisecond}, Sequential: cost.Line{PerMiB: 10 * time.Millisecond}}
	for _, c := range []struct {
		profile cost.Coefficients
		block   int64 // MiB
		least   float64
	}{
		{cost.Coefficients{}, 16, 1.6}, {cost.Coefficients{}, 64, 2.2}, {lines, 16, 1.9}, {lines, 64, 2.6},
	} {
		run := func(waits bool) float64 {
			a := reordered(t, 4, c.profile, lines.Random.Fixed, map[string]int{"a": weight, "b": 1})
			if !waits {
				a.NeverAwait()
			}
			rng := rand.New(rand.NewPCG(1, 2))
			e := &elevator{lines: lines, place: map[*arbiter.Stream]int64{}}
			open := func(now time.Duration, flow string, size int64) {
				e.place[a.Open(now, arbiter.Opening{Flow: flow, File: cold{}, To: size})] = rng.Int64N(1e6) * mib
			}
			open(1, "a", 128*kib)
			open(1, "b", 128*kib)
			bytes := map[string]float64{}
			serve(a, e, total, func(now time.Duration, r arbiter.Request) {
				s := r.Stream
				if bytes[s.Flow] += float64(r.Length); r.Offset+r.Length == s.To {
					next := 128 * kib
					if s.To == next {
						next = c.block * mib
					}
					a.Close(now, s, -1)
					delete(e.place, s)
					open(now, s.Flow, next)
				}
			})
			return bytes["a"] / bytes["b"]
		}
		with, without := run(true), run(false)
		t.Logf("blocks of %d MiB, profile %v: %.2f:1, without waits %.2f:1", c.block, c.profile != cost.Coefficients{}, with, without)
		if with < c.least || without > 1.2 {
			t.Errorf("blocks of %d MiB: shares of %.2f:1, and %.2f:1 without waits; want at least %v:1 and at most 1.2:1", c.block, with, without, c.least)
		}
	}
}
