package monitor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInFlight(t *testing.T) {
	sysfs := t.TempDir()
	dir := filepath.Join(sysfs, "block", "sda")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text             string
		reading, writing int64
		good             bool
	}{{"       3        12\n", 3, 12, true}, {"0 0", 0, 0, true}, {"", 0, 0, false}, {"1\n", 0, 0, false}, {"-1 2\n", 0, 0, false}, {"1 2 3\n", 0, 0, false}, {"1 99999999999", 0, 0, false}} {
		if err := os.WriteFile(filepath.Join(dir, "inflight"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		reading, writing, err := InFlight(sysfs, "sda")
		if (err == nil) != c.good || c.good && (reading != c.reading || writing != c.writing) {
			t.Errorf("%q: %d, %d, %v", c.text, reading, writing, err)
		}
	}
	if _, _, err := InFlight(sysfs, "sdb"); err == nil {
		t.Error("a device that is not there has requests")
	}
}

func FuzzInFlight(f *testing.F) {
	f.Add("0 0\n")
	f.Add("-1 x")
	f.Fuzz(func(t *testing.T, text string) {
		if reading, writing, err := parseInFlight(text); err == nil && (reading < 0 || writing < 0) {
			t.Errorf("%d, %d", reading, writing)
		}
	})
}
