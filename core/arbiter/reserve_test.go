package arbiter_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/arbiter"
	"penstock/core/reserve"
)

// promises returns a policy of reservations and weights. Flows that are not named have weight 1.
func promises(reserves map[string]reserve.Rate, weights map[string]int) arbiter.Policy {
	return func(flow string) arbiter.Rule {
		return arbiter.Rule{Weight: max(1, weights[flow]), Mode: arbiter.Enforce, Reserve: reserves[flow]}
	}
}

// largestCost returns the device time of a quantum after a seek.
func (w *world) largestCost() time.Duration {
	return time.Duration(float64(w.cfg.Quantum)/w.disk.rate*float64(time.Second)) + w.disk.seek
}

// keeps fails the test unless a flow had its promised part of the device's time in every window, less D+1 requests.
func (w *world) keeps(t fataler, flow string, part float64, from, to time.Duration) {
	t.Helper()
	for _, window := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		for at := from; at+window <= to; at += window / 4 {
			least := time.Duration(part*float64(window)) - time.Duration(w.cfg.FixedDepth+1)*w.largestCost()
			if had := w.between(at, at+window)[flow].service; had < least {
				t.Fatalf("in %v from %v, %s had %v of the device's time, want at least %v", window, at, flow, had, least)
			}
		}
	}
}

// reserved returns the account of a flow's reservation.
func (w *world) reserved(flow string) arbiter.ReserveSnapshot {
	for _, f := range w.a.Snapshot(w.now).Flows {
		if f.Name == flow {
			return f.Reserve
		}
	}
	return arbiter.ReserveSnapshot{}
}

func TestAReservationBesideAggressors(t *testing.T) {
	for _, promise := range []reserve.Rate{{Part: 0.4}, {Bytes: 0.4 * testRate * 0.9}} { // a quantum's transfer is 0.91 of its time
		for _, write := range []bool{false, true} {
			for _, depth := range []int{1, 2, 4} {
				t.Run(fmt.Sprintf("%v/write=%v/depth=%d", promise, write, depth), func(t *testing.T) {
					w := diskWorld(t, depth, promises(map[string]reserve.Rate{"vip": promise}, nil), func(c *arbiter.Config) { c.Ahead = 16 })
					if write {
						w.writer("vip", endlessFile)
					} else {
						w.reader("vip", endlessFile)
					}
					for i := range 16 {
						if i%2 == 0 {
							w.reader(fmt.Sprint("x", i), endlessFile)
						} else {
							w.writer(fmt.Sprint("x", i), endlessFile)
						}
					}
					w.run(60 * time.Second)
					w.keeps(t, "vip", 0.4*0.95, 5*time.Second, 60*time.Second)
					all := w.between(5*time.Second, 60*time.Second)
					if had := all["vip"].service.Seconds() / 55; had > 0.5 {
						t.Errorf("the reservation of 0.4 had %.3f of the device", had)
					}
					sum, least, most := time.Duration(0), time.Hour, time.Duration(0)
					for flow, g := range all {
						if sum += g.service; flow != "vip" {
							least, most = min(least, g.service), max(most, g.service)
						}
					}
					if sum < 54*time.Second {
						t.Errorf("the device was busy for only %v of 55 s", sum)
					}
					if float64(most) > 1.2*float64(least) {
						t.Errorf("the others, of equal weight, had from %v to %v", least, most)
					}
					if v := w.reserved("vip"); v.Broken > 0 || v.Kept < 50*time.Second || v.Moved == 0 {
						t.Errorf("%+v", v)
					}
				})
			}
		}
	}
}

// A flow whose share is above its reservation has its share, and not both.
func TestReservedServiceIsNotCountedTwice(t *testing.T) {
	weights := map[string]int{"vip": 3, "x": 1}
	w := diskWorld(t, 4, promises(map[string]reserve.Rate{"vip": {Part: 0.4}}, weights), func(c *arbiter.Config) { c.Ahead = 16 })
	w.reader("vip", endlessFile)
	w.reader("x", endlessFile)
	w.run(60 * time.Second)
	w.holds(t, weights, 1, 5*time.Second, 60*time.Second)
}

