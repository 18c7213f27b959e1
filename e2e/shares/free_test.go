package shares

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	clients "penstock/lab/client"
)

// TestSmallReadsAlone: while only one application uses the disk, its small reads do not wait for their marks, and are
// charged what the disk has read. When another application reads, they wait again.
func TestSmallReadsAlone(t *testing.T) {
	const length = 15 * time.Second
	c := start(t)
	known := fine
	known.profile = c.profile(t)
	c.retune(t, known)
	g := c.guests(t)
	const path, size, seed = "/small-reads", 256 * mib, 300
	g.create(t, path, &filled{seed: seed}, size)
	other := part{number: 301, bytes: 128 * mib}
	g.prepare(t, other)
	c.forget(t)
	c.limit(t, slow)
	free := func(want float64) func(metrics) error {
		return func(m metrics) error {
			if got := m.Sum("device_free"); got != want {
				return fmt.Errorf("the metric device_free is %v, want %v", got, want)
			}
			return nil
		}
	}
	fixture.Must(t, c.node.await(t.Context(), "free", free(1)))
	before, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	disk0, _, err := c.disk.Counters()
	fixture.Must(t, err)

	var reads atomic.Int64
	ended := make(chan error, 1)
	id := g.jvm.Do("probe-read", fmt.Sprintf("path=%s attempt=%s bytes=16384 length=%d seed=%d every=20", path, clients.Attempt(seed), size, seed), func(event, value string) {
		switch event {
		case "read":
			reads.Add(1)
		case "trouble", "error":
			ended <- errors.New(value)
		case "done":
			ended <- nil
		}
	})
	defer g.jvm.Forget(id)
	pause := func(length time.Duration) {
		t.Helper()
		select {
		case <-time.After(length):
		case err := <-ended:
			t.Fatalf("the reads have ended too early: %v", err)
		}
	}
	// The device is not free for two seconds after the first read, which may be of two flows until its name is verified.
	pause(4 * time.Second)
	begun := reads.Load()
	m, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	passedBefore := m.Sum("passing_reads_total")
	pause(length)
	alone := reads.Load() - begun
	m, err = c.node.scrape(t.Context())
	fixture.Must(t, err)
	passed := m.Sum("passing_reads_total") - passedBefore
	t.Logf("%d reads alone, of which %v passed", alone, passed)
	if passed < 0.9*float64(alone) {
		t.Errorf("only %v of %d reads passed", passed, alone)
	}
	if err := free(1)(m); err != nil {
		t.Error("while one application reads: ", err)
	}

	guest := g.join(t, other)
	c.backlogged(t, guest)
	fixture.Must(t, c.node.await(t.Context(), "no longer free", free(0)))
	m, err = c.node.scrape(t.Context())
	fixture.Must(t, err)
	begin := reads.Load()
	pause(2 * time.Second)
	beside, err := c.node.scrape(t.Context())
	fixture.Must(t, err)
	guest.running(t)
	if n := beside.Sum("passing_reads_total") - m.Sum("passing_reads_total"); n > 1 {
		t.Errorf("beside another application %v of %d reads passed", n, reads.Load()-begin)
	}
	g.jvm.Limit(id, 0)
	fixture.Must(t, <-ended)
	guest.wait(t)
	fixture.Must(t, c.node.await(t.Context(), "free again", free(1)))

	// The last reads are charged up to two seconds late.
	disk1, _, err := c.disk.Counters()
	fixture.Must(t, err)
	var part float64
	fixture.Must(t, c.node.await(t.Context(), "charging what the disk has read", func(m metrics) error {
		charged := m.Sum("flow_bytes_total", "direction=read") - before.Sum("flow_bytes_total", "direction=read")
		if part = charged / float64(disk1-disk0); part < 0.95 {
			return fmt.Errorf("the disk has read %d bytes, and %.0f are charged", disk1-disk0, charged)
		}
		return nil
	}))
	t.Logf("the disk has read %d bytes, %.4f of them are charged", disk1-disk0, part)
	if part > 1.05 {
		t.Errorf("%.4f of the bytes that the disk has read are charged", part)
	}
}
