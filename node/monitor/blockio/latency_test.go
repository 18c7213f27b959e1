package blockio

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/bpf"
)

// bucketOf returns the bucket of a latency, in a way of its own.
func bucketOf(d time.Duration) int {
	return min(Buckets-1, max(0, 1+int(math.Floor(parts*(log2Linear(float64(d))-firstOctave)))))
}

// log2Linear is the logarithm with straight lines between powers of two.
func log2Linear(x float64) float64 {
	fraction, exponent := math.Frexp(x) // x = fraction * 2^exponent, fraction in [0.5, 1)
	return float64(exponent-1) + 2*fraction - 1
}

func TestBuckets(t *testing.T) {
	if Below(0) != 8192 || Below(1) != 10240 || Below(4) != 16384 || Below(Buckets-2) != 1<<34 || Below(Buckets-1) != 1<<34 {
		t.Errorf("%v %v %v %v %v", Below(0), Below(1), Below(4), Below(Buckets-2), Below(Buckets-1))
	}
	for b := range Buckets - 1 {
		if bucketOf(Below(b)-1) != b || bucketOf(Below(b)) != b+1 {
			t.Errorf("bucket %d ends at %d", b, Below(b))
		}
	}
}

// A quantile lies in the bucket of the true one, which is at most a quarter wide.
func TestQuantile(t *testing.T) {
	var none Histogram
	if none.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	none.Counts[Buckets-1] = 3
	if none.Quantile(0.99) != 1<<34 {
		t.Errorf("of endless requests: %v", none.Quantile(0.99))
	}
	rapid.Check(t, func(t *rapid.T) {
		var h Histogram
		latencies := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1<<firstOctave, 1<<rapid.IntRange(firstOctave+1, lastOctave+1).Draw(t, "octave")-1).Draw(t, "ns"))
		}), 1, 200).Draw(t, "latencies")
		for _, l := range latencies {
			h.Counts[bucketOf(l)]++
		}
		slices.Sort(latencies)
		last := time.Duration(0)
		for _, q := range []float64{0, 0.5, 0.95, 0.99, 1} {
			want := latencies[max(0, int(math.Ceil(q*float64(len(latencies))))-1)]
			got := h.Quantile(q)
			if got < last || math.Abs(float64(got-want)) > float64(want)/4+1 {
				t.Fatalf("quantile %v: %v, want %v of %v", q, got, want, latencies)
			}
			last = got
		}
	})
}

func totals(t *testing.T, w *Watch, device uint32, now time.Time) map[string]Latency {
	t.Helper()
	all, err := w.readLatencies(now)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Latency{}
	for _, l := range all {
		if l.Device == device {
			found[l.Group.String()] = l
		}
	}
	return found
}

// The times in the histogram are those that Read reports for the same requests.
func TestLatencies(t *testing.T) {
	const size = 4 << 20
	w, disk, dir := watch(t)
	if w == nil {
		return
	}
	begin := time.Now()
	direct(t, filepath.Join(dir, "file"), size)
	own := totals(t, w, disk, begin)[Daemon]
	table, err := w.Read()
	if err != nil {
		t.Fatal(err)
	}
	var times [2]time.Duration
	for _, u := range table.Users {
		if u.Own && u.Device == disk {
			times[0], times[1] = times[0]+u.Time[0], times[1]+u.Time[1]
		}
	}
	for i := range own.Total {
		h := &own.Total[i]
		t.Logf("%d requests, p50 %v, p99 %v, sum %v", h.Requests(), h.Quantile(0.5), h.Quantile(0.99), h.Time)
		if h.Requests() < size>>20 || h.Time != times[i] || own.Window[i] != *h {
			t.Errorf("%d requests in %v, want %v; window %v", h.Requests(), h.Time, times[i], own.Window[i].Time)
		}
		// The sum lies between those of the buckets' bounds.
		var low, high time.Duration
		for b, n := range h.Counts {
			low, high = low+time.Duration(n)*Below(b-1), high+time.Duration(n)*Below(b)
		}
		if low -= time.Duration(h.Counts[0]) * Below(0); h.Time < low || h.Time > high {
			t.Errorf("a sum of %v, by buckets %v to %v", h.Time, low, high)
		}
	}
	if own = totals(t, w, disk, begin)[Daemon]; own.Window != [2]Histogram{} || own.Total[0].Requests() == 0 {
		t.Errorf("a window without requests: %+v", own.Window)
	}
}