// A flow that is idle costs the others nothing, and saves nothing for later.
func TestAnIdleReservation(t *testing.T) {
	w := diskWorld(t, 4, promises(map[string]reserve.Rate{"vip": {Part: 0.8}}, nil), func(c *arbiter.Config) { c.Ahead = 16 })
	first := w.reader("vip", 8*mib)
	w.reader("x", endlessFile)
	w.reader("y", endlessFile)
	w.run(40 * time.Second)
	if !first.closed {
		t.Fatal("the reader with the reservation has not ended")
	}
	alone := w.between(10*time.Second, 40*time.Second)
	for _, flow := range []string{"x", "y"} {
		if had := alone[flow].service; had < 14500*time.Millisecond || had > 15500*time.Millisecond {
			t.Errorf("%s had %v of 30 s", flow, had)
		}
	}
	w.reader("vip", endlessFile)
	w.run(30 * time.Second)
	w.keeps(t, "vip", 0.8, 42*time.Second, 70*time.Second)
	if had := w.between(40*time.Second, 50*time.Second)["vip"].service; had > 8600*time.Millisecond {
		t.Errorf("after a pause, a reservation of 0.8 had %v of 10 s", had)
	}
}

// When aggressors leave, a flow that was promised more than its share has its share again within the bound
// of Config.Debt.
func TestAReservationIsNoDebt(t *testing.T) {
	w := diskWorld(t, 4, promises(map[string]reserve.Rate{"vip": {Part: 0.4}}, map[string]int{"vip": 2}), func(c *arbiter.Config) { c.Ahead = 16 })
	w.reader("vip", endlessFile)
	w.reader("x", endlessFile)
	for i := range 30 {
		w.reader(fmt.Sprint("leaves", i), 10*mib)
	}
	w.run(200 * time.Second)
	last := w.between(100*time.Second, 200*time.Second)
	if had := last["vip"].service.Seconds() / (last["vip"].service + last["x"].service).Seconds(); had < 0.64 || had > 0.69 {
		t.Errorf("at 2:1, the flow with the reservation had %.3f", had)
	}
}

// A device is divided in proportion to rates that it cannot give, and they are reported as broken. When the device is
// fast again, overdue service delays nobody for long.
func TestBrokenPromises(t *testing.T) {
	for _, depth := range []int{1, 2, 4} {
		for _, slower := range []float64{3, 10} {
			t.Run(fmt.Sprintf("depth=%d/slower=%v", depth, slower), func(t *testing.T) {
				w := diskWorld(t, depth, promises(map[string]reserve.Rate{"a": {Bytes: 6e6}, "b": {Bytes: 2e6}}, nil), func(c *arbiter.Config) { c.Ahead = 16 })
				for _, flow := range []string{"a", "b", "x"} {
					w.reader(flow, endlessFile)
				}
				w.run(20 * time.Second)
				for _, flow := range []string{"a", "b"} {
					if v := w.reserved(flow); v.Broken > 0 || v.Kept < 19*time.Second {
						t.Errorf("%s on a fast disk: %+v", flow, v)
					}
				}
				w.disk.rate = testRate / slower
				w.run(10 * time.Second)
				for _, flow := range []string{"a", "b"} {
					if v := w.reserved(flow); v.Broken < 4*time.Second {
						t.Errorf("%s, 10 s after the disk became slow: %+v", flow, v)
					}
				}
				w.run(60 * time.Second)
				slow := w.between(30*time.Second, 90*time.Second)
				if ratio := float64(slow["a"].bytes) / float64(slow["b"].bytes); ratio < 2.7 || ratio > 3.3 {
					t.Errorf("rates of 3:1 had %.2f:1", ratio)
				}
				w.disk.rate = testRate
				w.run(40 * time.Second)
				if had := w.between(110*time.Second, 130*time.Second)["x"].service.Seconds() / 20; had < 0.15 {
					t.Errorf("after the disk has become fast, the flow without a guaranteed rate had %.3f", had)
				}
			})
		}
	}
}

