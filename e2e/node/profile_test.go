package node

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/node/profile"
	"penstock/ops/measure"
)

// The disk that is profiled.
const (
	profiledRate = 48_000_000
	profiledSeek = 5 * time.Millisecond
)

func profiledDisk(t *testing.T) *disk.Disk {
	t.Helper()
	d, err := disk.Start(t.Context(), disk.Options{Name: "profile", RunDir: t.TempDir(), Size: 256 * fixture.MiB,
		Model: disk.Model{BytesPerSecond: profiledRate, SeekMin: profiledSeek, SeekMax: profiledSeek}})
	if err != nil {
		t.Fatalf("this test needs a modelled disk: %v", err)
	}
	t.Cleanup(func() {
		fixture.Check(t, d.Stop())
	})
	return d
}

// nothingIsLeft fails the test if there is a new file on the disk.
func nothingIsLeft(t *testing.T, d *disk.Disk) {
	t.Helper()
	entries, err := os.ReadDir(d.Mount())
	fixture.Must(t, err)
	for _, e := range entries {
		if e.Name() != "lost+found" {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

func TestCoefficientsAreTheDisks(t *testing.T) {
	d := profiledDisk(t)
	r, err := measure.Run(t.Context(), measure.Options{Path: d.Mount(), Time: 14 * time.Second, Space: 128 * fixture.MiB, Seed: 1})
	fixture.Must(t, err)
	nothingIsLeft(t, d)
	p := r.Profile
	text, err := p.Text()
	fixture.Must(t, err)
	t.Logf("%s\nwarnings: %q", text, r.Warnings)
	within := func(what string, got profile.Duration, want time.Duration, part float64) {
		t.Helper()
		off := time.Duration(got).Seconds()/want.Seconds() - 1
		t.Logf("%s: %v of %v, %+.1f %%", what, time.Duration(got), want, 100*off)
		if off < -part || off > part {
			t.Errorf("%s is %v, the disk's is %v", what, time.Duration(got), want)
		}
	}
	perMiB := fixture.MiB * time.Second / profiledRate
	for what, c := range map[string]profile.Coefficients{"reads": p.Cost.Read, "writes": *p.Cost.Write} {
		within("a MiB of "+what, c.Sequential.PerMiB, perMiB, 0.15)
		within("a new place of "+what, c.Random.Fixed-c.Sequential.Fixed, profiledSeek, 0.4)
		if own := time.Duration(c.Sequential.Fixed); own > 2*time.Millisecond {
			t.Errorf("sequential %s have %v of their own", what, own)
		}
	}
	for what, l := range map[string]profile.Latency{"reads": p.Reference.Read, "writes": *p.Reference.Write} {
		within("the reference for a MiB of "+what, l.Fixed+l.PerMiB, time.Duration(l.Concurrency)*(profiledSeek+perMiB), 0.25)
	}
	if part := p.Model().Part(false, fixture.MiB); part < 0.85 {
		t.Errorf("a request alone keeps %.2f of a disk with one head busy", part)
	}
	if p.Quantum < 4*fixture.MiB { // 5 ms of 87 is too much for 2 MiB at 44 ms
		t.Errorf("quantum %v", p.Quantum)
	}
	id, err := profile.Identify("/sys", p.Device.Name)
	if err != nil || p.Fits(id) != nil {
		t.Errorf("the profile does not fit the disk that it was measured on: %v", errors.Join(err, p.Fits(id)))
	}
}

func TestInterruptLeavesNothing(t *testing.T) {
	d := profiledDisk(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := measure.Run(ctx, measure.Options{Path: d.Mount(), Time: time.Minute, Space: 64 * fixture.MiB, Progress: func(p measure.Progress) {
		if p.Point != nil { // well under way
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted, it says %v", err)
	}
	nothingIsLeft(t, d)
}
