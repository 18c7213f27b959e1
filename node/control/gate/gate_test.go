package gate

import (
	"path/filepath"
	"testing"
)

// A buffered write of a selected process waits until it is allowed; the request says what it is.
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
	p.begin() // a read of what is in the page cache asks nobody
	if got := p.line(); got != "read <nil>" {
		t.Errorf("the read returned %q", got)
	}
	h.none(t, "a resident read")
	until(t, "the statistics show the resident read", func() bool { return g.Stats().Resident == 1 })

	p.begin()
	r = h.next(t)
	must(t, g.Unmark(dir)) // lets it go
	if got := p.line(); got != "write <nil>" {
		t.Errorf("the write returned %q", got)
	}
	t.Log(g.Missing())
}