// A rate in bytes takes at most twice the device time that it would take sequentially.
func TestAReservationOfRandomReads(t *testing.T) {
	w := diskWorld(t, 1, promises(map[string]reserve.Rate{"vip": {Bytes: 3e6}}, nil), nil)
	for range 8 { // many small files, so that each request of the flow is a seek to another file
		var count int
		w.chain("vip", 64*kib, 0, &count)
	}
	w.reader("x", endlessFile)
	w.run(30 * time.Second)
	all := w.between(5*time.Second, 30*time.Second)
	if had := all["vip"].service.Seconds() / 25; had > 0.60 {
		t.Errorf("the flow with the rate had %.3f of the device", had)
	}
	if had := all["x"].service.Seconds() / 25; had < 0.40 {
		t.Errorf("the other flow had %.3f of the device", had)
	}
}

// TestReservationsOfAnything checks that each promise is kept in every window, whatever the other flows are, if the
// promises together leave a tenth of the device.
func TestReservationsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reserves, weights := map[string]reserve.Rate{}, map[string]int{}
		left := 0.9
		n := rapid.IntRange(1, 4).Draw(t, "promises")
		for i := range n {
			flow := fmt.Sprint("p", i)
			part := rapid.Float64Range(0.02, left/float64(n-i)).Draw(t, "part")
			left -= part
			reserves[flow], weights[flow] = reserve.Rate{Part: part}, rapid.IntRange(1, 100).Draw(t, "weight")
		}
		depth := rapid.IntRange(1, 4).Draw(t, "depth")
		w := diskWorld(t, depth, promises(reserves, weights), func(c *arbiter.Config) {
			c.Ahead = 16
			c.Run = rapid.Int64Range(1, 32).Draw(t, "run") * testQuantum
		})
		begin := func(flow string) {
			if rapid.Bool().Draw(t, "write") {
				w.writer(flow, endlessFile)
			} else {
				w.reader(flow, endlessFile)
			}
		}
		for i := range n {
			begin(fmt.Sprint("p", i))
		}
		for i := range rapid.IntRange(0, 10).Draw(t, "others") {
			begin(fmt.Sprint("x", i))
		}
		w.run(30 * time.Second)
		for flow, v := range reserves {
			w.keeps(t, flow, v.Part, 5*time.Second, 30*time.Second)
			if got := w.reserved(flow); got.Broken > 0 {
				t.Fatalf("%s: %+v", flow, got)
			}
		}
	})
}

