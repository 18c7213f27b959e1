package arbiter_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/arbiter"
)

// TestStarvedReadersGetTheirDueAndNoMore has 200 readers of an application of weight 1 beside a
// reader of weight 32. The packets that keep the clients from giving up come out of the readers'
// own share.
func TestStarvedReadersGetTheirDueAndNoMore(t *testing.T) {
	const seek = 10 * time.Millisecond
	for _, checksums := range []bool{false, true} {
		cfg := diskConfig(testRate, seek)
		cfg.Algorithm, cfg.FixedDepth = "sfqd", 2
		w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: enforced(map[string]int{"protected": 32})}, testRate, seek)
		if err != nil {
			t.Fatal(err)
		}
		w.reader("protected", endlessFile)
		var starved []*agent
		for range 200 {
			s := &stream{}
			if checksums {
				s.meta = w.newFile(mib)
			}
			starved = append(starved, w.drive(w.open(s, arbiter.Opening{Flow: "starved", To: 128 * mib}), 0, 128*mib))
		}
		w.run(10 * time.Minute)
		const settled = 2 * time.Minute
		all := w.between(settled, w.now)
		s, p := all["starved"], all["protected"]
		var longest time.Duration
		for _, g := range starved {
			longest = max(longest, g.longestWait())
		}
		due := float64(s.bytes+p.bytes) / 33
		t.Logf("checksums: %v: the starved readers have %.2f times their due in bytes and %.2f in time, the protected reader %.3f of its due in bytes and %.3f in time; the longest wait is %v",
			checksums, float64(s.bytes)/due, float64(s.service)/float64(s.service+p.service)*33, float64(p.bytes)/(due*32), float64(p.service)/float64(w.now-settled)*33/32, longest)
		if float64(s.bytes) > 1.1*due {
			t.Errorf("the starved readers have %.2f times their due", float64(s.bytes)/due)
		}
		if float64(p.bytes) < 0.95*32*due {
			t.Errorf("the protected reader has %.2f of its due in bytes", float64(p.bytes)/(32*due))
		}
		if part := float64(p.service) / float64(w.now-settled) * 33 / 32; part < 0.95 {
			t.Errorf("the protected reader has %.2f of its due in disk time", part)
		}
		if longest >= 60*time.Second {
			t.Errorf("a client has waited for %v", longest)
		}
	}
}

// TestNobodyWaitsUntilItsClientGivesUp draws shares and time-outs of clients. No stream may wait
// until its client gives up, as long as packets for all starved streams fit into a tenth of the
// device time.
func TestNobodyWaitsUntilItsClientGivesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := diskWorld(t, rapid.IntRange(1, 4).Draw(t, "depth"), enforced(map[string]int{"protected": 1_000_000}), func(c *arbiter.Config) {
			c.Quantum = rapid.SampledFrom([]int64{256 * kib, mib, 2 * mib}).Draw(t, "quantum")
		})
		w.reader("protected", endlessFile)
		var agents []*agent
		// Each stream takes one packet per patience. 64 KiB take 7.5 ms. All packets together may
		// take a twentieth of the time.
		load := 0.0
		for range rapid.IntRange(1, 120).Draw(t, "streams") {
			patience := time.Duration(rapid.Int64Range(int64(3*time.Second), int64(90*time.Second)).Draw(t, "patience"))
			load += 0.0075 / min(patience, 45*time.Second).Seconds()
			if load > 0.05 {
				break
			}
			o := arbiter.Opening{Flow: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "flow"), Patience: patience, Write: rapid.Bool().Draw(t, "write")}
			if !o.Write {
				o.To = endlessFile
			}
			g := w.drive(w.open(&stream{}, o), 0, endlessFile)
			agents = append(agents, g)
			w.run(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")))
		}
		w.run(3 * time.Minute)
		for _, g := range agents {
			// An HDFS client gives up after 60 s if its patience is 45 s. A client that reads for
			// erasure coding gives up after 5 s if its patience is 3 s.
			bears := max(g.patience*4/3, g.patience+2*time.Second)
			if wait := g.longestWait(); wait > bears {
				t.Fatalf("a stream whose client gives up after %v (writes: %v) has waited for %v", bears, g.s.write, wait)
			}
		}
	})
}

// TestTheLeastPatience checks that a stream with a patience of almost 0 gets one packet in three
// seconds.
func TestTheLeastPatience(t *testing.T) {
	w := diskWorld(t, 2, enforced(map[string]int{"protected": 1_000_000}), nil)
	w.reader("protected", endlessFile)
	w.run(time.Second)
	for range 10 {
		w.drive(w.open(&stream{}, arbiter.Opening{Flow: "hasty", To: endlessFile, Patience: 1}), 0, endlessFile)
	}
	w.run(10 * time.Second)
	for _, f := range w.a.Snapshot(w.now).Flows {
		if f.Name == "hasty" && (f.Forced < 20 || f.Forced > 40) {
			t.Errorf("%d packets in 10 s for 10 streams", f.Forced)
		}
	}
}

