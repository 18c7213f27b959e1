package arbiter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/foreign"
	"penstock/core/reserve"
)

const (
	freeAfter = 2 * time.Second
	small     = 16 * kib
)

// cached is a file in the page cache.
type cached struct{}

func (cached) Missing(_, _ int64) int64 { return 0 }
func (cached) Saved(_, n int64) int64   { return n }
func (cached) Written() (int64, bool)   { return gib, true }
func (cached) Deleted() bool            { return false }

// device is an arbiter in virtual time, which does nothing but tick.
type device struct {
	*arbiter.Arbiter
	now time.Duration
}

func freeDevice(t fataler, policy arbiter.Policy, change func(*arbiter.Config)) *device {
	line := cost.Line{Fixed: 8 * time.Millisecond, PerMiB: 10 * time.Millisecond}
	both := cost.Coefficients{Random: line, Sequential: cost.Line{PerMiB: 10 * time.Millisecond}}
	cfg := arbiter.Config{Quantum: mib, Cost: cost.Model{Read: both, Write: both}, Depth: depth.Config{Read: depth.Line(line), Write: depth.Line(line)}}
	if change != nil {
		change(&cfg)
	}
	a, err := arbiter.New(arbiter.Options{Mode: arbiter.Enforce, Policy: policy, Config: cfg})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &device{a, 0}
}

// pass advances the time, with all ticks.
func (d *device) pass(by time.Duration) {
	for end := d.now + by; d.now < end; {
		d.now = min(end, d.now-d.now%tickPeriod+tickPeriod)
		d.Decide(d.now)
	}
}

// read makes a flow read a cached file.
func (d *device) read(flow string) *arbiter.Stream {
	s := d.Open(d.now, arbiter.Opening{Flow: flow, File: cached{}, To: small, Passing: d.Free()})
	d.Close(d.now, s, small)
	return s
}

func (d *device) wants(t fataler, free bool, when string) {
	if d.Free() != free {
		t.Fatalf("%s, at %v: free is %v, want %v", when, d.now, d.Free(), free)
	}
}

func TestADeviceIsFreeAfterAPause(t *testing.T) {
	d := freeDevice(t, equal, nil)
	d.wants(t, false, "before the first tick")
	d.pass(tickPeriod)
	d.pass(freeAfter - 1)
	d.wants(t, false, "a moment before the pause is over")
	d.pass(tickPeriod)
	d.wants(t, true, "after the pause")
	for range 50 {
		d.read("a")
		d.pass(70 * time.Millisecond)
		d.wants(t, true, "while one flow reads")
	}
}

func TestASecondFlowEndsIt(t *testing.T) {
	for _, c := range []struct {
		pause time.Duration
		free  bool
	}{{0, false}, {time.Second, false}, {freeAfter - 1, false}, {freeAfter, true}, {time.Minute, true}} {
		d := freeDevice(t, equal, nil)
		d.pass(time.Minute)
		d.read("a")
		d.pass(c.pause)
		d.read("b")
		d.wants(t, c.free, fmt.Sprintf("at once when another flow reads after %v", c.pause))
		d.pass(freeAfter - tickPeriod)
		d.wants(t, c.free, "before the pause is over")
		d.pass(2 * tickPeriod)
		d.wants(t, true, "after the pause")
	}
}

func TestWritersAndStagingUseTheDevice(t *testing.T) {
	d := freeDevice(t, equal, nil)
	d.pass(time.Minute)
	s := d.Open(d.now, arbiter.Opening{Flow: "w", File: cold{}, Write: true})
	d.read("a")
	d.wants(t, false, "beside a writer that opens")
	d.pass(time.Minute)
	d.wants(t, true, "beside a writer that does not write")
	d.read("a")
	d.Progress(d.now, s, 4*mib)
	d.wants(t, false, "beside a writer that goes on")

	d = freeDevice(t, equal, nil)
	d.pass(time.Minute)
	d.Open(d.now, arbiter.Opening{Flow: "r", File: cold{}, To: gib})
	if len(started(d.Arbiter, d.now)) == 0 {
		t.Fatal("no request starts")
	}
	d.pass(5 * time.Second) // the request is at the device for all of this time
	d.wants(t, true, "while one flow has a request at the device")
	d.read("a")
	d.wants(t, false, "when another flow reads beside the request")
	d.pass(5 * time.Second)
	d.wants(t, true, "while only the request is at the device")
}