// The others have the rest of the device, whether the flow with the strict rate is idle or not, until a while after its
// last request.
func TestAStrictReservation(t *testing.T) {
	w := diskWorld(t, 4, promises(map[string]reserve.Rate{"vip": {Part: 0.4, Strict: true}}, nil), func(c *arbiter.Config) { c.Ahead = 16 })
	first := w.reader("vip", 4*mib)
	w.reader("x", endlessFile)
	w.writer("y", endlessFile)
	rest := func(from, to time.Duration) float64 {
		all := w.between(from, to)
		return (all["x"].service + all["y"].service).Seconds() / (to - from).Seconds()
	}
	idleAndWork := func(to time.Duration) time.Duration {
		sum := w.a.Snapshot(w.now).StrictIdle
		for _, g := range w.between(0, to) {
			sum += g.service
		}
		return sum
	}
	w.run(10 * time.Second)
	if !first.closed {
		t.Fatal("the reader with the strict rate has not ended")
	}
	if had := rest(2*time.Second, 10*time.Second); had < 0.57 || had > 0.63 {
		t.Errorf("beside an idle strict rate of 0.4, the others had %.3f", had)
	}
	if s := w.a.Snapshot(w.now); s.StrictIdle < 2*time.Second || s.StrictPart != 0.4 || idleAndWork(10*time.Second) > 10*time.Second+w.largestCost() {
		t.Errorf("the device was left idle for %v, and worked for the rest of %v; part %v", s.StrictIdle, idleAndWork(10*time.Second), s.StrictPart)
	}
	w.run(20 * time.Second)
	if had := rest(14*time.Second, 30*time.Second); had < 0.98 {
		t.Errorf("long after the last request of the flow, the others had %.3f", had)
	}
	w.reader("vip", endlessFile)
	w.run(40 * time.Second)
	w.keeps(t, "vip", 0.4, 32*time.Second, 70*time.Second)
	if had := rest(32*time.Second, 70*time.Second); had < 0.55 || had > 0.62 {
		t.Errorf("beside a busy strict rate of 0.4, the others had %.3f", had)
	}
	if sum := idleAndWork(70 * time.Second); sum > 70*time.Second+4*w.largestCost() {
		t.Errorf("idle time and work are %v in 70 s", sum)
	}
	w.event(func() { w.a.Apply(w.now, arbiter.Enforce, promises(nil, nil)) })
	w.run(20 * time.Second)
	if had := w.between(72*time.Second, 90*time.Second); (had["x"].service + had["y"].service + had["vip"].service) < 17500*time.Millisecond {
		t.Errorf("without the strict rate, the device was not busy: %+v", had)
	}
}

// A flow with a strict rate is among the others for what it gets by its weight.
func TestTwoStrictReservations(t *testing.T) {
	reserves := map[string]reserve.Rate{"a": {Part: 0.1, Strict: true}, "b": {Part: 0.5, Strict: true}}
	w := diskWorld(t, 2, promises(reserves, map[string]int{"a": 1000}), func(c *arbiter.Config) { c.Ahead = 16 })
	w.reader("b", 64*kib)
	w.reader("a", endlessFile)
	w.reader("x", endlessFile)
	w.run(9 * time.Second)
	if had := w.between(2*time.Second, 9*time.Second); (had["a"].service+had["x"].service).Seconds()/7 > 0.53 {
		t.Errorf("beside an idle strict rate of 0.5, the others had %+v of 7 s", had)
	}
}

// Service outside of the schedule delays the flow that has it, and not all others.
func TestUnscheduledServiceAndAStrictReservation(t *testing.T) {
	w := diskWorld(t, 2, func(flow string) arbiter.Rule {
		switch flow {
		case "vip":
			return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce, Reserve: reserve.Rate{Part: 0.4, Strict: true}}
		case "observed":
			return arbiter.Rule{Weight: 1, Mode: arbiter.Observe}
		}
		return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
	}, func(c *arbiter.Config) { c.Ahead = 16 })
	w.reader("vip", endlessFile)
	w.reader("x", endlessFile)
	w.run(5 * time.Second)
	s := w.open(&stream{}, arbiter.Opening{Flow: "observed", To: gib})
	w.progress(s, gib) // as if all of it had been read past the schedule
	w.run(10 * time.Second)
	if had := w.between(6*time.Second, 15*time.Second)["x"].service.Seconds() / 9; had < 0.45 {
		t.Errorf("beside a strict rate of 0.4 and unscheduled service, the other flow had %.3f", had)
	}
}

