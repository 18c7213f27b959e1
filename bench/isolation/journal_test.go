package isolation

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testSetup() Setup { return DefaultSetup("teragen") }

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

// A journal that was cut at any byte, as by kill -9 in the middle of a write,
// keeps every whole run before the cut and takes new ones after it.
func TestJournalSurvivesACutAnywhere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.jsonl")
	j, err := OpenJournal(path, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if err := j.Append(Run{Phase: "alone", Number: n}); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut++ {
		path := filepath.Join(dir, "cut.jsonl")
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(path, testSetup())
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		want := max(0, bytes.Count(whole[:cut], []byte("\n"))-1)
		if len(j.Runs()) != want {
			t.Fatalf("cut at %d: %d runs, want %d", cut, len(j.Runs()), want)
		}
		if err := j.Append(Run{Phase: "floor", Number: 1}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		j, err = OpenJournal(path, testSetup())
		if err != nil || len(j.Runs()) != want+1 || j.Runs()[want].Phase != "floor" {
			t.Fatalf("cut at %d, then a run: %+v, %v", cut, j, err)
		}
		j.Close()
	}
}

func TestJournalRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.jsonl")
	j, err := OpenJournal(path, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(Run{Phase: "alone", Number: 1}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	before, _ := os.ReadFile(path)

	other := testSetup()
	other.Disk.BytesPerSecond = 24_000_000
	_, err = OpenJournal(path, other)
	if err == nil || !strings.Contains(err.Error(), "disk.bytes_per_second: 12000000, now 24000000") {
		t.Errorf("another setup: %v; want an error that names the field and both values", err)
	}
	for name, content := range map[string]string{
		"not a journal":               "hello",
		"not a journal, whole line":   "hello\n",
		"somebody else's JSON":        "{\"a\":1}\n",
		"an unreadable line between":  string(before) + "garbage\n{}\n",
		"a line that is no run":       string(before) + "{}\n",
		"a journal of a version ago":  strings.Replace(string(before), "journal\":1", "journal\":9", 1),
		"another journal's first bit": "{\"penstock_isolation_ledger",
	} {
		p := filepath.Join(dir, "bad.jsonl")
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if j, err := OpenJournal(p, testSetup()); err == nil {
			j.Close()
			t.Errorf("%s was accepted", name)
		}
		if now, _ := os.ReadFile(p); string(now) != content {
			t.Errorf("%s: the refused file was changed", name)
		}
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, before) {
		t.Error("the refused journal was changed")
	}
}

func TestSetupHash(t *testing.T) {
	a, b := testSetup(), testSetup()
	if a.Hash() != b.Hash() || len(a.diff(b)) != 0 {
		t.Error("equal setups differ")
	}
	b.Penstock.ReferenceRead.PerMiBMillis++
	if a.Hash() == b.Hash() || len(a.diff(b)) != 1 {
		t.Errorf("a nested difference is not seen: %v", a.diff(b))
	}
}