func TestAnUnverifiedNameIsNoUse(t *testing.T) {
	d := freeDevice(t, equal, nil)
	d.pass(time.Minute)
	for range 20 {
		s := d.Open(d.now, arbiter.Opening{Flow: "unattributed", File: cached{}, To: small, Asked: true, Passing: true})
		d.Progress(d.now, s, small)
		d.Close(d.now, s, small)
		d.Reassign(d.now, s, "a", "")
		d.pass(tickPeriod)
		d.wants(t, true, "while claims are verified as one flow's")
	}
	s := d.Open(d.now, arbiter.Opening{Flow: "unattributed", File: cached{}, To: small, Asked: true})
	d.Reassign(d.now, s, "b", "")
	d.wants(t, false, "when a claim is another flow's")
}

// TestAnUnverifiedNameIsAUseAfterATick checks that a device is not free while a stream's flow is not verified soon, even without
// other flows, as the flow may have a limit; but that a stream which is never verified has this effect for a limited time only.
func TestAnUnverifiedNameIsAUseAfterATick(t *testing.T) {
	d := freeDevice(t, equal, nil)
	open := func() *arbiter.Stream {
		s := d.Open(d.now, arbiter.Opening{Flow: "unattributed", File: cached{}, To: small, Asked: true, Passing: d.Free()})
		d.Close(d.now, s, small)
		return s
	}
	for name, beside := range map[string]bool{"alone": false, "beside another flow": true} {
		d.pass(time.Minute)
		d.wants(t, true, name+", before")
		begin := d.now
		var all []*arbiter.Stream
		for d.now < begin+2*time.Second {
			if beside {
				d.read("a")
			}
			all = append(all, open())
			d.pass(10 * time.Millisecond)
			if after := d.now - begin; after < tickPeriod {
				d.wants(t, true, name+", within a tick")
			} else if after > 2*tickPeriod {
				d.wants(t, false, name+", after two ticks")
			}
		}
		for _, s := range all {
			d.Reassign(d.now, s, "a", "")
		}
		d.wants(t, false, name+", just after verification")
		d.pass(freeAfter + tickPeriod)
		d.wants(t, true, name+", after a pause")
	}

	open() // never verified
	d.pass(4*time.Second + freeAfter)
	d.wants(t, true, "long after a stream that is never verified")
	s := open()
	d.pass(4*time.Second + freeAfter) // its tick is forgotten
	d.wants(t, true, "when its tick is forgotten")
	second := open()
	d.Reassign(d.now, s, "a", "")
	d.pass(3 * tickPeriod)
	d.wants(t, false, "when only the older one of two streams is verified")
	d.Reassign(d.now, second, "a", "")
	d.pass(freeAfter + tickPeriod)
	d.wants(t, true, "when both are verified")
	for range 100 { // verified within a tick, over many ticks
		s := open()
		d.pass(tickPeriod / 2)
		d.Reassign(d.now, s, "a", "")
		d.pass(tickPeriod / 2)
		d.wants(t, true, "while streams are verified soon")
	}
}

