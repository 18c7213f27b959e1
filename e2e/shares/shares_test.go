package shares

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/judge"
)

const (
	window = 10 * time.Second // shares hold over windows of this length
	slide  = time.Second      // between the beginnings of two windows
)

// contest is two applications that want more of the disk than there is.
type contest struct {
	*cluster
	strong, weak *client // with weights of 3:1
	paths        map[string][]string
}

// contender is a client of an application that should still be running.
type contender interface {
	name() string // of its flow
	running(*testing.T)
}

func (c *contest) backlogged(t *testing.T) {
	t.Helper()
	c.cluster.backlogged(t, c.strong, c.weak)
}

// often is the time between two looks at the queues.
const often = 100 * time.Millisecond

func (c *contest) watch(t *testing.T, length, interval time.Duration) span {
	t.Helper()
	return c.cluster.watch(t, length, interval, c.strong, c.weak)
}

// backlogged waits until all applications have waited at their marks. From then on, each has more
// work than the disk can do for it.
func (c *cluster) backlogged(t *testing.T, contenders ...contender) {
	t.Helper()
	err := c.node.await(t.Context(), "backlogged with every application", func(m metrics) error {
		for _, p := range contenders {
			p.running(t)
			if m.flow("waits_total", p.name()) < 3 || m.flow("bytes_total", p.name()) < 4*mib {
				return fmt.Errorf("%s has not been held back yet", p.name())
			}
		}
		return nil
	})
	fixture.Must(t, err)
}

// span has the observations between two moments.
type span struct {
	judge.Window
	before, after metrics
}

// watch lets the contest continue for some time and looks at the queues at every interval. It fails
// the test if an application's queue was often empty: then the application was not always
// backlogged, and its share would have no meaning.
func (c *cluster) watch(t *testing.T, length, interval time.Duration, contenders ...contender) span {
	t.Helper()
	scrape := func() metrics {
		m, err := c.node.scrape(t.Context())
		fixture.Must(t, err)
		return m
	}
	s := span{before: scrape()}
	s.From = disk.Monotonic()
	looks, depths := 0, map[float64]int{} // by depth: how often it was seen
	queued := map[string]map[float64]int{}
	for _, p := range contenders {
		queued[p.name()] = map[float64]int{}
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	end := time.After(length)
	for watching := true; watching; {
		select {
		case <-tick.C:
			m := scrape()
			looks++
			depths[m.Sum("device_depth")]++
			for _, p := range contenders {
				queued[p.name()][m.flow("queued_requests", p.name())]++
			}
		case <-end:
			watching = false
		case <-t.Context().Done():
			t.Fatal("interrupted")
		}
	}
	s.after = scrape()
	s.To = disk.Monotonic()
	for _, p := range contenders {
		p.running(t)
	}
	t.Logf("looked at the queues %d times; lengths and how often: %v; depths: %v", looks, queued, depths)
	for flow, lengths := range queued {
		if n := lengths[0]; n > looks/100 {
			t.Errorf("%s had nothing queued in %d of %d looks: it was not always backlogged", flow, n, looks)
		}
	}
	return s
}

// ratios returns, for every window of 10 s within the span, how many units the strong application
// got for each unit of the weak one.
func (c *contest) ratios(t *testing.T, s span, measure func(judge.Usage) float64) []float64 {
	t.Helper()
	var windows []judge.Window
	for from := s.From; from+int64(window) <= s.To; from += int64(slide) {
		windows = append(windows, judge.Window{From: from, To: from + int64(window)})
	}
	var out []float64
	for _, a := range c.judge(t, c.owners(t, c.paths), windows...) {
		out = append(out, measure(a.Owners[c.strong.flow])/measure(a.Owners[c.weak.flow]))
	}
	return out
}

func bytesOf(u judge.Usage) float64   { return float64(u.Bytes()) }
func serviceOf(u judge.Usage) float64 { return float64(u.Service) }

// within5 fails the test if any window deviates from the ratio by more than 5 %.
func within5(t *testing.T, what string, ratios []float64, want float64) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(ratios))
	low, high := sorted[0], sorted[len(sorted)-1]
	t.Logf("%s, %d windows of %v: min %.3f, median %.3f, max %.3f", what, len(sorted), window, low, sorted[len(sorted)/2], high)
	if !(low >= want*0.95 && high <= want*1.05) { // so that NaN fails
		t.Errorf("%s: ratios of %.3f to %.3f, want %.3f within 5 %% in every window: %.3f", what, low, high, want, ratios)
	}
}