// Beyond the bound, latencies are counted for nobody in particular, until idle cgroups are dropped.
func TestLatenciesAreBounded(t *testing.T) {
	const size = 4 << 20
	w, disk, dir := watch(t)
	if w == nil {
		return
	}
	for i := range uint64(maxLatencies) {
		k := bpf.BlockioLatencyKey{Device: 1, Cgroup: 1<<40 + i}
		if err := w.objects.Latencies.Put(k, bpf.BlockioLatencyCount{TimeNs: [2]uint64{1}, Reads: [Buckets]uint64{1}}); err != nil {
			if i < maxLatencies-64 { // others may have used the disk
				t.Fatalf("cgroup %d: %v", i, err)
			}
			break
		}
	}
	begin := time.Now()
	direct(t, filepath.Join(dir, "file"), size)
	found := totals(t, w, disk, begin)
	if o := found[Others]; o.Total[0].Requests() < size>>20 || o.Total[1].Requests() < size>>20 || found[Daemon].Device != 0 {
		t.Errorf("at the bound: %d reads of others", o.Total[0].Requests())
	}
	if n := totals(t, w, 1, begin)[Nobody].Total[0].Requests(); n < maxLatencies-64 || n > maxLatencies {
		t.Errorf("%d requests of unknown cgroups", n)
	}
	if totals(t, w, 1, begin.Add(forgetAt-1)); len(w.latencies.taken) < maxLatencies-64 {
		t.Errorf("%d cgroups left", len(w.latencies.taken))
	}
	if found = totals(t, w, 1, begin.Add(forgetAt)); len(found) != 0 {
		t.Errorf("not forgotten: %d", len(found))
	}
	direct(t, filepath.Join(dir, "file"), size)
	found = totals(t, w, disk, begin.Add(forgetAt))
	if n := found[Daemon].Total[0].Requests(); n < size>>20 || found[Others].Total[0].Requests() == 0 {
		t.Errorf("below the bound: %d", n)
	}
	if totals(t, w, disk, begin.Add(forgetAt+forget-1))[Daemon].Total == [2]Histogram{} {
		t.Error("forgotten too early")
	}
	if found = totals(t, w, disk, begin.Add(forgetAt+forget)); found[Daemon].Device != 0 {
		t.Error("not forgotten")
	}
}

// Owners beyond the bound are counted together.
func TestLatencySumsAreBounded(t *testing.T) {
	l := newLatencies()
	one := [2]Histogram{{Counts: [Buckets]uint64{1}}}
	name := func(i int) Group { return Group{Name: string(rune('a' + i))} }
	for i := range maxLatencySums {
		l.add(latencyID{1, name(i)}, &one)
	}
	if l.sums[latencyID{1, Group{Name: Others}}] != nil {
		t.Error("others too early")
	}
	l.add(latencyID{1, name(maxLatencySums)}, &one)
	l.add(latencyID{1, name(0)}, &one)
	if o := l.sums[latencyID{1, Group{Name: Others}}]; o == nil || o.Total != one || len(l.sums) != maxLatencySums+1 {
		t.Errorf("%v of %d", o, len(l.sums))
	}
	if l.sums[latencyID{1, name(0)}].Total[0].Requests() != 2 {
		t.Error("a known one is not counted")
	}
}

// A group has its own name when its cgroup becomes known, and requests count once.
func TestACgroupThatIsFoundLater(t *testing.T) {
	root := t.TempDir()
	w := &Watch{cgroups: cgroups{root: root}}
	now := time.Now()
	if g, sure := w.groupOf(12345, now); g.Name != Nobody || !sure {
		t.Errorf("%+v, %v", g, sure)
	}
	if _, sure := w.groupOf(12345, now.Add(walkPeriod-1)); sure {
		t.Error("sure without a walk")
	}
	w.cgroups.paths[12345] = "/hadoop-yarn/container_1700000000000_0001_01_000002"
	if g, sure := w.groupOf(12345, now.Add(walkPeriod-1)); g.Owner.Application != "application_1700000000000_0001" || !sure {
		t.Errorf("%+v, %v", g, sure)
	}
	w.cgroups.paths[7] = "/user.slice/user-1.slice/user@1.service/any.scope"
	w.cgroups.paths[8] = "/"
	for id, want := range map[uint64]string{7: usersCgroups.ID, 8: Nobody, 0: Nobody, ownCgroup: Daemon} {
		if g, sure := w.groupOf(id, now); g.String() != want || !sure {
			t.Errorf("cgroup %d: %s, want %s", id, g, want)
		}
	}
}

func FuzzHistogram(f *testing.F) {
	f.Add(uint64(1), uint64(2), 0.99, 4)
	f.Add(uint64(1<<63), uint64(1<<63), 2.0, 85)
	f.Fuzz(func(t *testing.T, a, b uint64, q float64, at int) {
		var h Histogram
		h.Counts[0], h.Counts[uint(at)%Buckets] = a, b
		if d := h.Quantile(q); d < 0 || d > 1<<(lastOctave+1) {
			t.Errorf("%v", d)
		}
	})
}

// BenchmarkLatencies reads the latencies of 200 cgroups on two devices each, all of them busy.
func BenchmarkLatencies(b *testing.B) {
	w, err := Open()
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for i := range uint64(400) {
		k := bpf.BlockioLatencyKey{Device: 1 + i%2, Cgroup: 1<<40 + i/2}
		if err := w.objects.Latencies.Put(k, bpf.BlockioLatencyCount{TimeNs: [2]uint64{1, 1}, Reads: [Buckets]uint64{9: 1, 20: 5}, Writes: [Buckets]uint64{9: 2}}); err != nil {
			b.Fatal(err)
		}
	}
	w.cgroups.paths = map[uint64]string{}
	for i := range uint64(200) {
		w.cgroups.paths[1<<40+i] = "/hadoop-yarn/container_1700000000000_0001_01_" + fmt.Sprintf("%06d", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, past := range w.latencies.taken {
			past.counts = [2]Histogram{}
		}
		all, err := w.Latencies()
		if err != nil || len(all) != 400 {
			b.Fatalf("%d, %v", len(all), err)
		}
	}
}
