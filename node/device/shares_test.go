package device

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
)

// Shares in virtual time, judged as on the real disk (e2e/shares): from the disk's own log, in
// every window of 10 s. There is no real machine here, so any error within a window comes from the
// scheduler.

const (
	shareWindow = 10 * time.Second
	shareSlide  = time.Second
	settling    = 2 * time.Second // how long after a change shares may deviate

	// An application with one part in eleven gets 40 quanta in a window: one quantum more or less
	// at the window's ends is half of the tolerance.
	shareQuantum = 256 << 10
	shareRate    = 12_000_000 // bytes per second
	shareSeek    = 2 * time.Millisecond
)

// part is an application that always wants more.
type part struct {
	flow   string
	weight int
	write  bool
	size   int64 // bytes of its file; it ends with the file
}

func (p part) start(r *fixture, done *sync.WaitGroup) {
	if p.write {
		r.writer(p.flow, p.size, done)
	} else {
		r.reader(p.flow, p.size, 0, done)
	}
}

// shareFixture returns a loop with the settings of e2e/shares, on a disk with the same rate and
// seeks: 12 MB/s, 2 ms. With the disk's profile it knows the cost of seeks.
func shareFixture(t *testing.T, algorithm string, profiled bool, parts []part) *fixture {
	weights := map[string]int{}
	for _, p := range parts {
		weights[p.flow] = p.weight
	}
	r := newFixture(t, func(c *Config) {
		line := depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 180 * time.Millisecond}
		*c = Config{
			Algorithm: algorithm, FixedDepth: 4, Quantum: shareQuantum, Ahead: 16, Backlog: 8 * mib, MaxFlows: 8192,
			Depth: depth.Config{Min: 1, Max: 12, Start: 2, Gain: 0.5, Read: line, Write: line},
		}
		if profiled {
			perMiB := mib * time.Second / shareRate
			c.Cost.Read = cost.Coefficients{Random: cost.Line{Fixed: shareSeek, PerMiB: perMiB}, Sequential: cost.Line{PerMiB: perMiB}}
			c.Cost.Write = c.Cost.Read
		}
	}, weights)
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	r.disk.rate, r.disk.seek = shareRate, shareSeek
	return r
}

// got is the disk's service for a flow, with the times of its first and last request.
type got struct {
	bytes       int64
	service     time.Duration
	first, last time.Time
}

// between returns the service of each flow between two moments; a request counts at its end.
func (d *modelDisk) between(from, to time.Time) map[string]got {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]got{}
	for i, s := range d.log {
		if s.at.Before(from) || !s.at.Before(to) {
			continue
		}
		flow, _, _ := strings.Cut(s.name, "/")
		g := out[flow]
		if g.first.IsZero() {
			g.first = s.at
		}
		g.last = s.at
		g.bytes += s.length
		g.service += time.Duration(float64(s.length) / float64(d.rate) * float64(time.Second))
		if i == 0 || d.log[i-1].name != s.name || d.log[i-1].offset+d.log[i-1].length != s.offset {
			g.service += d.seek
		}
		out[flow] = g
	}
	return out
}

func bytesOf(g got) float64   { return float64(g.bytes) }
func serviceOf(g got) float64 { return float64(g.service) }

// hold fails the test unless, in every window between two moments, each of the parts got its
// entitlement within 5 %, and all parts together got all of the disk's time.
func hold(t *testing.T, what string, d *modelDisk, from, to time.Time, measure func(got) float64, parts []part) {
	t.Helper()
	weights, windows, worst := 0, 0, map[string]float64{}
	for _, p := range parts {
		weights += p.weight
	}
	for ; !from.Add(shareWindow).After(to); from = from.Add(shareSlide) {
		shares := d.between(from, from.Add(shareWindow))
		sum, service := 0.0, time.Duration(0)
		for _, p := range parts {
			sum += measure(shares[p.flow])
			service += shares[p.flow].service
		}
		windows++
		if busy := service.Seconds() / shareWindow.Seconds(); busy < 0.99 {
			t.Errorf("%s: in the window from %v the parts had %.3f of the disk's time", what, from, busy)
		}
		for _, p := range parts {
			due := float64(p.weight) / float64(weights)
			off := measure(shares[p.flow])/sum/due - 1
			if math.Abs(off) > math.Abs(worst[p.flow]) {
				worst[p.flow] = off
			}
			if !(math.Abs(off) <= 0.05) {
				t.Errorf("%s: in the window from %v %s is off its due by %+.1f %%", what, from, p.flow, 100*off)
			}
		}
	}
	if windows == 0 {
		t.Fatalf("%s: no window", what)
	}
	var line strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&line, " %s %+.1f %%", p.flow, 100*worst[p.flow])
	}
	t.Logf("%s, %d windows, worst deviations:%s", what, windows, &line)
}

