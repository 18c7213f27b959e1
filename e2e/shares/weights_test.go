package shares

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/judge"
)

const settling = 2 * time.Second // after an application has joined or left

// At 16 MB/s an application with one part of eleven gets 55 quanta of 256 KiB in a window. One
// quantum more or less at each end of the window is 3.6 % of its share. The disk must not delay a
// request for a shorter seek by more than the time between two of the application's quanta. With
// the disk's usual maximum of 500 ms, windows were off by 4.2 %.
const rate = 16_000_000

var (
	brisk = disk.Model{BytesPerSecond: rate, SeekMin: slow.SeekMin, SeekMax: slow.SeekMax, CapacityBytes: slow.CapacityBytes,
		AgeMax: 50 * time.Millisecond}
	fine = tuning{quantum: "256KiB", dirty: usual.dirty, read: usual.read, write: usual.write}
)

// A disk without a head, on which a write takes longer than a read, and the costs that the daemon
// knows for it. Of the time of all 8 channels, 64 KiB take an eighth of the latency, and their
// transfer: 4.22 ms to read, 6.80 ms to write. Sequential requests are no cheaper on this disk, so
// every request costs what the daemon expects.
var (
	flash     = disk.SSD(rate)
	flashCost = tuning{quantum: "256KiB", dirty: usual.dirty, read: "{fixed: 20ms, per_mib: 180ms}", write: "{fixed: 32.2ms, per_mib: 290.1ms}"}
)

// TestThreeWeights: two applications share the disk at 3:1. One with weight 7 joins them and leaves
// again. From 2 s after each change, every application has its due in every window, and all of the
// disk's time is used. Only readers, and more mixtures, are tested in virtual time (node/device).
func TestThreeWeights(t *testing.T) {
	for _, c := range []struct {
		name    string
		disk    disk.Model
		device  tuning
		write   [3]bool // of the parts of 7, 3 and 1
		measure func(judge.Usage) float64
	}{
		{"writers", brisk, fine, [3]bool{true, true, true}, bytesOf},
		{"mix", flash, flashCost, [3]bool{false, true, false}, serviceOf},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &trial{cluster: start(t), measure: c.measure}
			x.retune(t, c.device)
			for i, weight := range []int{7, 3, 1} {
				x.parts = append(x.parts, part{number: 51 + i, weight: weight, write: c.write[i],
					bytes: []int64{256 * mib, 400 * mib, 192 * mib}[i]})
			}
			x.run(t, c.disk)
		})
	}
}

// TestFarWeights: weights that are far apart hold equally well. The heaviest application is there
// first. One that comes later begins beside it, regardless of the service that the others had while
// they were alone. At 100:1 both applications read, because writes of the weak one would wait for
// longer than the kernel keeps them dirty.
func TestFarWeights(t *testing.T) {
	for i, c := range []struct {
		weights []int
		write   bool
	}{{[]int{100, 1}, false}, {[]int{13, 5, 2}, true}} {
		t.Run(fmt.Sprint(c.weights), func(t *testing.T) {
			x := &trial{cluster: start(t), measure: bytesOf, quantum: 256 << 10}
			x.retune(t, fine)
			g := x.guests(t)
			rules, paths := map[string]int{}, map[string][]string{}
			for k, weight := range c.weights {
				p := part{number: 91 + 10*i + k, weight: weight, write: c.write, bytes: max(64*mib, 1024*mib*int64(weight)/100)}
				if c.write {
					p.bytes = 1 << 30
				}
				x.parts = append(x.parts, p)
				rules[p.flow()], paths[p.flow()] = weight, p.paths()
				g.prepare(t, p)
			}
			x.node.weigh(t, rules)
			x.forget(t)
			x.limit(t, brisk)
			all := []contender{g.join(t, x.parts[0])}
			x.backlogged(t, all...)
			for _, p := range x.parts[1:] {
				all = append(all, g.join(t, p))
			}
			pass(t, 2*settling)
			s := x.watch(t, window+10*slide, often, all...)
			x.owner = x.owners(t, paths)
			x.hold(t, fmt.Sprint(c.weights), x.parts, s.Window)
			x.booked(t, s)
		})
	}
}

// trial is a contest of three applications. The first one joins later and leaves early.
type trial struct {
	*cluster
	parts   []part
	measure func(judge.Usage) float64
	quantum float64 // in units of measure: a part may deviate by this much, or by 5 % if that is more
	owner   judge.Owner
}