// TestOneFlowDoesNotTakeTheForcedLane checks that a flow with many starved readers does not take
// the forced packets of another flow's reader, or of writers.
func TestOneFlowDoesNotTakeTheForcedLane(t *testing.T) {
	w := diskWorld(t, 2, enforced(map[string]int{"protected": 1_000_000}), func(c *arbiter.Config) { c.Quantum = 2 * mib })
	w.reader("protected", endlessFile)
	for range 1000 {
		w.reader("crowd", endlessFile)
	}
	w.run(time.Minute)
	reader, writer := w.reader("other", endlessFile), w.writer("another", endlessFile)
	w.run(5 * time.Minute)
	for what, g := range map[string]*agent{"reader": reader, "writer": writer} {
		if wait := g.longestWait(); wait > time.Minute {
			t.Errorf("a %s of another flow has waited for %v", what, wait)
		}
	}
	if problem := w.a.Check(); problem != "" {
		t.Error(problem)
	}
}

// TestReadersThatNeedMoreAtATime has readers that need more than a packet at once and begin at any
// position.
func TestReadersThatNeedMoreAtATime(t *testing.T) {
	for _, needs := range []int64{128 * kib, 256 * kib, mib} {
		for _, from := range []int64{0, 36 * kib, 100 * kib, mib - 4*kib} {
			w := diskWorld(t, 2, enforced(map[string]int{"protected": 1_000_000}), nil)
			w.reader("protected", endlessFile)
			g := w.drive(w.open(&stream{}, arbiter.Opening{Flow: "starved", From: from, To: endlessFile}), 0, endlessFile)
			g.pos, g.reported, g.needs = from, from, needs
			for range 10 {
				w.run(time.Minute)
				if problem := w.a.Check(); problem != "" {
					t.Fatal(problem)
				}
			}
			// Each packet after the first comes a sixteenth of the patience later.
			bears := 45*time.Second + time.Duration(needs/packet)*45*time.Second/16 + time.Second
			if wait := g.longestWait(); wait > bears || g.pos == from {
				t.Errorf("a reader of %d bytes at a time from %d on has reached %d and waited for %v, want at most %v", needs, from, g.pos, wait, bears)
			}
		}
	}
}

// TestStarvedReadersBesideSlowOnes checks that slow clients of a starved flow do not delay the
// packets of other clients.
func TestStarvedReadersBesideSlowOnes(t *testing.T) {
	w := diskWorld(t, 2, enforced(map[string]int{"protected": 1_000_000}), nil)
	w.reader("protected", endlessFile)
	for range 4 {
		w.reader("starved", endlessFile).needs = 2 * mib
	}
	w.run(46 * time.Second)
	var starved []*agent
	for range 200 {
		starved = append(starved, w.reader("starved", endlessFile))
	}
	w.run(5 * time.Minute)
	for _, g := range starved {
		if wait := g.longestWait(); wait > time.Minute {
			t.Fatalf("a reader has waited for %v", wait)
		}
	}
	if problem := w.a.Check(); problem != "" {
		t.Error(problem)
	}
}

// TestARuleThatBeginsToEnforceRestartsWaits checks that waits in observe mode do not make a stream
// starved.
func TestARuleThatBeginsToEnforceRestartsWaits(t *testing.T) {
	mode := arbiter.Observe
	policy := func(flow string) arbiter.Rule {
		if flow == "observed" {
			return arbiter.Rule{Weight: 1, Mode: mode}
		}
		return arbiter.Rule{Weight: 1_000_000, Mode: arbiter.Enforce}
	}
	w := diskWorld(t, 2, policy, nil)
	w.reader("protected", endlessFile)
	for range 20 {
		w.writer("observed", endlessFile)
		w.reader("observed", endlessFile)
	}
	w.run(2 * time.Minute)
	forced := func() int64 {
		for _, f := range w.a.Snapshot(w.now).Flows {
			if f.Name == "observed" {
				return f.Forced
			}
		}
		return 0
	}
	before := forced()
	mode = arbiter.Enforce
	w.a.Apply(w.now, arbiter.Enforce, policy)
	w.run(30 * time.Second)
	if n := forced() - before; n > 0 {
		t.Errorf("%d forced packets within 30 s after enforce mode began", n)
	}
}