func TestWhatKeepsADeviceFromBeingFree(t *testing.T) {
	rules := map[string]arbiter.Rule{
		"limited": {Weight: 1, Mode: arbiter.Enforce, Limit: 100 * mib},
		"total":   arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}.WithTotal(0, 100*mib),
		"strict":  {Weight: 1, Mode: arbiter.Enforce, Reserve: reserve.Rate{Part: 0.3, Strict: true}},
		"rate":    {Weight: 1, Mode: arbiter.Enforce, Reserve: reserve.Rate{Part: 0.3}},
	}
	policy := func(flow string) arbiter.Rule {
		if r, ok := rules[flow]; ok {
			return r
		}
		return equal(flow)
	}
	for flow, want := range map[string]bool{"limited": false, "total": false, "strict": false, "rate": true, "other": true} {
		d := freeDevice(t, policy, nil)
		d.pass(time.Minute)
		d.wants(t, true, "before")
		for range 20 { // a strict rate is in force only after a request
			s := d.Open(d.now, arbiter.Opening{Flow: flow, File: cold{}, To: small})
			for _, r := range started(d.Arbiter, d.now) {
				end(d.Arbiter, d.now, r)
			}
			d.Close(d.now, s, small)
			d.pass(2 * tickPeriod)
		}
		d.wants(t, want, "while "+flow+" reads")
		d.pass(time.Minute)
		d.wants(t, true, "long after")
	}
	for name, change := range map[string]func(*arbiter.Config){
		"without a profile": func(c *arbiter.Config) { c.Cost = cost.Model{} },
		"a network":         func(c *arbiter.Config) { *c = arbiter.Config{Network: true, Rate: 100 * mib} },
	} {
		d := freeDevice(t, equal, change)
		d.pass(time.Minute)
		d.wants(t, false, name)
	}

	d := freeDevice(t, equal, nil)
	d.pass(time.Minute)
	d.read("a")
	d.Apply(d.now, arbiter.Observe, equal)
	d.wants(t, false, "at once in observe mode")
	d.Apply(d.now, arbiter.Enforce, equal)
	d.wants(t, false, "just after observe mode")
	d.pass(freeAfter + tickPeriod)
	d.wants(t, true, "in enforce mode again")
	d.read("a")
	d.Apply(d.now, arbiter.Enforce, func(string) arbiter.Rule { return rules["limited"] })
	d.wants(t, false, "at once with a limit of the flow that reads")

	d = freeDevice(t, equal, func(c *arbiter.Config) { c.Stuck = time.Second })
	d.pass(time.Minute)
	d.Open(d.now, arbiter.Opening{Flow: "a", File: cold{}, To: small})
	r := started(d.Arbiter, d.now)[0]
	d.pass(1500 * time.Millisecond)
	d.wants(t, false, "while it does not answer")
	d.Done(d.now, r, arbiter.Result{Moved: r.Length, Latency: 1500 * time.Millisecond})
	d.pass(time.Minute)
	d.wants(t, true, "when it has answered")
}

// TestFlowsThatAppearAndVanish checks that flows that are soon forgotten count nevertheless.
func TestFlowsThatAppearAndVanish(t *testing.T) {
	d := freeDevice(t, equal, func(c *arbiter.Config) { c.MaxFlows = 3 })
	d.pass(time.Minute)
	d.read("a")
	for i := range 100 {
		d.read(fmt.Sprint("hostile ", i))
		d.wants(t, false, "while new flows appear")
		d.pass(time.Second)
		d.wants(t, false, "a second after the last one")
	}
	d.pass(freeAfter)
	d.wants(t, true, "after they are gone")
	if n := len(d.Snapshot(d.now).Flows); n > 3 {
		t.Fatalf("%d flows are known", n)
	}
}

// TestFreeAgainstAModel compares the state with its definition, over random uses: a device is free at a tick if there
// was no breach in the pause before it, and it stops being free at a breach.
func TestFreeAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := func(flow string) arbiter.Rule {
			r := equal(flow)
			if flow == "limited" {
				r.Limit = 100 * mib
			}
			return r
		}
		d := freeDevice(t, policy, nil)
		d.pass(tickPeriod)
		type use struct {
			flow string
			at   time.Duration
		}
		var uses []use
		breach := d.now // the last one
		changes := []time.Duration{}
		was := false
		note := func() {
			if free := d.Free(); free != was {
				was = free
				changes = append(changes, d.now)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "uses") {
			flow := rapid.SampledFrom([]string{"a", "a", "a", "b", "c", "limited"}).Draw(t, "flow")
			gap := time.Duration(rapid.IntRange(0, 45).Draw(t, "gap")) * tickPeriod
			for end := d.now + gap; d.now < end; {
				d.pass(tickPeriod)
				note()
				flows := map[string]bool{}
				for _, u := range uses {
					if d.now-u.at < freeAfter {
						flows[u.flow] = true
					}
				}
				if d.Free() && (len(flows) > 1 || flows["limited"]) {
					t.Fatalf("at %v, the device is free, although %v have used it", d.now, flows)
				}
				if want := d.now-breach >= freeAfter; d.Free() != want {
					t.Fatalf("at %v, free is %v; the last breach was at %v, of %v", d.now, d.Free(), breach, uses)
				}
			}
			if n := len(uses); n > 0 && uses[n-1].flow != flow && d.now-uses[n-1].at < freeAfter || flow == "limited" {
				breach = d.now
			}
			uses = append(uses, use{flow, d.now})
			d.read(flow)
			note()
			if breach == d.now {
				d.wants(t, false, "at a breach")
			}
		}
		for i := 2; i < len(changes); i++ {
			if i%2 == 0 && changes[i]-changes[i-1] < freeAfter {
				t.Fatalf("the device was not free for less than %v: %v", freeAfter, changes)
			}
		}
	})
}