func (x *trial) run(t *testing.T, model disk.Model) {
	weights := map[string]int{}
	for _, p := range x.parts {
		weights[p.flow()] = p.weight
	}
	x.node.weigh(t, weights)
	g := x.guests(t)
	for _, p := range x.parts {
		g.prepare(t, p)
	}
	x.forget(t)
	x.limit(t, model)
	stay := []contender{g.join(t, x.parts[1]), g.join(t, x.parts[2])}
	x.backlogged(t, stay...)

	began := disk.Monotonic()
	third := g.join(t, x.parts[0])
	err := x.node.await(t.Context(), "serving the application that joins", func(m metrics) error {
		third.running(t)
		if m.flow("requests_total", third.name()) == 0 {
			return fmt.Errorf("%s has had no request yet", third.name())
		}
		return nil
	})
	fixture.Must(t, err)
	<-time.After(settling)
	all := append([]contender{third}, stay...)
	together := x.watch(t, window+10*slide, often, all...)
	third.wait(t)
	// The application's last writes are still to be drained.
	err = x.node.await(t.Context(), "done with the application that leaves", func(m metrics) error {
		if n := m.flow("queued_requests", third.name()) + m.flow("backlog_bytes", third.name()); n > 0 {
			return fmt.Errorf("%v bytes and requests of %s are left", n, third.name())
		}
		return nil
	})
	fixture.Must(t, err)
	<-time.After(settling)
	alone := x.watch(t, window+slide, often, stay...)

	paths := map[string][]string{}
	for _, p := range x.parts {
		paths[p.flow()] = p.paths()
	}
	x.owner = x.owners(t, paths)
	joined, left := x.presence(t, third.name(), judge.Window{From: began, To: alone.To})
	x.hold(t, "with the third", x.parts, judge.Window{From: joined + int64(settling), To: together.To})
	x.hold(t, "after it left", x.parts[1:], judge.Window{From: left + int64(settling), To: alone.To})
	x.booked(t, together)
}

// presence returns when an application's first and last requests ended.
func (x *trial) presence(t *testing.T, flow string, span judge.Window) (first, last int64) {
	t.Helper()
	for _, a := range x.judge(t, x.owner, judge.Windows(span, 20*time.Millisecond)...) {
		if a.Owners[flow].Bytes() > 0 {
			if first == 0 {
				first = a.Window.From
			}
			last = a.Window.To
		}
	}
	if first == 0 {
		t.Fatalf("the disk has served no request of %s", flow)
	}
	return first, last
}

// hold judges every window of 10 s within the span. Each part must be within 5 % of its due, or
// within a quantum if that is more. Together the parts must keep the disk busy.
func (x *trial) hold(t *testing.T, what string, parts []part, span judge.Window) {
	t.Helper()
	var windows []judge.Window
	for from := span.From; from+int64(window) <= span.To; from += int64(slide) {
		windows = append(windows, judge.Window{From: from, To: from + int64(window)})
	}
	if len(windows) == 0 {
		t.Fatalf("%s: no window of %v in %v", what, window, time.Duration(span.To-span.From))
	}
	weights, worst, wrong, leastBusy := 0, map[string]float64{}, map[string]bool{}, 1.0
	all := map[string][]string{}
	for _, p := range parts {
		weights += p.weight
	}
	for _, a := range x.judge(t, x.owner, windows...) {
		sum, service := 0.0, time.Duration(0)
		for _, p := range parts {
			sum += x.measure(a.Owners[p.flow()])
			service += a.Owners[p.flow()].Service
		}
		leastBusy = min(leastBusy, service.Seconds()/window.Seconds())
		for _, p := range parts {
			due := float64(p.weight) / float64(weights)
			off := x.measure(a.Owners[p.flow()])/sum/due - 1
			all[p.flow()] = append(all[p.flow()], fmt.Sprintf("%+.1f", 100*off))
			if math.IsNaN(off) || math.Abs(off) > math.Abs(worst[p.flow()]) {
				worst[p.flow()] = off
			}
			if !(math.Abs(off) <= max(0.05, x.quantum/sum/due)) { // so that NaN fails
				wrong[p.flow()] = true
			}
		}
	}
	var line strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&line, " %d: %+.1f %%", p.weight, 100*worst[p.flow()])
		if wrong[p.flow()] {
			t.Errorf("%s: the part of %d is off its due by %+.1f %% in a window, want at most 5 %% or a quantum: %v", what, p.weight, 100*worst[p.flow()], all[p.flow()])
		}
	}
	t.Logf("%s, percent off their due, window by window: %v", what, all)
	t.Logf("%s, %d windows of %v, worst deviations:%s; of the disk's time at least %.3f", what, len(windows), window, &line, leastBusy)
	if leastBusy < 0.95 {
		t.Errorf("%s: the applications had only %.3f of the disk's time in one of the windows: some of it was left unused", what, leastBusy)
	}
}

// booked fails the test if the kernel moved bytes by itself, or if a stream was let through because
// it had waited too long. In both cases the shares did not come from the weights.
func (x *trial) booked(t *testing.T, s span) {
	t.Helper()
	for _, p := range x.parts {
		got := func(name string) float64 { return s.after.flow(name, p.flow()) - s.before.flow(name, p.flow()) }
		if n := got("unscheduled_bytes_total"); n > got("bytes_total")/100 {
			t.Errorf("the kernel moved %.1f MiB of %s by itself, out of the schedule: what else fills this machine's page cache?", n/mib, p.flow())
		}
		if n := got("forced_total"); n > 0 {
			t.Errorf("%s was let through %.0f times after the longest wait: its share did not come from its weight", p.flow(), n)
		}
	}
}