// While a rate, or a strict reservation, delays a request that is due, the arbiter is not called all the time.
func TestReservationsCauseFewDecisions(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   arbiter.Config
		rules map[string]reserve.Rate
	}{
		"network": {arbiter.Config{Network: true, Rate: 10e6}, map[string]reserve.Rate{"a": {Bytes: 5e6}}},
		"strict":  {diskConfig(testRate, testSeek), map[string]reserve.Rate{"a": {Part: 0.5, Strict: true}, "b": {Part: 0.1}}},
	} {
		w, err := newWorld(arbiter.Options{Config: c.cfg, Mode: arbiter.Enforce, Policy: promises(c.rules, nil)}, testRate, testSeek)
		if err != nil {
			t.Fatal(err)
		}
		for _, flow := range []string{"a", "b", "c"} {
			if c.cfg.Network {
				w.drive(w.open(&stream{}, arbiter.Opening{Flow: flow, Write: true, Kind: arbiter.Network, To: endlessFile}), 0, endlessFile)
			} else {
				w.reader(flow, endlessFile)
			}
		}
		const most = 100_000
		for range 200 {
			if w.decisions > most { // a busy loop takes as many in an instant
				t.Fatalf("%s: %d decisions in %v", name, w.decisions, w.now)
			}
			w.run(100 * time.Millisecond)
		}
	}
}

// A rate that does not fit beside the admitted ones is queued and not enforced, until there is room. The flows without a
// rate lose nothing.
func TestOverPromisesAreQueued(t *testing.T) {
	w := diskWorld(t, 2, promises(map[string]reserve.Rate{"a": {Part: 0.5}, "b": {Part: 0.5}}, nil), func(c *arbiter.Config) { c.Ahead = 16 })
	first := w.reader("a", 100*mib)
	w.run(time.Second)
	for _, flow := range []string{"b", "x", "y", "z"} {
		w.reader(flow, endlessFile)
	}
	w.run(9 * time.Second)
	if first.closed {
		t.Fatal("the first flow has ended too early")
	}
	if v := w.reserved("b").Verdict; v.State != reserve.Queued || v.Fits < 0.75 || v.Fits > 0.85 {
		t.Errorf("the second rate: %+v", v)
	}
	w.keeps(t, "a", 0.5, 2*time.Second, 10*time.Second)
	all := w.between(2*time.Second, 10*time.Second)
	if b, x := all["b"].service.Seconds(), all["x"].service.Seconds(); b > 1.3*x {
		t.Errorf("the queued flow had %.2f s and one of equal weight %.2f s", b, x)
	}
	w.run(60 * time.Second)
	if !first.closed {
		t.Fatal("the first flow has not ended")
	}
	if v := w.reserved("b"); v.Verdict.State != reserve.Admitted || v.Broken > 0 {
		t.Errorf("after the first flow's end: %+v", v)
	}
	w.keeps(t, "b", 0.5, 50*time.Second, 70*time.Second)
}

// TestAPromiseInBytesPaysForSeeks: two rates in bytes that fill the device if each request begins where the last one ended, but not if each
// begins at a random place, are not both admitted. Two that fit with the seeks are kept beside 16 others, also with seeks that are as
// long as transfers.
func TestAPromiseInBytesPaysForSeeks(t *testing.T) {
	for _, seek := range []time.Duration{testSeek, 20 * time.Millisecond} {
		transfer := time.Duration(testQuantum) * time.Second / testRate
		fits := testRate * float64(transfer) / float64(transfer+seek) // with seeks
		for part, want := range map[float64]reserve.State{0.44: reserve.Admitted, 0.46: reserve.Queued} {
			t.Run(fmt.Sprintf("%v/%g", seek, part), func(t *testing.T) {
				rate := reserve.Rate{Bytes: int64(part * fits)}
				w := diskWorld(t, 2, promises(map[string]reserve.Rate{"a": rate, "b": rate}, nil), func(c *arbiter.Config) {
					c.Cost = diskConfig(testRate, seek).Cost
					c.Ahead = 16
				})
				w.disk.seek = seek
				for _, flow := range []string{"a", "b"} {
					w.reader(flow, endlessFile)
					w.run(time.Second)
				}
				for i := range 16 {
					w.reader(fmt.Sprint("x", i), endlessFile)
				}
				w.run(60 * time.Second)
				b := w.reserved("b")
				if b.Verdict.State != want || b.Promised < part*0.98 || b.Promised > part*1.02 {
					t.Errorf("the second rate takes %.3f of the device: %+v", b.Promised, b.Verdict)
				}
				for flow, g := range w.between(10*time.Second, 60*time.Second) {
					if had := float64(g.bytes) / 50; (flow == "a" || flow == "b" && want == reserve.Admitted) && had < 0.99*float64(rate.Bytes) {
						t.Errorf("%s had %.2f of its rate", flow, had/float64(rate.Bytes))
					}
				}
			})
		}
	}
}

