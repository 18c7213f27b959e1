package isolation

import (
	"path/filepath"
	"strings"
	"testing"
)

func testSetup() Setup {
	s, err := DefaultSetup(wordCount, "teragen", HDD)
	if err != nil {
		panic(err)
	}
	return s
}

func TestMissing(t *testing.T) {
	x := newExperiment(t, &fake{}, "alone", "floor")
	x.Runs = 3
	var got []string
	for _, turn := range x.missing([]Run{{Phase: "floor", Number: 2}, {Phase: "alone", Number: 1}, {Phase: "sfqd2", Number: 1}}) {
		got = append(got, turn.String())
	}
	if want := "floor, run 1; alone, run 2; alone, run 3; floor, run 3"; strings.Join(got, "; ") != want {
		t.Errorf("missing are %s; want %s", strings.Join(got, "; "), want)
	}
}

func TestJournalRefusesAnotherSetup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	x := newExperiment(t, &fake{}, "alone")
	x.Resume = path
	if runs, err := run(t, t.Context(), x); err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	f := &fake{}
	x = newExperiment(t, f, "alone")
	x.Resume, x.Setup.Disk.BytesPerSecond = path, 24_000_000
	_, err := run(t, t.Context(), x)
	if err == nil || !strings.Contains(err.Error(), "disk.bytes_per_second: 12000000, now 24000000") || len(f.calls) != 0 {
		t.Errorf("another setup: %v after %v; want an error that names the field and both values", err, f.calls)
	}
}

func TestSetupHash(t *testing.T) {
	a, b := testSetup(), testSetup()
	if a.Hash() != b.Hash() {
		t.Error("equal setups differ")
	}
	b.Penstock.ReferenceRead.PerMiBMillis++
	if a.Hash() == b.Hash() {
		t.Error("a nested difference is not seen")
	}
}