// mixes are the kinds of applications that share by 7:3:1.
var mixes = map[string][]part{
	"writers": {{"a", 7, true, 200 * mib}, {"b", 3, true, 400 * mib}, {"c", 1, true, 400 * mib}},
	"readers": {{"a", 7, false, 200 * mib}, {"b", 3, false, 400 * mib}, {"c", 1, false, 400 * mib}},
	"mix":     {{"a", 7, false, 200 * mib}, {"b", 3, true, 400 * mib}, {"c", 1, false, 400 * mib}},
}

// Two applications are at work, and a third with the largest weight joins them and leaves again.
// From 2 s after each change all have their entitlements.
func TestThreeWeightsAJoinAndALeave(t *testing.T) {
	for _, loop := range []struct {
		algorithm string
		profiled  bool
		measure   func(got) float64 // the loop's own measure of cost
	}{{"sfqd", false, bytesOf}, {"sfqd2", false, bytesOf}, {"sfqd2", true, serviceOf}} {
		for name, parts := range mixes {
			t.Run(fmt.Sprintf("%s/profiled=%v/%s", loop.algorithm, loop.profiled, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := shareFixture(t, loop.algorithm, loop.profiled, parts)
					var staying, leaving sync.WaitGroup
					began := time.Now()
					parts[1].start(r, &staying)
					parts[2].start(r, &staying)
					// This is not a round number: the moment within a period must not matter.
					time.Sleep(13*time.Second + 370*time.Millisecond)
					joined := time.Now()
					parts[0].start(r, &leaving)
					leaving.Wait()
					time.Sleep(settling + shareWindow + 5*shareSlide)
					end := time.Now()
					r.stop()
					staying.Wait()
					third := r.disk.between(began, end)[parts[0].flow]
					t.Logf("its first request ended after %v, its last after %v", third.first.Sub(joined), third.last.Sub(joined))
					hold(t, "before", r.disk, began.Add(settling), joined, loop.measure, parts[1:])
					hold(t, "with the third", r.disk, joined.Add(settling), third.last.Add(-settling), loop.measure, parts)
					hold(t, "after", r.disk, third.last.Add(settling), end, loop.measure, parts[1:])
				})
			})
		}
	}
}

// 5,000 idle applications that did I/O before change nothing: the disk gets the same requests
// from the two busy ones, at the same times.
func TestIdleFlowsChangeNothing(t *testing.T) {
	const idle = 5000
	parts := []part{{"a", 3, false, 100 * mib}, {"b", 1, true, 100 * mib}}
	requests := func(idle int) (log []served) {
		synctest.Test(t, func(t *testing.T) {
			r := shareFixture(t, "sfq", false, parts) // the model disk does not determine which of the two comes first
			defer r.stop()
			start := time.Now().Add(time.Minute)
			var quiet, busy sync.WaitGroup
			for i := range idle {
				part{flow: fmt.Sprint("idle-", i), size: 4096, write: i%2 == 0}.start(r, &quiet)
			}
			quiet.Wait()
			time.Sleep(time.Until(start))
			if snap, ok := r.loop.Snapshot(); !ok || len(snap.Flows) != idle {
				t.Fatalf("the loop knows %d flows, want %d", len(snap.Flows), idle)
			}
			for _, p := range parts {
				p.start(r, &busy)
			}
			busy.Wait()
			time.Sleep(time.Second)
			r.disk.mu.Lock()
			defer r.disk.mu.Unlock()
			for _, s := range r.disk.log {
				flow, _, _ := strings.Cut(s.name, "/")
				if strings.HasPrefix(flow, "idle-") {
					continue
				}
				log = append(log, served{flow, s.offset, s.length, time.Time{}.Add(s.at.Sub(start))})
			}
		})
		return log
	}
	alone, beside := requests(0), requests(idle)
	if len(alone) < 300 {
		t.Fatalf("%d requests only", len(alone))
	}
	if !slices.Equal(alone, beside) {
		for i := range min(len(alone), len(beside)) {
			if alone[i] != beside[i] {
				t.Fatalf("request %d of %d is %v, beside %d idle flows %v", i, len(alone), alone[i], idle, beside[i])
			}
		}
		t.Fatalf("%d requests, beside %d idle flows %d", len(alone), idle, len(beside))
	}
}
