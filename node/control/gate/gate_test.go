package gate

import (
	"path/filepath"
	"testing"
	"time"

	"penstock/lab/proc"
)

// A buffered write of a selected process waits until it is allowed. The request describes the write.
func TestABufferedWriteWaitsForItsAnswer(t *testing.T) {
	dir := disk(t, "ext4")
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take})
	if !g.Ranged() {
		t.Fatal("this kernel reports no ranges: the test needs Linux 6.14")
	}
	must(t, g.Mark(dir))
	p := startHelper(t, nil, "steps", filepath.Join(dir, "file"), "write:10000", "read:5000", "write:1")
	p.line()
	must(t, g.Classes([]Rule{{Class: 7, UID: AnyUser, PID: p.pid()}}))
	p.begin()
	r := h.next(t)
	if r.Class != 7 || r.PID != p.pid() || r.Op != Write || r.Direct || r.Offset != 0 || r.Length != 10000 {
		t.Errorf("the request is %+v", r)
	}
	if r.File == nil {
		t.Fatal("the request has no file")
	}
	if info, err := r.File.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file has %v bytes, error %v, before the write is allowed", info.Size(), err)
	}
	if !p.waiting() {
		t.Error("the process did not wait")
	}
	must(t, g.Allow(r.ID))
	if got := p.line(); got != "write <nil>" {
		t.Errorf("the write returned %q", got)
	}
	p.begin() // a read of resident bytes passes without a request
	if got := p.line(); got != "read <nil>" {
		t.Errorf("the read returned %q", got)
	}
	h.none(t, "a resident read")
	until(t, "the statistics show the resident read", func() bool { return g.Stats().Resident == 1 })

	p.begin()
	r = h.next(t)
	must(t, g.Unmark(dir)) // the write passes
	if got := p.line(); got != "write <nil>" {
		t.Errorf("the write returned %q", got)
	}
	t.Log(g.Missing())
}

// The gate process is small, and idle when there is nothing to do.
func TestTheGateProcessIsSmall(t *testing.T) {
	g := startGate(t, Options{Held: newHeld(t).take})
	resident, peak, err := proc.Memory(g.process)
	must(t, err)
	freshStats(t, g)
	before, err := proc.CPUTime(g.process)
	must(t, err)
	begin := time.Now()
	until(t, "40 heartbeats", func() bool {
		g.statsMu.Lock()
		defer g.statsMu.Unlock()
		return g.pongs >= 42
	})
	after, err := proc.CPUTime(g.process)
	must(t, err)
	share := float64(after-before) / float64(time.Since(begin))
	t.Logf("%.1f MB resident, at most %.1f; %.2f %% of a CPU", float64(resident)/1e6, float64(peak)/1e6, share*100)
	if resident > 64<<20 {
		t.Errorf("%d bytes resident", resident)
	}
	if share > 0.05 {
		t.Errorf("%.1f %% of a CPU without work", share*100)
	}
}