// TestRoomForTotalRates: the room for rates of whole applications is what the rates of this device leave, whether parts of rates of whole
// applications are used or not.
func TestRoomForTotalRates(t *testing.T) {
	w := diskWorld(t, 2, func(flow string) arbiter.Rule {
		rule := arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
		switch flow {
		case "own":
			rule.Reserve = reserve.Rate{Part: 0.4}
		case "total":
			rule = rule.WithTotal(2e6, 0)
		}
		return rule
	}, nil)
	room := func() float64 { return float64(w.a.Snapshot(w.now).Guaranteeable) }
	w.run(time.Second)
	all := room()
	w.reader("total", endlessFile)
	w.run(5 * time.Second)
	if got := room() / all; got < 0.95 || got > 1.05 {
		t.Errorf("with a part of a total rate, the room is %.2f of the one without", got)
	}
	w.reader("own", 20*mib)
	w.run(5 * time.Second)
	if got := room() / all; got < 0.5 || got > 0.6 { // (0.9 - 0.4) / 0.9
		t.Errorf("with 40 %% for another flow, the room is %.2f of the one without", got)
	}
	w.run(60 * time.Second)
	if got := room() / all; got < 0.95 || got > 1.05 {
		t.Errorf("after the other flow's end, the room is %.2f", got)
	}
}

// On a disk that drops to half of its speed, the rates are kept in the policy's order: the first one in full. The
// others are reported as broken within 10 s.
func TestASlowDiskKeepsTheFirstRates(t *testing.T) {
	order := map[string]int{"first": 1, "second": 2}
	rates := map[string]int64{"first": 4e6, "second": 4e6}
	w := diskWorld(t, 2, func(flow string) arbiter.Rule {
		return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce, Reserve: reserve.Rate{Bytes: rates[flow]}, Order: order[flow]}
	}, func(c *arbiter.Config) { c.Ahead = 16 })
	for _, flow := range []string{"second", "first", "x"} {
		w.reader(flow, endlessFile)
	}
	w.run(20 * time.Second)
	for flow := range rates {
		if v := w.reserved(flow); v.Broken > 0 || v.Verdict.State != reserve.Admitted {
			t.Errorf("%s on a fast disk: %+v", flow, v)
		}
	}
	w.disk.rate /= 2
	w.run(10 * time.Second)
	if v := w.reserved("second"); v.Verdict.State != reserve.Reduced || v.Broken < time.Second {
		t.Errorf("the second rate, 10 s after the disk became slow: %+v", v)
	}
	w.run(40 * time.Second)
	slow := w.between(40*time.Second, 70*time.Second)
	if had := float64(slow["first"].bytes) / 30; had < 0.93*4e6 {
		t.Errorf("the first rate had %.0f bytes a second", had)
	}
	if v := w.reserved("first"); v.Verdict.State != reserve.Admitted {
		t.Errorf("the first rate on the slow disk: %+v", v)
	}
	w.disk.rate *= 2
	w.run(60 * time.Second)
	if v := w.reserved("second"); v.Verdict.State != reserve.Admitted {
		t.Errorf("the second rate after the disk is fast again: %+v", v)
	}
}

