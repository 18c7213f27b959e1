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

// TestAWriterBesideItsReaders: four readers and a writer of one application. Penstock gives the
// writer half. Natively its part depends on when the kernel writes back: 0.37 to 0.68 in five runs.
// So the writer must have at least 0.8 of its native part, or of half if that is less. And no
// client may pause for over 3 s unless it also does so natively.
func TestAWriterBesideItsReaders(t *testing.T) {
	native, nativePause := readersAndWriter(t, "off")
	governed, pause := readersAndWriter(t, "enforce")
	if governed < 0.8*min(native, 0.5) {
		t.Errorf("the writer had %.3f of the bytes, and natively %.3f", governed, native)
	}
	if pause > max(3*time.Second, nativePause) {
		t.Errorf("a client stood still for %v, natively for %v at the most", pause, nativePause)
	}
}

// readersAndWriter returns the writer's part of the bytes that the disk moved, and the longest
// pause of any client.
func readersAndWriter(t *testing.T, mode string) (share float64, pause time.Duration) {
	t.Run(mode, func(t *testing.T) {
		const settled, length = 6 * time.Second, 20 * time.Second
		c := start(t)
		c.retune(t, usual) // a new daemon for this test, and another new one after it
		g := c.guests(t)
		readers := part{number: 81, files: 4, bytes: 512 * mib}
		writer := part{number: 81, write: true, bytes: 768 * mib}
		c.node.rule(t, fmt.Sprintf("{application: %s, weight: 1, mode: %s}", readers.flow(), mode))
		if mode == "off" { // otherwise the kernel keeps much of the written data in memory
			c.lowerDirtyLimits(t, 32*mib)
		}
		g.prepare(t, readers)
		c.forget(t)
		c.limit(t, slow)
		all := []*guest{g.join(t, readers), g.join(t, writer)}
		pass(t, settled)
		for _, p := range all {
			p.running(t)
			p.forgetPauses()
		}
		w := judge.Window{From: disk.Monotonic()}
		pass(t, length)
		w.To = disk.Monotonic()
		pauses := [][]time.Duration{all[0].longestPauses(), all[1].longestPauses()}
		for _, p := range all {
			p.running(t)
		}
		used := c.judge(t, c.owners(t, map[string][]string{"readers": readers.paths(), "writer": writer.paths()}), w)[0].Owners
		read, written := bytesOf(used["readers"]), bytesOf(used["writer"])
		share, pause = written/(read+written), max(slices.Max(pauses[0]), slices.Max(pauses[1]))
		t.Logf("mode %s: in %v the readers had %.1f MB, the writer %.1f, %.3f of all; longest pauses of the readers %v, of the writer %v",
			mode, length, read/1e6, written/1e6, share, pauses[0], pauses[1])
		c.limit(t, disk.Model{})
		for _, p := range all {
			p.wait(t)
		}
	})
	return share, pause
}

// TestALimitOfManyStreams: an application's limit holds for any number of streams.
func TestALimitOfManyStreams(t *testing.T) {
	const limit, settled, length = 1_000_000, 10 * time.Second, 40 * time.Second
	c := start(t)
	c.retune(t, usual)
	g := c.guests(t)
	readers := part{number: 82, files: 80, bytes: 80 * 4 * mib}
	writers := part{number: 82, write: true, files: 20, bytes: 20 * 32 * mib} // a client keeps up to 5 MB in memory
	c.node.rule(t, fmt.Sprintf("{application: %s, weight: 1, limit: %d}", readers.flow(), limit))
	g.prepare(t, readers)
	c.forget(t)
	c.limit(t, slow)
	all := []*guest{g.join(t, readers), g.join(t, writers)}
	pass(t, settled)
	before, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	w := judge.Window{From: disk.Monotonic()}
	pass(t, length)
	w.To = disk.Monotonic()
	after, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	for _, p := range all {
		p.running(t)
	}
	used := c.judge(t, c.owners(t, map[string][]string{"limited": append(readers.paths(), writers.paths()...)}), w)[0].Owners["limited"]
	rate := bytesOf(used) / length.Seconds()
	got := func(name string) float64 { return after.flow(name, readers.flow()) - before.flow(name, readers.flow()) }
	t.Logf("100 streams of an application whose limit is %d bytes a second had %.0f, %.1f %% of them writes; %.0f packets were let through, %.0f bytes; the kernel moved %.0f bytes by itself",
		limit, rate, 100*float64(used.WriteBytes)/bytesOf(used), got("forced_total"), got("forced_bytes_total"), got("unscheduled_bytes_total"))
	if math.Abs(rate/limit-1) > 0.05 {
		t.Errorf("the application had %.0f bytes a second, its limit is %d", rate, limit)
	}
	c.node.rule(t)
	c.limit(t, disk.Model{})
	for _, p := range all {
		p.wait(t)
	}
}

// pass lets time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("interrupted")
	}
}
