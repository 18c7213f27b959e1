package isolation

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testSetup() Setup {
	s, err := DefaultSetup("teragen", HDD)
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

// header is the first line of a journal of before there were kinds of disks,
// weights to choose and peers.
const header = `{"penstock_isolation_journal":1,"hash":"d671b58c175e5189907c2489","setup":{"against":"terasort",` +
	`"protected":{"input_bytes":301989888,"files":2,"word_bytes":6,"vocabulary":2000,"reduces":1,"sort_mb":16,"cpu":0},` +
	`"aggressor":{"bytes":1073741824,"slots":4,"files":8,"reduces":2,"cpu":1},"disk":{"bytes_per_second":12000000,` +
	`"seek_min_us":3000,"seek_max_us":14000,"size_bytes":6442450944,"datanodes":2,"modelled":true},"kernel":{` +
	`"scheduler":"mq-deadline","dirty_bytes":67108864,"dirty_background_bytes":33554432,"dirty_expire_centisecs":3000},` +
	`"penstock":{"agent_in_all_phases":true,"quantum_bytes":2097152,"ahead":2,"backlog_bytes":12582912,` +
	`"protected_weight":32,"aggressor_weight":1,"clients_weight":32,"depth_min":1,"depth_max":12,"depth_start":2,` +
	`"depth_gain":0.5,"reference_read":{"fixed_ms":20,"per_mib_ms":180},"reference_write":{"fixed_ms":20,"per_mib_ms":180}},` +
	`"hadoop":{"version":"3.4.2","replication":1,"block_bytes":8388608},"machine":{"kernel_release":"6.18.44-fc-v595",` +
	`"cpus":2,"memory_bytes":25276514304}}}`

// The defaults are still those of older journals, and their runs, which have
// always been checked, go on to count.
func TestJournalOfBeforeResumes(t *testing.T) {
	s, err := DefaultSetup("terasort", HDD)
	if err != nil {
		t.Fatal(err)
	}
	s.Machine = MachineSetup{KernelRelease: "6.18.44-fc-v595", CPUs: 2, MemoryBytes: 25276514304}
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	if err := os.WriteFile(path, []byte(header+"\n"+`{"run":{"phase":"floor","run":1,"build":"92be6da"}}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(path, s)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if floor := (Phase{Name: "floor"}); !j.Has(Turn{floor, 1}) || !j.Checked(floor) || j.Checked(Phase{Name: "sfqd2"}) {
		t.Errorf("runs %+v", j.Runs())
	}
}
