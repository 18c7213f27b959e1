package shares

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/judge"
)

// TestStarvedReaders: 200 readers of an application of weight 1 run beside one reader of weight 32.
// The starved readers' turns are too rare for their clients, so packets are let through. These
// packets take nothing from the neighbour's share, and no client fails, over a time longer than a
// client's time-out.
func TestStarvedReaders(t *testing.T) {
	const readers, length = 200, 80 * time.Second
	c := start(t)
	g := c.guests(t)
	starved := part{number: 71, weight: 1, bytes: readers * 4 * mib, files: readers}
	protected := part{number: 72, weight: 32, bytes: 1280 * mib}
	c.node.weigh(t, map[string]int{starved.flow(): starved.weight, protected.flow(): protected.weight})
	g.prepare(t, starved)
	g.prepare(t, protected)
	c.forget(t)
	c.limit(t, slow)
	strong := g.join(t, protected)
	c.backlogged(t, strong)
	weak := g.join(t, starved)
	err := c.node.await(t.Context(), "serving the starved readers", func(metrics) error {
		weak.running(t)
		return nil
	})
	fixture.Must(t, err)
	before, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	w := judge.Window{From: disk.Monotonic()}
	// On a busy machine the protected reader's client may want nothing for a moment. The disk's time is then
	// the others'.
	looks, idle := 0, 0
	tick := time.NewTicker(often)
	defer tick.Stop()
	for end := time.After(length); end != nil; {
		select {
		case <-tick.C:
			m, err := c.node.scrape(t.Context())
			fixture.Must(t, err)
			if looks++; m.flow("queued_requests", strong.name()) == 0 {
				idle++
			}
		case <-end:
			end = nil
		case <-t.Context().Done():
			t.Fatal("interrupted")
		}
	}
	unused := float64(idle) / float64(looks)
	w.To = disk.Monotonic()
	strong.running(t)
	weak.running(t)
	after, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	judged := c.judge(t, c.owners(t, map[string][]string{strong.flow(): protected.paths(), weak.flow(): starved.paths()}), w)[0]
	s, p := judged.Owners[weak.flow()], judged.Owners[strong.flow()]
	all, due := bytesOf(s)+bytesOf(p), float64(starved.weight)/float64(starved.weight+protected.weight)
	got := func(name string) float64 { return after.flow(name, weak.flow()) - before.flow(name, weak.flow()) }
	t.Logf("of %.1f MB in %v the starved readers had %.1f, %.2f times their due in bytes (%.2f in the disk's time); the protected one %.1f, %.3f of its due",
		all/1e6, length, bytesOf(s)/1e6, bytesOf(s)/all/due, serviceOf(s)/(serviceOf(s)+serviceOf(p))/due, bytesOf(p)/1e6, bytesOf(p)/all/(1-due))
	t.Logf("%.0f packets were let through, %.1f MB; %.0f operations refused", got("forced_total"), got("forced_bytes_total")/1e6, got("refused_total"))
	t.Logf("the protected reader had nothing queued in %d of %d looks", idle, looks)
	if bytesOf(s)/all > 1.1*due+unused {
		t.Errorf("the starved readers had %.4f of the bytes, %.4f are their due, and the protected one wanted nothing for %.4f of the time", bytesOf(s)/all, due, unused)
	}
	if bytesOf(p)/all < 0.95*(1-due) {
		t.Errorf("the protected reader had %.4f of the bytes, %.4f are its due", bytesOf(p)/all, 1-due)
	}
	said, err := os.ReadFile(filepath.Join(c.Hadoop.LogDir(), "clients.log"))
	fixture.Must(t, err)
	if n := bytes.Count(said, []byte("SocketTimeoutException")); n > 0 {
		t.Errorf("clients gave up %d times", n)
	}
}
