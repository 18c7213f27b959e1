package measure

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/profile"
)

// fake is a device in virtual time with several channels. They share a request in parts of at least
// 64 KiB. A request that does not begin where the last one ended takes longer.
type fake struct {
	fixed    [2]time.Duration // read, write: time per request, on its channel
	seek     time.Duration    // more for a request at a new place
	perMiB   [2]time.Duration // of the whole device
	channels int
	fail     error
	readOnly bool

	mu    sync.Mutex
	free  []time.Time
	end   int64
	inUse map[int64]bool
}

func (d *fake) size() int64                      { return 1 << 30 }
func (d *fake) writable() bool                   { return !d.readOnly }
func (d *fake) prepare(bool, int64, int64) error { return nil }
func (d *fake) forget(off, _ int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.inUse, off)
	return nil
}
func (d *fake) close() error                        { return nil }
func (d *fake) lay(func(int64) bool) (int64, error) { return 0, d.fail }

func (d *fake) do(_ int, write bool, off, n int64) error {
	d.mu.Lock()
	i := 0
	if write {
		i = 1
	}
	if d.inUse == nil {
		d.inUse, d.free = map[int64]bool{}, make([]time.Time, d.channels)
	}
	if d.inUse[off] {
		d.mu.Unlock()
		return errors.New("two requests at one place")
	}
	d.inUse[off] = true
	part := max(64<<10, n/int64(d.channels))
	now, last := time.Now(), time.Now()
	for at := int64(0); at < n; at += part {
		took := d.fixed[i] + time.Duration(float64(d.perMiB[i])*float64(min(part, n-at))/mib*float64(d.channels))
		if off+at != d.end {
			took += d.seek
		}
		d.end = off + min(at+part, n)
		first := 0
		for c := range d.free {
			if d.free[c].Before(d.free[first]) {
				first = c
			}
		}
		if d.free[first].Before(now) {
			d.free[first] = now
		}
		d.free[first] = d.free[first].Add(took)
		if d.free[first].After(last) {
			last = d.free[first]
		}
	}
	wait := time.Until(last)
	d.mu.Unlock()
	time.Sleep(wait) // virtual
	return nil
}

func measured(t *testing.T, d *fake) *Result {
	t.Helper()
	var steps []Progress
	r, err := newMeasurement(d, Options{Time: time.Minute, Seed: 7, Progress: func(p Progress) { steps = append(steps, p) }}).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		if s.Done < 0 || s.Done > s.Total || i > 0 && s.Done < steps[i-1].Done {
			t.Errorf("progress goes from %+v to %+v", steps[max(i-1, 0)], s)
		}
	}
	if last := steps[len(steps)-1]; last.Done != last.Total {
		t.Errorf("the end of the progress is %+v", last)
	}
	r.Profile.Device = profile.Device{Name: "fake", Bytes: 1}
	if err := r.Profile.Validate(); err != nil {
		t.Error(err)
	}
	return r
}

func about(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= part) {
		t.Errorf("%s is %v, want %v within %.0f %%", what, got, want, 100*part)
	}
}

func ms(d profile.Duration) float64 { return time.Duration(d).Seconds() * 1e3 }

func TestHardDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fake{channels: 1, seek: 8 * time.Millisecond, perMiB: [2]time.Duration{80 * time.Millisecond, 100 * time.Millisecond}}
		began := time.Now()
		r := measured(t, d)
		if took := time.Since(began); took > 75*time.Second {
			t.Errorf("a measurement of a minute took %v", took)
		}
		p := r.Profile
		about(t, "a random read", ms(p.Cost.Read.Random.Fixed), 8, 0.05)
		about(t, "a random write", ms(p.Cost.Write.Random.Fixed), 8, 0.05)
		about(t, "a MiB read", ms(p.Cost.Read.Sequential.PerMiB), 80, 0.02)
		about(t, "a MiB written", ms(p.Cost.Write.Random.PerMiB), 100, 0.02)
		if got := ms(p.Cost.Read.Sequential.Fixed); got > 0.2 {
			t.Errorf("a sequential read has %v ms of its own", got)
		}
		// Two at a time, each waits for the other.
		about(t, "the reference for a MiB", ms(p.Reference.Read.Fixed)+ms(p.Reference.Read.PerMiB), 2*88, 0.05)
		about(t, "a read MiB alone", ms(p.Cost.Read.Alone.Fixed)+ms(p.Cost.Read.Alone.PerMiB), 88, 0.03)
		// Reads: 4 MiB keep 320/328, 2 MiB 160/168, 0.952.
		if p.Quantum != 4<<20 {
			t.Errorf("quantum %v", p.Quantum)
		}
		if p.Residual > 0.02 || len(r.Warnings) != 0 {
			t.Errorf("residual %v, warnings %q", p.Residual, r.Warnings)
		}
	})
}

func TestFlashDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fake{channels: 8, fixed: [2]time.Duration{time.Millisecond, 2 * time.Millisecond}, perMiB: [2]time.Duration{25 * time.Millisecond, 40 * time.Millisecond}}
		p := measured(t, d).Profile
		// The fixed time of a part counts as time for bytes, as all requests have parts.
		about(t, "a MiB read", ms(p.Cost.Read.Random.PerMiB), 26, 0.05)
		about(t, "a MiB written", ms(p.Cost.Write.Random.PerMiB), 42, 0.05)
		if fixed := ms(p.Cost.Write.Random.Fixed); fixed > 0.3 {
			t.Errorf("a write has %v ms of its own", fixed)
		}
		// 64 KiB are on one channel, 4 MiB on all.
		about(t, "part of the device that 64 KiB keep busy", p.Model().Part(false, 64<<10), 1./8, 0.4)
		about(t, "part of the device that 4 MiB keep busy", p.Model().Part(true, bytesMax), 1, 0.01)
		// Two requests of four parts keep eight channels busy.
		if p.Quantum != 256<<10 || p.Reference.Read.Concurrency != 2 || p.Reference.Write.Concurrency != 2 {
			t.Errorf("quantum %v, saturated at %d reads and %d writes", p.Quantum, p.Reference.Read.Concurrency, p.Reference.Write.Concurrency)
		}
		about(t, "the reference for a read of 4 MiB", ms(p.Reference.Read.Fixed)+4*ms(p.Reference.Read.PerMiB), 2*101, 0.2)
	})
}

func TestReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := measured(t, &fake{channels: 1, readOnly: true, seek: 60 * time.Millisecond, perMiB: [2]time.Duration{8 * time.Millisecond}})
		if r.Profile.Cost.Write != nil || r.Profile.Reference.Write != nil {
			t.Errorf("writes appear from nowhere: %+v", r.Profile)
		}
		if text := strings.Join(r.Warnings, "\n"); !strings.Contains(text, "writes were not measured") || !strings.Contains(text, "seeks are long") || r.Profile.Quantum != bytesMax {
			t.Errorf("quantum %v, warnings %q", r.Profile.Quantum, r.Warnings)
		}
	})
}

func TestTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := &fake{channels: 1, perMiB: [2]time.Duration{time.Minute, time.Minute}}
		_, err := newMeasurement(d, Options{Time: 10 * time.Second}).run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "--time") {
			t.Errorf("a disk of a MiB a minute: %v", err)
		}
		if took := time.Since(began); took > 10*time.Minute { // requests in flight have to end
			t.Errorf("it took %v to say so", took)
		}
	})
}

func TestInterruptedAndBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errors.New("interrupted"))
		defer cancel()
		d := &fake{channels: 1, perMiB: [2]time.Duration{time.Millisecond, time.Millisecond}}
		if _, err := newMeasurement(d, Options{Time: time.Minute}).run(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("interrupted: %v", err)
		}
		d.fail = errors.New("no space left")
		if _, err := newMeasurement(d, Options{Time: time.Minute}).run(t.Context()); !errors.Is(err, d.fail) {
			t.Errorf("broken: %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	for want, o := range map[string]Options{
		"too short":      {Path: dir, Time: TimeMin - 1},
		"too few":        {Path: dir, Space: spaceMin - 1},
		"neither":        {Path: "/dev/null"},
		"no such file":   {Path: dir + "/none"},
		"give less with": {Path: dir, Space: 1 << 60},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want something with %q", o, err, want)
		}
	}
}

func TestFit(t *testing.T) {
	point := func(sequential bool, bytes int64, took float64) Point {
		return Point{Load: Load{Sequential: sequential, Bytes: bytes}, BytesPerSecond: float64(bytes) / took * 1e9, Saturated: true}
	}
	// A new place that seems cheaper, by noise, makes no difference.
	random, sequential, err := fitCosts([]Point{point(false, mib, 99e6), point(false, 2*mib, 199e6), point(true, mib, 101e6), point(true, 2*mib, 201e6)})
	if err != nil || random != sequential || random.fixed > 1e6 || math.Abs(random.perMiB-100e6) > 1e6 {
		t.Errorf("%+v and %+v, %v", random, sequential, err)
	}
	// No part is below 0.
	l, err := fitLatency([]int64{mib, 2 * mib, 4 * mib}, []time.Duration{time.Millisecond, 3 * time.Millisecond, 9 * time.Millisecond})
	if err != nil || l.fixed != 0 || l.perMiB <= 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := fitLatency([]int64{mib}, []time.Duration{1}); err == nil {
		t.Error("one size gives a line")
	}
	if got := residual([]Point{point(false, mib, 110), point(true, mib, 50)}, line{0, 100}, line{0, 50}); math.Abs(got-1/11./math.Sqrt2) > 1e-9 {
		t.Errorf("residual %v", got)
	}
}

func TestDiskThatWorksForOthers(t *testing.T) {
	m := &measurement{bytes: 100 * mib}
	for device, want := range map[int64]string{100 * mib: "", 109 * mib: "", 120 * mib: "warned", 151 * mib: "for others", 49 * mib: "in memory"} {
		var r Result
		err := m.alone(device, &r)
		switch {
		case err != nil && (want == "" || !strings.Contains(err.Error(), want)),
			err == nil && want != "" && want != "warned",
			(len(r.Warnings) > 0) != (want == "warned"):
			t.Errorf("%d MiB at the device: %v, %q, want %q", device>>20, err, r.Warnings, want)
		}
	}
}