// TestPassingReadsGetNoMarks checks that a passing read never waits for the arbiter, in its accounts too, and that
// only small reads pass.
func TestPassingReadsGetNoMarks(t *testing.T) {
	for _, c := range []struct {
		to     int64
		passes bool
	}{{small, true}, {128 * kib, true}, {128*kib + 1, false}} {
		d := freeDevice(t, equal, nil)
		d.pass(time.Minute)
		s := d.Open(d.now, arbiter.Opening{Flow: "a", File: cold{}, To: c.to, Passing: true})
		actions, _ := d.Decide(d.now)
		var r *arbiter.Request
		for _, x := range actions {
			if x.Kind == arbiter.Start {
				r = x.Request
			}
		}
		if r == nil {
			t.Fatalf("%d bytes: the range is not staged", c.to)
		}
		d.Done(d.now, r, arbiter.Result{Moved: r.Length, Latency: time.Millisecond})
		done, _ := d.Decide(d.now)
		marks := 0
		for _, x := range done {
			if x.Kind == arbiter.Mark {
				marks++
			}
		}
		f := d.Snapshot(d.now).Flows[0]
		if c.passes != (marks == 0) || c.passes != (f.Waits == 0) {
			t.Errorf("%d bytes: %d marks, %d waits; passes: %v", c.to, marks, f.Waits, c.passes)
		}
		if f.Bytes[0] != min(c.to, 256*kib) {
			t.Errorf("%d bytes: %d are charged", c.to, f.Bytes[0])
		}
		d.Close(d.now, s, c.to)
		if snap := d.Snapshot(d.now); c.passes != (snap.Passed == 1) {
			t.Errorf("%d bytes: %d reads passed", c.to, snap.Passed)
		}
	}
}