// sameAccount compares Penstock's own account of the span with the judge's: the bytes of each
// application, and how the service was shared. A reference latency is not a service time, so only
// shares of service can be compared.
func (c *contest) sameAccount(t *testing.T, s span) {
	t.Helper()
	judged := c.judge(t, c.owners(t, c.paths), s.Window)[0]
	got := func(name, flow string) float64 { return s.after.flow(name, flow) - s.before.flow(name, flow) }
	var service, judgedService float64
	for _, p := range []*client{c.strong, c.weak} {
		service += got("service_seconds_total", p.flow)
		judgedService += judged.Owners[p.flow].Service.Seconds()
	}
	for _, p := range []*client{c.strong, c.weak} {
		u := judged.Owners[p.flow]
		within(t, "bytes of "+p.flow, 2, got("bytes_total", p.flow), bytesOf(u))
		within(t, "share of service of "+p.flow, 2, got("service_seconds_total", p.flow)/service, u.Service.Seconds()/judgedService)
		if n := got("unscheduled_bytes_total", p.flow); n > bytesOf(u)/100 {
			t.Errorf("the kernel moved %.1f MiB of %s by itself, out of the schedule: what else fills this machine's page cache?", n/mib, p.flow)
		}
		if n := got("forced_total", p.flow); n > 0 {
			t.Errorf("%s was let through %.0f times after the longest wait: its share did not come from its weight", p.flow, n)
		}
	}
	other := judged.Owners[judge.FileSystem]
	t.Logf("without an owner: %.1f MiB, %.1f %% of the service; the disk was busy for %.1f %% of the time", bytesOf(other)/mib,
		100*other.Service.Seconds()/judged.Total().Service.Seconds(), 100*judged.Total().Service.Seconds()/(float64(s.To-s.From)/1e9))
}

func within(t *testing.T, what string, percent, account, judged float64) {
	t.Helper()
	off := account/judged - 1
	t.Logf("%s: Penstock says %.4g, the judge %.4g: %+.2f %%", what, account, judged, 100*off)
	if !(100*math.Abs(off) <= percent) {
		t.Errorf("%s: Penstock says %.4g, the judge %.4g: they differ by over %g %%", what, account, judged, percent)
	}
}

// TestWriters: two writers that always have more to write share the device by weight. A new weight
// takes effect within seconds.
func TestWriters(t *testing.T) {
	c := &contest{cluster: start(t)}
	c.retune(t, fine)
	c.node.weigh(t, map[string]int{application(11): 3, application(12): 1})
	c.limit(t, slow)
	c.strong, c.weak = c.put(t, 11, "/writer-3"), c.put(t, 12, "/writer-1")
	c.paths = map[string][]string{c.strong.flow: {"/writer-3"}, c.weak.flow: {"/writer-1"}}
	c.backlogged(t)
	s := c.watch(t, 20*time.Second, often)
	within5(t, "bytes of two writers at 3:1", c.ratios(t, s, bytesOf), 3)
	c.sameAccount(t, s)

	changed := disk.Monotonic()
	c.node.weigh(t, map[string]int{c.strong.flow: 1, c.weak.flow: 3})
	s = c.watch(t, 13*time.Second, often)
	c.follows(t, changed, s)
}

