package arbiter_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/arbiter"
)

// These tests check shares in virtual time. The disk's own log is the judge, in every window of ten
// seconds.

const (
	testRate    = 12e6
	testSeek    = 2 * time.Millisecond
	testQuantum = 256 * kib
	endlessFile = 64 * gib
)

// enforced returns a policy of weights. Flows that are not named have weight 1.
func enforced(weights map[string]int) arbiter.Policy {
	return func(flow string) arbiter.Rule {
		return arbiter.Rule{Weight: max(1, weights[flow]), Mode: arbiter.Enforce}
	}
}

// diskWorld returns a disk of 12 MB/s with its profile, and an arbiter with the given depth.
func diskWorld(t fataler, depth int, policy arbiter.Policy, more func(*arbiter.Config)) *world {
	t.Helper()
	cfg := diskConfig(testRate, testSeek)
	cfg.Algorithm, cfg.FixedDepth, cfg.Quantum = "sfqd", depth, testQuantum
	if more != nil {
		more(&cfg)
	}
	w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: policy}, testRate, testSeek)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// got is the disk's work for one flow in a period.
type got struct {
	bytes, written int64
	service        time.Duration
}

// between returns the disk's work for each flow in [from, to). A request counts by the part of its
// time in this period.
func (w *world) between(from, to time.Duration) map[string]got {
	out := map[string]got{}
	for _, e := range w.disk.log {
		begin, end := max(from, e.at-e.took), min(to, e.at)
		if end <= begin {
			continue
		}
		part := float64(end-begin) / float64(e.took)
		g := out[e.flow]
		g.bytes += int64(part * float64(e.bytes))
		if e.write {
			g.written += int64(part * float64(e.bytes))
		}
		g.service += end - begin
		out[e.flow] = g
	}
	return out
}

// holds fails the test unless each flow had its share in every window, within 5 % or within the
// given number of quanta, whichever is more.
func (w *world) holds(t fataler, weights map[string]int, quanta float64, from, to time.Duration) (worst float64) {
	t.Helper()
	const window = 10 * time.Second
	quantum := time.Duration(float64(w.cfg.Quantum)/testRate*float64(time.Second)) + w.disk.seek
	all := 0
	for _, n := range weights {
		all += n
	}
	for ; from+window <= to; from += time.Second {
		shares := w.between(from, from+window)
		var sum time.Duration
		for _, g := range shares {
			sum += g.service
		}
		if sum < window*99/100 {
			t.Fatalf("in the window from %v the disk was busy for only %v", from, sum)
		}
		for flow, weight := range weights {
			due := float64(sum) * float64(weight) / float64(all)
			off := math.Abs(float64(shares[flow].service) - due)
			worst = max(worst, off/due)
			if off > max(0.05*due, quanta*float64(quantum)) {
				t.Fatalf("in the window from %v flow %s of weight %d of %d got %v, want %v", from, flow, weight, all, shares[flow].service, time.Duration(due))
			}
		}
	}
	return worst
}

func TestSharesOfTheIssue(t *testing.T) {
	for _, weights := range []map[string]int{{"a": 100, "b": 1}, {"a": 13, "b": 5, "c": 2}, {"a": 32, "b": 1}, {"a": 1, "b": 1}} {
		for _, depth := range []int{1, 2, 4} {
			w := diskWorld(t, depth, enforced(weights), func(c *arbiter.Config) { c.Ahead = 8 })
			for flow := range weights {
				w.reader(flow, endlessFile)
			}
			w.run(60 * time.Second)
			t.Logf("%v at depth %d: deviation up to %.3f", weights, depth, w.holds(t, weights, 1, 5*time.Second, 60*time.Second))
		}
	}
}

// TestSharesOfAnything checks that each flow gets its share by weight, whatever its numbers of
// streams, users and writers are, and however long one file may be served in a row.
func TestSharesOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := map[string]int{}
		kinds := map[string]string{}
		flows := rapid.IntRange(2, 5).Draw(t, "flows")
		for i := range flows {
			name := fmt.Sprint("f", i)
			weights[name] = rapid.IntRange(1, 100).Draw(t, "weight")
			kinds[name] = rapid.SampledFrom([]string{"reads", "writes", "both"}).Draw(t, "kind")
		}
		depth := rapid.IntRange(1, 4).Draw(t, "depth")
		w := diskWorld(t, depth, enforced(weights), func(c *arbiter.Config) {
			c.Algorithm = rapid.SampledFrom([]string{"sfqd", "sfqd2"}).Draw(t, "algorithm")
			c.Ahead = rapid.IntRange(4, 16).Draw(t, "ahead")
			c.Run = rapid.Int64Range(1, 32).Draw(t, "run") * testQuantum
		})
		for i := range flows {
			name := fmt.Sprint("f", i)
			for k := range rapid.IntRange(1, 6).Draw(t, "streams") {
				write := kinds[name] == "writes" || kinds[name] == "both" && k%2 == 0
				o := arbiter.Opening{Flow: name, User: fmt.Sprint("u", rapid.IntRange(0, 2).Draw(t, "user")), Write: write}
				if !write {
					o.To = endlessFile
				}
				w.drive(w.open(&stream{}, o), 0, endlessFile)
			}
		}
		w.run(40 * time.Second)
		// If requests of other flows are irregular, a window can lose a part of one at each end.
		w.holds(t, weights, 1.25, 10*time.Second, 40*time.Second)
	})
}