// TestPassingReadsAreCharged checks that the bytes that passing readers fetch before the daemon looks are charged by
// the kernel's counters, and only once, and that reads from the page cache are not.
func TestPassingReadsAreCharged(t *testing.T) {
	d := freeDevice(t, equal, nil)
	var counters foreign.Counters
	second := func(reads, fetched int, others int64) arbiter.FlowSnapshot {
		for i := range reads {
			s := d.Open(d.now, arbiter.Opening{Flow: "a", File: cached{}, To: small, Passing: true})
			d.Close(d.now, s, small)
			if i < fetched {
				counters.Add(false, small)
			}
		}
		counters.Add(false, others)
		d.pass(time.Second)
		d.Observe(d.now, counters)
		for _, f := range d.Snapshot(d.now).Flows {
			return f
		}
		return arbiter.FlowSnapshot{}
	}
	second(0, 0, 100*mib) // the first look charges nothing
	f := second(100, 100, 0)
	if f.Bytes[0] != 100*small || f.Resident != 0 || f.Behind != 100*small {
		t.Errorf("100 reads of the device: %+v", f)
	}
	// 100 requests of 8 ms, and 10 ms for each MiB
	if want := 100*8*time.Millisecond + time.Duration(100*small)*10*time.Millisecond/time.Duration(mib); f.Service < want*99/100 || f.Service > want*101/100 {
		t.Errorf("the account has %v of device time, want %v", f.Service, want)
	}
	f = second(100, 25, 0)
	if f.Bytes[0] != 125*small {
		t.Errorf("25 of 100 reads needed the device: %d bytes are charged, want %d", f.Bytes[0], 125*small)
	}
	f = second(0, 0, 0)
	second(0, 0, 0)
	if f = second(0, 0, 0); f.Bytes[0] != 125*small || f.Resident != 75*small {
		t.Errorf("then nothing: charged %d, resident %d; want %d and %d", f.Bytes[0], f.Resident, 125*small, 75*small)
	}
	// Foreign reads are not the flow's, except for as many bytes as its readers found in the page cache.
	if f = second(0, 0, 10*mib); f.Bytes[0] != 125*small {
		t.Errorf("foreign reads alone: %d bytes are charged, want %d", f.Bytes[0], 125*small)
	}
	if f = second(10, 10, 10*mib); f.Bytes[0] != 135*small {
		t.Errorf("beside foreign reads: %d bytes are charged, want %d", f.Bytes[0], 135*small)
	}
	// A read that ends after the look is found by the next one.
	s := d.Open(d.now, arbiter.Opening{Flow: "a", File: cached{}, To: small, Passing: true})
	d.pass(10 * time.Millisecond)
	d.Observe(d.now, counters)
	counters.Add(false, small)
	d.Close(d.now, s, small)
	if f = second(0, 0, 0); f.Bytes[0] != 136*small {
		t.Errorf("a read that ended later: %d bytes are charged, want %d", f.Bytes[0], 136*small)
	}
	// Counters that begin again.
	counters = foreign.Counters{}
	if f = second(10, 10, 0); f.Bytes[0] > 146*small {
		t.Errorf("counters that begin again: %d bytes are charged, want at most %d", f.Bytes[0], 146*small)
	}
	if f = second(10, 10, 0); f.Bytes[0] < 146*small {
		t.Errorf("after counters have begun again: %d bytes are charged, want at least %d", f.Bytes[0], 146*small)
	}
	if why := d.Check(); why != "" {
		t.Error(why)
	}
}

// passes lets a flow find a number of small ranges in the page cache.
func (d *device) passes(flow string, reads int) {
	for range reads {
		s := d.Open(d.now, arbiter.Opening{Flow: flow, File: cached{}, To: small, Passing: true})
		d.Close(d.now, s, small)
	}
}

// TestChargesOfPassingReadsAreBounded checks that foreign reads beside passing reads of the page cache cost the flows no more
// random requests than the kernel has counted, and no more than the device's time.
func TestChargesOfPassingReadsAreBounded(t *testing.T) {
	part := 8*time.Millisecond + time.Duration(small)*10*time.Millisecond/time.Duration(mib)
	for name, c := range map[string]struct {
		flows, finds  int // ranges that each flow finds
		requests      int // foreign ones
		size          int64
		bytes         int64         // charged in all
		least, most   time.Duration // charged in all
		own, elapsing time.Duration
	}{
		"few large requests":           {flows: 1, finds: 1000, requests: 4, size: 4 * mib, bytes: 1000 * small, least: 180 * time.Millisecond, most: 190 * time.Millisecond},
		"more requests than ranges":    {flows: 1, finds: 10, requests: 4000, size: small, bytes: 10 * small, least: 10 * part * 99 / 100, most: 10 * part},
		"all of the device's time":     {flows: 1, finds: 10_000, requests: 10_000, size: small, bytes: 10_000 * small, least: 990 * time.Millisecond, most: time.Second},
		"two flows share it":           {flows: 2, finds: 5000, requests: 10_000, size: small, bytes: 10_000 * small, least: 990 * time.Millisecond, most: time.Second},
		"beside the daemon's requests": {flows: 1, finds: 10_000, requests: 10_000, size: small, own: 360 * time.Millisecond, bytes: 10_000 * small, least: 630 * time.Millisecond, most: 640 * time.Millisecond},
		"no time between two calls":    {flows: 1, finds: 10, requests: 10, size: small, elapsing: 1, bytes: 10 * small, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := freeDevice(t, equal, func(c *arbiter.Config) { c.FixedDepth, c.Algorithm = 64, "sfqd" })
			var counters foreign.Counters
			d.Observe(d.now, counters)
			d.pass(5 * time.Second)
			d.Observe(d.now, counters)
			from := d.now
			if c.own > 0 { // requests of a MiB, each at a random place
				for range c.own / (18 * time.Millisecond) {
					s := d.Open(d.now, arbiter.Opening{Flow: "own", File: cold{}, To: mib, Missing: []int64{mib}})
					for _, r := range started(d.Arbiter, d.now) {
						counters.Add(false, r.Length)
						end(d.Arbiter, d.now, r)
					}
					d.Close(d.now, s, mib)
				}
			}
			for i := range c.flows {
				d.passes(fmt.Sprint("f", i), c.finds)
			}
			for range c.requests {
				counters.Add(false, c.size)
			}
			if c.elapsing == 0 {
				c.elapsing = time.Second
			}
			d.pass(c.elapsing)
			d.Observe(d.now, counters)
			sum, bytes := time.Duration(0), int64(0)
			var each []time.Duration
			for _, f := range d.Snapshot(d.now).Flows {
				if f.Name != "own" {
					sum, bytes, each = sum+f.Service, bytes+f.Bytes[0], append(each, f.Service)
				}
			}
			if bytes != c.bytes || sum < c.least || sum > c.most {
				t.Errorf("%d bytes and %v in %v are charged; want %d bytes and %v to %v", bytes, sum, d.now-from, c.bytes, c.least, c.most)
			}
			if len(each) == 2 && (each[0] < each[1]*99/100 || each[0] > each[1]*101/100) {
				t.Errorf("two equal flows are charged %v", each)
			}
			if why := d.Check(); why != "" {
				t.Error(why)
			}
		})
	}
}

