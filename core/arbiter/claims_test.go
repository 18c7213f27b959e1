package arbiter_test

import (
	"testing"
	"time"

	"penstock/core/arbiter"
)

// sparse is a file of any size. Only the bytes in written occupy space on the device.
type sparse struct {
	endless
	written int64
}

func (s sparse) Written() (int64, bool) { return s.written, true }

// TestAReadersClaimIsHeldAgainstItsFile has a reader claim a position far beyond its mark. The
// reader is charged at most the bytes that its file occupies, because the kernel cannot have
// fetched more.
func TestAReadersClaimIsHeldAgainstItsFile(t *testing.T) {
	const mib, quantum, size = 1 << 20, 1 << 20, 4 << 40
	for _, c := range []struct{ written, pos, want int64 }{
		{0, size, 0},
		{3 * mib, size, 3 * mib},
		{3 * mib, 3*mib + 1, 3 * mib},
		{0, mib, mib}, // within a lease the file is not checked
		{0, mib + 1, 0},
	} {
		cfg := diskConfig(2e9, 0)
		cfg.Quantum = quantum
		a, err := arbiter.New(arbiter.Options{Config: cfg, Mode: arbiter.Observe, Policy: func(string) arbiter.Rule {
			return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
		}})
		if err != nil {
			t.Fatal(err)
		}
		missing := make([]int64, 4096) // as many quanta as the daemon checks when it opens a file
		for i := range missing {
			missing[i] = quantum
		}
		s := a.Open(1, arbiter.Opening{Flow: "a", To: size, Missing: missing, File: sparse{written: c.written}})
		a.Progress(time.Second, s, c.pos)
		if got := a.Snapshot(time.Second).Flows[0].Behind; got != c.want {
			t.Errorf("%d bytes written, %d reported as read: %d charged, want %d", c.written, c.pos, got, c.want)
		}
	}
}

// TestAWritersStepsAreHeldAgainstItsFile has a writer claim, step by step, bytes that it has not
// written. No account may count them.
func TestAWritersStepsAreHeldAgainstItsFile(t *testing.T) {
	w := diskWorld(t, 2, enforced(nil), nil)
	s := w.open(&stream{}, arbiter.Opening{Flow: "a", Write: true})
	for i := range int64(100) {
		w.progress(s, (i+1)*mib)
		w.run(50 * time.Millisecond)
	}
	w.close(s, 100*mib)
	w.run(time.Second)
	if f := w.a.Snapshot(w.now).Flows[0]; f.Bytes[1] != 0 || f.Behind != 0 || !s.released {
		t.Errorf("%d bytes written and %d by the kernel, of an empty file; released: %v", f.Bytes[1], f.Behind, s.released)
	}
}

// TestIdleReadersHoldNoRoomOfOthers has readers that stop reading and keep the bytes staged for
// them. Another flow must still get its share, and closed streams must free all room.
func TestIdleReadersHoldNoRoomOfOthers(t *testing.T) {
	w := diskWorld(t, 2, enforced(map[string]int{"protected": 32, "beside": 1}), func(c *arbiter.Config) {
		c.Quantum, c.Ahead, c.Staged = mib, 2, 16*mib
	})
	for range 64 {
		w.open(&stream{}, arbiter.Opening{Flow: "idle", To: endlessFile})
	}
	w.run(time.Minute)
	w.reader("protected", endlessFile)
	w.writer("beside", endlessFile)
	w.run(10 * time.Second)
	from := w.now
	for range 100 {
		s := w.open(&stream{}, arbiter.Opening{Flow: "idle", To: endlessFile})
		w.run(100 * time.Millisecond)
		w.close(s, 0)
	}
	w.run(20 * time.Second)
	all := w.between(from, w.now)
	p, b := all["protected"].service, all["beside"].service
	if part := float64(p) / float64(p+b); part < 0.95*32/33 {
		t.Errorf("the protected reader has %.3f of the disk's time beside a writer, its due is %.3f", part, 32.0/33)
	}
	if n := w.a.Shorts(); n > 66 {
		t.Errorf("%d streams wait for room, 66 are open", n)
	}
}