// TestAWriterBesideReadersHasHalf checks that reads and writes of one application each get half of
// its service, with and without another application.
func TestAWriterBesideReadersHasHalf(t *testing.T) {
	for _, neighbour := range []bool{false, true} {
		w := diskWorld(t, 2, enforced(nil), func(c *arbiter.Config) { c.Quantum = 2 * mib })
		var readers []*agent
		for range 4 {
			readers = append(readers, w.reader("a", endlessFile))
		}
		writer := w.writer("a", endlessFile)
		due := 0.5
		if neighbour {
			w.reader("b", endlessFile)
			due = 0.25
		}
		w.run(10 * time.Second)
		writer.longest = 0
		w.run(120 * time.Second)
		all := w.between(10*time.Second, w.now)
		part := float64(all["a"].written) / float64(all["a"].bytes+all["b"].bytes)
		t.Logf("beside b: %v: the writer has %.3f of the bytes, its due is %.3f; its longest wait is %v", neighbour, part, due, writer.longestWait())
		if part < 0.8*due {
			t.Errorf("the writer got %.3f of the bytes, its due is %.3f", part, due)
		}
		// Beside b, the readers are served in turn, in runs of a second each.
		standing := []*agent{writer}
		if !neighbour {
			standing = append(standing, readers...)
		}
		for _, g := range standing {
			if g.longestWait() > 3*time.Second {
				t.Errorf("a stream waited for %v", g.longestWait())
			}
		}
	}
}

// TestALimitWithManyStreams checks that a limit holds with many streams, on an idle and on a busy
// disk.
func TestALimitWithManyStreams(t *testing.T) {
	for _, busy := range []bool{false, true} {
		for _, what := range []string{"reads", "writes", "both"} {
			policy := func(flow string) arbiter.Rule {
				r := arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
				if flow == "limited" {
					r.Limit = 1e6
				}
				return r
			}
			w := diskWorld(t, 4, policy, func(c *arbiter.Config) { c.Quantum = 2 * mib })
			for i := range 100 {
				if what == "writes" || what == "both" && i%2 == 0 {
					w.writer("limited", endlessFile)
				} else {
					w.reader("limited", endlessFile)
				}
			}
			if busy {
				w.reader("other", endlessFile)
			}
			w.run(10 * time.Second)
			for range 4 {
				from := w.now
				w.run(30 * time.Second)
				rate := float64(w.between(from, w.now)["limited"].bytes) / 30
				if math.Abs(rate-1e6) > 0.05*1e6 {
					t.Errorf("%s, with another flow: %v: %.0f bytes a second from %v on", what, busy, rate, from)
				}
			}
		}
	}
}

// TestFilesOneAfterTheOtherGainNothing checks that a user who reads one file after the other gets
// no more than a user who reads a long file. The same must apply to two streams of one user.
func TestFilesOneAfterTheOtherGainNothing(t *testing.T) {
	for _, users := range [][2]string{{"a", "b"}, {"a", "a"}} {
		w := diskWorld(t, 2, enforced(nil), func(c *arbiter.Config) { c.Quantum, c.Run = 2*mib, 8*mib })
		long := &stream{file: w.newFile(endlessFile)}
		w.drive(w.open(long, arbiter.Opening{Flow: "clients", User: users[0], To: endlessFile}), 0, endlessFile)
		short := 0
		var next func()
		next = func() {
			s := w.open(&stream{}, arbiter.Opening{Flow: "clients", User: users[1], To: 8 * mib})
			w.drive(s, 0, 8*mib).then = func() {
				short++
				w.after(time.Millisecond, next)
			}
		}
		next()
		w.run(2 * time.Minute)
		part := float64(long.agent.pos) / float64(long.agent.pos+int64(short)*8*mib)
		t.Logf("users %v: the long file has %.3f of the bytes", users, part)
		if part < 0.4 || part > 0.7 {
			t.Errorf("users %v: the long file has %.3f of the bytes, want half", users, part)
		}
	}
}