// A flow whose clients take less than its rate, or that reads one small file after the other, does not miss its promise.
func TestSlowClientsBreakNoPromise(t *testing.T) {
	for _, depth := range []int{1, 4} {
		for _, readers := range []int{1, 3, 8} {
			for _, part := range []float64{0.1, 0.5, 0.9} {
				t.Run(fmt.Sprintf("depth=%d/readers=%d/part=%v", depth, readers, part), func(t *testing.T) {
					w := diskWorld(t, depth, promises(map[string]reserve.Rate{"vip": {Part: 0.4}, "small": {Part: 0.3}}, nil), func(c *arbiter.Config) { c.Ahead = 16 })
					for i := range readers {
						s := w.open(&stream{}, arbiter.Opening{Flow: "vip", To: endlessFile})
						if i == 1 {
							s = w.open(&stream{}, arbiter.Opening{Flow: "vip", Write: true})
						}
						w.drive(s, 0.4*part*testRate/float64(readers), endlessFile)
					}
					var count int
					w.chain("small", 256*kib, 10*time.Millisecond, &count)
					for i := range 6 {
						w.reader(fmt.Sprint("x", i), endlessFile)
						w.writer(fmt.Sprint("x", i), endlessFile)
					}
					w.run(60 * time.Second)
					for _, flow := range []string{"vip", "small"} {
						if v := w.reserved(flow); v.Broken > 0 || flow == "vip" && v.Kept == 0 {
							t.Errorf("%s: %+v", flow, v)
						}
					}
				})
			}
		}
	}
}

// The device becomes faster for a while, and then its speed is measured too high, so rates are admitted that it cannot give.
// Whenever a flow has lost more than a twentieth of its rate in 5 s, its rate was broken for a part of this time, also if the
// flow returns so often that little is ever overdue.
func TestLostServiceIsBroken(t *testing.T) {
	for _, c := range []struct {
		faster, every time.Duration // for how long, of each
		slow          float64
		rate          float64
		seek          time.Duration
		promised      int64
		loses         bool
	}{
		{3 * time.Second, 10 * time.Second, 0.7, 400e6, 100 * time.Microsecond, 240 * mib, false},
		{5 * time.Second, 10 * time.Second, 0.6, 400e6, 100 * time.Microsecond, 300 * mib, true},
		{3 * time.Second, 10 * time.Second, 0.5, 400e6, 100 * time.Microsecond, 300 * mib, true},
		{10 * time.Second, 20 * time.Second, 0.4, 150e6, 8 * time.Millisecond, 80 * mib, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			cfg := diskConfig(c.rate, c.seek)
			cfg.Algorithm, cfg.FixedDepth, cfg.Quantum = "sfqd", 4, 2*mib
			rules := promises(map[string]reserve.Rate{"vip": {Bytes: c.promised}, "late": {Bytes: c.promised / 2}}, nil)
			w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: rules}, c.rate, c.seek)
			if err != nil {
				t.Fatal(err)
			}
			w.observe()
			for _, f := range []string{"vip", "vip", "late", "x", "y", "z"} {
				w.writer(f, endlessFile)
			}
			const window = 5
			var broken []time.Duration
			lost := 0
			for second := range 120 {
				w.disk.rate, w.disk.seek = c.rate, c.seek
				if time.Duration(second)*time.Second%c.every >= c.every-c.faster {
					w.disk.rate, w.disk.seek = c.rate/c.slow, time.Duration(float64(c.seek)*c.slow)
				}
				w.run(time.Second)
				if broken = append(broken, w.reserved("vip").Broken); second < 2*window {
					continue
				}
				if had := w.between(w.now-window*time.Second, w.now)["vip"].bytes; float64(had) < 0.95*float64(window*c.promised) {
					if lost++; broken[second] == broken[second-window] {
						t.Errorf("in the %d s until %v, the flow had %.2f of its rate, and no time was broken", window, w.now, float64(had)/float64(window*c.promised))
					}
				}
			}
			if c.loses != (lost > 0) || !c.loses && broken[119] > 0 {
				t.Errorf("the flow lost in %d times of %d s, and its rate was broken for %v", lost, window, broken[119])
			}
		})
	}
}