// follows fails the test unless the shares follow a change of weights from 3:1 to 1:3 within
// seconds, and then stay.
func (c *contest) follows(t *testing.T, changed int64, s span) {
	t.Helper()
	const patience, short, step = 5 * time.Second, 2 * time.Second, 250 * time.Millisecond
	var windows []judge.Window
	for from := changed; from+int64(short) <= s.To; from += int64(step) {
		windows = append(windows, judge.Window{From: from, To: from + int64(short)})
	}
	owner := c.owners(t, c.paths)
	told := changed // when the first window began after the last one with the old shares
	var ratios []string
	for _, a := range c.judge(t, owner, windows...) {
		r := bytesOf(a.Owners[c.strong.flow]) / bytesOf(a.Owners[c.weak.flow])
		ratios = append(ratios, fmt.Sprintf("%.2f", r))
		if r > 0.6 {
			told = a.Window.From + int64(step)
		}
	}
	t.Logf("after the change of weights to 1:3, ratios in windows of %v, every %v: %v", short, step, ratios)
	t.Logf("the shares followed after %v", time.Duration(told-changed))
	if told-changed > int64(patience) {
		t.Errorf("the shares followed the weights only after %v", time.Duration(told-changed))
	}
	a := c.judge(t, owner, judge.Window{From: s.To - int64(window), To: s.To})[0]
	within5(t, "bytes of two writers at 1:3", []float64{bytesOf(a.Owners[c.strong.flow]) / bytesOf(a.Owners[c.weak.flow])}, 1./3)
}

// TestReaders: two applications that read cold files share the device by weight. At each end of a
// window, up to D quanta are at the disk, in an order that the disk chooses. At a depth of 4, quanta
// of 512 KiB can change the ratio of a window by 5 %. So this test uses quanta of 256 KiB. What is
// staged ahead of one reader then lasts for 0.5 s at the rate of the strong application. A machine
// without a free CPU can stall a reader for longer. If the disk serves only the other application for
// 0.1 s, the ratio of a window changes by 4 %. So each application has two readers.
func TestReaders(t *testing.T) {
	c := &contest{cluster: start(t)}
	c.retune(t, fine)
	c.node.weigh(t, map[string]int{application(21): 3, application(22): 1})
	strong, weak := []string{"/read-3", "/read-3-too"}, []string{"/read-1", "/read-1-too"}
	for i := range strong {
		c.write(t, strong[i], 320*mib)
		c.write(t, weak[i], 160*mib)
	}
	c.forget(t)
	c.limit(t, slow)
	also := []contender{c.cat(t, 21, strong[1]), c.cat(t, 22, weak[1])}
	c.strong, c.weak = c.cat(t, 21, strong[0]), c.cat(t, 22, weak[0])
	c.paths = map[string][]string{c.strong.flow: strong, c.weak.flow: weak}
	c.backlogged(t)
	s := c.watch(t, 20*time.Second, often)
	for _, p := range also {
		p.running(t)
	}
	within5(t, "bytes of two applications that read at 3:1", c.ratios(t, s, bytesOf), 3)
	c.sameAccount(t, s)
}

// TestReaderAgainstWriter: a reader and a writer share the device's service; a byte may cost more
// in one direction than in the other. The daemon knows these costs from a profile. Where reads and
// writes are always mixed in the same way, their ratio needs no correction.
func TestReaderAgainstWriter(t *testing.T) {
	c := &contest{cluster: start(t)}
	alike := usual
	alike.dirty = "8MiB" // the writer has as much queued as is staged ahead of the reader
	alike.profile = c.profile(t)
	alike.quantum = "256KiB" // the disk delays writes in favour of reads, so large quanta would be unfinished at a window's ends
	c.write(t, "/read", 512*mib)
	c.forget(t)
	c.limit(t, slow)
	// The daemon starts when the disk has its rate. If the disk was faster in an interval with only
	// writes, the daemon learns that writes cost less than reads.
	c.retune(t, alike)
	c.node.weigh(t, map[string]int{application(31): 3, application(32): 1})
	c.strong, c.weak = c.cat(t, 31, "/read"), c.put(t, 32, "/written")
	c.paths = map[string][]string{c.strong.flow: {"/read"}, c.weak.flow: {"/written"}}
	c.backlogged(t)
	s := c.watch(t, 20*time.Second, often)
	within5(t, "service of a reader and a writer at 3:1", c.ratios(t, s, serviceOf), 3)
	c.sameAccount(t, s)
}
