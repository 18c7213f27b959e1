package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/profile"
)

// A profile of the experiment's own disks replaces the set-up's lines in the daemon's settings and is
// part of the set-up. A profile of another disk is an error.
func TestProfile(t *testing.T) {
	dir := t.TempDir()
	line := func(fixed, perMiB time.Duration) profile.Line {
		return profile.Line{Fixed: profile.Duration(fixed), PerMiB: profile.Duration(perMiB)}
	}
	s, err := DefaultSetup(wordCount, "teragen", SSD)
	if err != nil {
		t.Fatal(err)
	}
	p := profile.Profile{Version: profile.Version, Device: profile.Device{Name: "loop3", Bytes: s.Disk.SizeBytes},
		Cost:      profile.Cost{Read: profile.Coefficients{Random: line(time.Millisecond, 26*time.Millisecond), Sequential: line(0, 26*time.Millisecond)}},
		Reference: profile.Reference{Read: profile.Latency{Line: line(3*time.Millisecond, 48*time.Millisecond), Concurrency: 2}},
		Quantum:   1 << 20}
	write := func(name string) string {
		text, err := p.Text()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := write("ssd.profile")
	before := s.Hash()
	if err := s.useProfile(""); err != nil || s.Hash() != before {
		t.Errorf("without a profile: %v", err)
	}
	if err := s.useProfile(file); err != nil || s.Hash() == before {
		t.Fatalf("its own disks' profile: %v; it must change the setup", err)
	}
	phases, err := ParsePhases([]string{"sfqd2", "drr"}, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range phases {
		n := settingsOf(t, dir, s.Penstock, phase, file)
		c, misfit, err := n.ConfigFor(profile.Device{Name: "loop7", Bytes: s.Disk.SizeBytes})
		if err != nil || misfit != nil || c.Depth.Read.PerMiB != 48*time.Millisecond || c.Quantum != s.Penstock.QuantumBytes {
			t.Errorf("%s: %+v, %v, %v", phase.Name, c, misfit, err)
		}
	}
	p.Device.Bytes /= 2
	if err := s.useProfile(write("other.profile")); err == nil || !strings.Contains(err.Error(), "--kind ssd --size 6144M") {
		t.Errorf("another disk's profile: %v", err)
	}
	if err := s.useProfile(filepath.Join(dir, "none")); err == nil {
		t.Error("a profile that is not there was accepted")
	}
}