// TestPassingReadsBesideARequest checks that reads which the kernel has counted while their bytes were not distinguishable
// from a request in flight are charged one by one later.
func TestPassingReadsBesideARequest(t *testing.T) {
	d := freeDevice(t, equal, nil)
	var counters foreign.Counters
	d.pass(5 * time.Second)
	d.Observe(d.now, counters)
	own := d.Open(d.now, arbiter.Opening{Flow: "own", File: cold{}, To: gib})
	r := started(d.Arbiter, d.now)[0]
	d.Close(d.now, own, 0)
	d.passes("a", 5)
	for range 5 {
		counters.Add(false, small)
	}
	service := func() (all time.Duration) {
		for _, f := range d.Snapshot(d.now).Flows {
			if f.Name == "a" {
				all += f.Service
			}
		}
		return all
	}
	d.pass(time.Second)
	d.Observe(d.now, counters)
	if had := service(); had != 0 {
		t.Errorf("beside a request of %d bytes, %v are charged at once", r.Length, had)
	}
	counters.Add(false, r.Length)
	end(d.Arbiter, d.now, r)
	d.pass(time.Second)
	d.Observe(d.now, counters)
	if had, want := service(), 5*8*time.Millisecond; had < want || had > want*105/100 {
		t.Errorf("after the request, %v are charged, want about %v", had, want)
	}
}

// A flow whose passing readers find their ranges in the page cache beside a foreign backup is charged at most the device's
// time, so it has its share again when its debt is paid.
func TestCachedReadsBesideABackup(t *testing.T) {
	cfg := diskConfig(150e6, 8*time.Millisecond)
	cfg.Algorithm, cfg.FixedDepth, cfg.Quantum = "sfqd", 2, 2*mib
	w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: equal}, 150e6, 8*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	w.observe()
	w.run(3 * time.Second)
	hot := w.newFile(small)
	hot.resident.add(0, small)
	until, passed := w.now+20*time.Second, 0
	var read, backup func()
	read = func() {
		if w.now >= until {
			return
		}
		free := w.a.Free()
		if free {
			passed++
		}
		w.close(w.open(&stream{file: hot}, arbiter.Opening{Flow: "cached", To: small, Passing: free}), small)
		w.after(500*time.Microsecond, read)
	}
	backup = func() { // 64 MB/s in order
		if w.now < until {
			w.disk.counted.Add(false, packet)
			w.after(time.Millisecond, backup)
		}
	}
	read()
	backup()
	w.run(21 * time.Second)
	f := w.a.Snapshot(w.now).Flows[0]
	if passed < 30_000 || f.Service > 21*time.Second {
		t.Errorf("%d reads passed; they are charged %v in 21 s", passed, f.Service)
	}
	w.reader("cached", endlessFile)
	w.reader("other", endlessFile)
	w.run(20 * time.Second)
	if had := w.between(w.now-10*time.Second, w.now)["cached"].service.Seconds() / 10; had < 0.45 {
		t.Errorf("10 s later, the flow has %.3f of the device", had)
	}
}

