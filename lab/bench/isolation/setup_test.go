package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/lab/contest"
	"penstock/lab/disk"
)

func TestDefaultSetups(t *testing.T) {
	seen := map[string]string{}
	for _, protected := range Protecteds {
		for _, against := range Aggressors {
			for _, kind := range []string{HDD, SSD} {
				s, err := DefaultSetup(protected, against, kind)
				if err != nil {
					t.Fatal(err)
				}
				name := protected + " against " + against + " on " + kind
				if err := s.Validate(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if s.Intermediate != (protected != wordCount) {
					t.Errorf("%s: intermediate data on the contested disks: %v", name, s.Intermediate)
				}
				if other, ok := seen[s.Hash()]; ok {
					t.Errorf("%s has the hash of %s", name, other)
				}
				seen[s.Hash()] = name
			}
		}
	}
	if _, err := DefaultSetup(wordCount, "teragen", "tape"); err == nil || !strings.Contains(err.Error(), "--disk") {
		t.Errorf("a tape: %v", err)
	}
}

// Older journals stay valid: later fields are left out of the hash where they are not used.
func TestOlderSetupsKeepTheirHash(t *testing.T) {
	for pair, want := range map[[2]string]string{
		{teraGen, HDD}: "de0ca88e695309b2153b5158", {teraSort, HDD}: "0c4f8692695e780248abcb9b", {teraValidate, SSD}: "da3c705c1f03be4be80ca735",
	} {
		s, err := DefaultSetup(wordCount, pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Hash(); got != want {
			t.Errorf("%v: %s, was %s", pair, got, want)
		}
	}
}

func TestIntermediateTwiceIsOnce(t *testing.T) {
	s, err := DefaultSetup(wordCount, teraSort, HDD)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Aggressor.Bytes
	for _, on := range []bool{true, true, false, false} {
		s.SetIntermediate(on)
	}
	if s.Intermediate || s.Aggressor.Bytes != before {
		t.Errorf("on and off again: %v, %d bytes, were %d", s.Intermediate, s.Aggressor.Bytes, before)
	}
}

// The disks are the presets of lab/disk; no unit is converted wrongly.
func TestDiskSetupIsThePreset(t *testing.T) {
	for kind, want := range map[string]disk.Model{HDD: disk.HDD(disk.HDDRate), SSD: disk.SSD(disk.SSDRate)} {
		d, err := contest.NewDisk(kind)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Model(); got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
		rate := want.BytesPerSecond / 2
		d.SetRate(rate)
		if got := d.Model(); got.BytesPerSecond != rate || got.WriteBytesPerSecond != want.WriteBytesPerSecond/2 {
			t.Errorf("%s at half the rate: %+v", kind, got)
		}
	}
}

// The caps follow the disk's rate in the aggressor's direction.
func TestCapsFollowTheRate(t *testing.T) {
	for _, c := range []struct {
		against     string
		read, write int64
		want        []int
	}{
		{"teragen", 12_000_000, 0, []int{2, 4, 6, 8}},
		{"teragen", 40_000_000, 25_000_000, []int{4, 8, 13, 17}},
		{"teravalidate", 40_000_000, 25_000_000, []int{7, 13, 20, 27}},
		{"terasort", 2_000_000, 0, []int{1}},
		{"wordcount", 40_000_000, 25_000_000, []int{7, 13, 20, 27}},
	} {
		s := Setup{Against: c.against, Disk: contest.Disk{BytesPerSecond: c.read, WriteBytesPerSecond: c.write}}
		if got := s.caps(); !slices.Equal(got, c.want) {
			t.Errorf("%s, %d and %d bytes/s: caps %v, want %v", c.against, c.read, c.write, got, c.want)
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
		"protected":      func(s *Setup) { s.Protected.Job = "sleep" },
		"no scale":       func(s *Setup) { s.protect(tpchQ9); s.Protected.Scale = 0 },
		"no partitions":  func(s *Setup) { s.protect(tpchQ9); s.Protected.Partitions = 0 },
		"far shuffle":    func(s *Setup) { s.protect(tpchQ9); s.Intermediate = false },
		"aggressor":      func(s *Setup) { s.Against = "sleep" },
		"kind":           func(s *Setup) { s.Disk.Kind = "tape" },
		"hard disk's":    func(s *Setup) { s.Disk.Channels = 8 },
		"solid-state's":  func(s *Setup) { s.Disk.Kind = SSD },
		"rate":           func(s *Setup) { s.Disk.BytesPerSecond = 999_999 },
		"no DataNodes":   func(s *Setup) { s.Disk.DataNodes = 0 },
		"dirty limits":   func(s *Setup) { s.Kernel.DirtyBytes = s.Kernel.DirtyBackgroundBytes },
		"dirty shares":   func(s *Setup) { s.Penstock.DirtySharePercent = 90/s.Disk.DataNodes + 1 },
		"under Penstock": func(s *Setup) { s.Penstock.DirtyBackgroundBytes = s.Kernel.DirtyBytes },
		"Hadoop":         func(s *Setup) { s.Hadoop.Version = "2.10.2" },
		"no input":       func(s *Setup) { s.Protected.InputBytes = 0 },
		"no slots":       func(s *Setup) { s.Aggressor.Slots = 0 },
		"uneven":         func(s *Setup) { s.Aggressor.Slots, s.Aggressor.Applications = 4, 3 },
		"too many":       func(s *Setup) { s.Aggressor.Slots, s.Aggressor.Applications = 4, 5 },
		"two TeraSorts":  func(s *Setup) { s.Against, s.Aggressor.Applications = "terasort", 2 },
	} {
		s := testSetup()
		if spoil(&s); s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDivide(t *testing.T) {
	for _, c := range []struct{ slots, n, wantSlots, each int }{{4, 1, 4, 4}, {4, 2, 4, 2}, {4, 4, 4, 1}, {4, 3, 3, 1}, {4, 8, 8, 1}} {
		s := testSetup()
		s.Against, s.Aggressor.Slots, s.Aggressor.Bytes = "teragen", c.slots, 2400*mib
		s.Aggressor.Divide(c.n)
		one := s.Aggressor.each()
		if err := s.Validate(); err != nil || s.Aggressor.Slots != c.wantSlots || one.Slots != c.each || one.Bytes != 2400*mib/int64(c.n) || one.Applications != 1 {
			t.Errorf("%d slots by %d: %+v, each %+v, %v", c.slots, c.n, s.Aggressor, one, err)
		}
	}
}

// TestOverride checks that a file changes single fields, and that one error has all of its
// mistakes.
func TestOverride(t *testing.T) {
	file := filepath.Join(t.TempDir(), "setup.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := DefaultSetup(Protecteds[0], DefaultAggressor, HDD)
	if err != nil {
		t.Fatal(err)
	}
	want := s
	want.Disk.BytesPerSecond, want.Penstock.AggressorWeight = 12_000_000, 3
	write("{\n\t\"disk\": {\"bytes_per_second\": 12000000},\n\t\"penstock\": {\"aggressor_weight\": 3}\n}\n")
	if err := s.Override(file); err != nil || s.Hash() != want.Hash() {
		t.Errorf("%v, %+v", err, s)
	}
	write("{\"Runs\": 3,\n \"disk\": 3,\n \"kernel\": {\"dirty_byte\": 1, \"dirty_bytes\": \"much\"}}\n")
	err = s.Override(file)
	for _, part := range []string{
		`line 1, column 2: the file has no field "Runs"`, "line 2, column 10: disk must be a mapping of fields: ",
		`line 3, column 13: kernel has no field "dirty_byte": did you mean dirty_bytes?`, `line 3, column 45: dirty_bytes: "much": give a whole number`,
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %s", err, part)
		}
	}
	write("{\"disk\": 3, x")
	if err := s.Override(file); err == nil || !strings.Contains(err.Error(), "not YAML: ") {
		t.Error(err)
	}
	if err := s.Override(file + "x"); err == nil || !strings.HasSuffix(err.Error(), "no such file or folder") {
		t.Error(err)
	}
}
