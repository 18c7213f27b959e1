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

func TestJournalResumes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	j, err := OpenJournal(path, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		if err := j.Append(Run{Phase: "alone", Number: n, RuntimeS: float64(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenJournal(path, testSetup()); err == nil || !strings.Contains(err.Error(), "another penstock") {
		t.Fatalf("a journal that is being written was opened a second time: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, err = OpenJournal(path, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	alone := Phase{Name: "alone"}
	if len(j.Runs()) != 3 || !j.Has(Turn{alone, 2}) || j.Has(Turn{alone, 4}) || j.Has(Turn{Phase{Name: "floor"}, 1}) {
		t.Fatalf("resumed with %+v", j.Runs())
	}
}

func TestJournalRefusesAnotherSetup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	j, err := OpenJournal(path, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	other := testSetup()
	other.Disk.BytesPerSecond = 24_000_000
	_, err = OpenJournal(path, other)
	if err == nil || !strings.Contains(err.Error(), "disk.bytes_per_second: 12000000, now 24000000") {
		t.Errorf("another setup: %v; want an error that names the field and both values", err)
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