// TestALimitCountsPassingReads checks that what has passed counts against the flow's limit.
func TestALimitCountsPassingReads(t *testing.T) {
	policy := func(flow string) arbiter.Rule { r := equal(flow); r.Limit = mib; return r }
	d := freeDevice(t, policy, nil)
	var counters foreign.Counters
	d.Observe(1, counters)
	d.pass(time.Minute)
	d.wants(t, true, "before")
	for range 320 { // 5 MiB: the agents may not have heard yet that the device is no longer free
		s := d.Open(d.now, arbiter.Opening{Flow: "a", File: cached{}, To: small, Passing: true})
		d.Close(d.now, s, small)
		counters.Add(false, small)
	}
	d.wants(t, false, "at the first read")
	d.Observe(d.now, counters)
	d.Open(d.now, arbiter.Opening{Flow: "a", File: cold{}, To: small})
	if n := len(started(d.Arbiter, d.now)); n != 0 {
		t.Fatalf("%d requests start beyond the limit", n)
	}
	begin := d.now
	for len(started(d.Arbiter, d.now)) == 0 {
		if d.now += tickPeriod; d.now-begin > time.Minute {
			t.Fatal("the next read never starts")
		}
	}
	if waited := d.now - begin; waited < 4*time.Second || waited > 6*time.Second {
		t.Errorf("the next read waits for %v after 5 MiB with a limit of 1 MiB/s", waited)
	}
}

// TestPassingReadsOfAnything plays passing reads on a disk, where sometimes the daemon's request comes first, sometimes
// the reader, and sometimes both find the pages in the cache. The accounts must be those of the disk.
func TestPassingReadsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := freeDevice(t, equal, nil)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		early := rapid.Float64Range(0, 1).Draw(t, "part of the reads that come before the daemon looks")
		hits := rapid.Float64Range(0, 1).Draw(t, "part of the reads in the page cache")
		var counters foreign.Counters
		d.Observe(1, counters)
		var truth, all int64
		for second := range 20 {
			for range 30 {
				n := (1 + random.Int64N(32)) * 4096
				all += n
				o := arbiter.Opening{Flow: "a", File: cached{}, To: n, Passing: true}
				if random.Float64() >= hits {
					truth += n
					counters.Add(false, n)
					if random.Float64() >= early {
						o.File, o.Missing = cold{}, []int64{n}
					}
				}
				s := d.Open(d.now, o)
				if random.IntN(2) == 0 {
					d.Close(d.now, s, n) // before its request starts
				}
				for _, r := range started(d.Arbiter, d.now) {
					moved := r.Length
					if random.IntN(2) == 0 {
						moved = 0 // the reader came first
					}
					d.Done(d.now, r, arbiter.Result{Moved: moved, Latency: time.Duration(moved)})
				}
				d.Close(d.now, s, n)
			}
			d.pass(time.Second)
			d.Observe(d.now, counters)
			f := d.Snapshot(d.now).Flows[0]
			if f.Bytes[0] != truth {
				t.Fatalf("after %d s: %d bytes are charged, the device has read %d", second+1, f.Bytes[0], truth)
			}
			if why := d.Check(); why != "" {
				t.Fatal(why)
			}
		}
		d.pass(time.Second)
		d.Observe(d.now, counters)
		d.Observe(d.now+1, counters)
		if f := d.Snapshot(d.now).Flows[0]; f.Resident != all-truth {
			t.Fatalf("%d bytes were resident, the account has %d", all-truth, f.Resident)
		}
	})
}
