package isolation

import (
	"strings"
	"testing"

	"penstock/testbed/disk"
)

func TestDefaultSetups(t *testing.T) {
	seen := map[string]string{}
	for _, against := range Aggressors {
		for _, kind := range []string{HDD, SSD} {
			s, err := DefaultSetup(against, kind)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(); err != nil {
				t.Errorf("%s on %s: %v", against, kind, err)
			}
			name := against + " on " + kind
			if other, ok := seen[s.Hash()]; ok {
				t.Errorf("%s has the hash of %s", name, other)
			}
			seen[s.Hash()] = name
		}
	}
	if _, err := DefaultSetup("teragen", "tape"); err == nil || !strings.Contains(err.Error(), "--disk") {
		t.Errorf("a tape: %v", err)
	}
}

// The disks are the presets of testbed/disk, whatever the units on the way.
func TestDiskSetupIsThePreset(t *testing.T) {
	for kind, want := range map[string]disk.Model{HDD: disk.HDD(disk.HDDRate), SSD: disk.SSD(disk.SSDRate)} {
		d, err := newDisk(kind)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.model(); got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
		rate := want.BytesPerSecond / 2
		d.SetRate(rate)
		if got := d.model(); got.BytesPerSecond != rate || got.WriteBytesPerSecond != want.WriteBytesPerSecond/2 {
			t.Errorf("%s at half the rate: %+v", kind, got)
		}
	}
}

func TestCapsFollowTheRate(t *testing.T) {
	for rate, want := range map[int64]int{12_000_000: 4, 40_000_000: 4, 2_000_000: 1, 3_000_000: 2} {
		caps := DiskSetup{BytesPerSecond: rate}.caps()
		if len(caps) != want || caps[0] < 1 || int64(caps[len(caps)-1])*megabyte > rate {
			t.Errorf("caps of %d bytes/s: %v, want %d of them", rate, caps, want)
		}
	}
}

func TestSetWeights(t *testing.T) {
	s := testSetup()
	before := s.Hash()
	if err := s.SetWeights("32:1"); err != nil || s.Hash() != before {
		t.Errorf("the default weights change the setup: %v", err)
	}
	if err := s.SetWeights("2:1"); err != nil || s.Hash() == before || s.Penstock.ProtectedWeight != 2 || s.Penstock.AggressorWeight != 1 {
		t.Errorf("2:1: %+v, %v", s.Penstock, err)
	}
	for _, bad := range []string{"", "2", "2:", ":1", "0:1", "1:0", "1000001:1", "2:1:1", "a:b"} {
		if err := s.SetWeights(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Setup){
		"aggressor":     func(s *Setup) { s.Against = "sleep" },
		"kind":          func(s *Setup) { s.Disk.Kind = "tape" },
		"hard disk's":   func(s *Setup) { s.Disk.Channels = 8 },
		"solid-state's": func(s *Setup) { s.Disk.Kind = SSD },
		"rate":          func(s *Setup) { s.Disk.BytesPerSecond = 999_999 },
		"no DataNodes":  func(s *Setup) { s.Disk.DataNodes = 0 },
		"dirty limits":  func(s *Setup) { s.Kernel.DirtyBytes = s.Kernel.DirtyBackgroundBytes },
		"Hadoop":        func(s *Setup) { s.Hadoop.Version = "2.10.2" },
		"no input":      func(s *Setup) { s.Protected.InputBytes = 0 },
		"no slots":      func(s *Setup) { s.Aggressor.Slots = 0 },
	} {
		s := testSetup()
		if spoil(&s); s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
