package soak

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAJournalGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soak.jsonl")
	s := DefaultSetup(1, 3)
	j, err := OpenJournal(path, s)
	if err != nil {
		t.Fatal(err)
	}
	steps := NewPlan(1, 3).Steps
	for _, l := range []line{{Outcome: &Outcome{Step: steps[0], StallMS: 1.5}}, {Round: &Round{Load: "terasort", Number: 1}},
		{Finding: "something"}, {Ending: &Ending{Last: 1}}} {
		if err := j.add(l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenJournal(path, s); err == nil {
		t.Error("two campaigns write one journal")
	}
	if err := j.add(line{Outcome: &Outcome{Step: steps[0]}}); err == nil {
		t.Error("a fault is in the journal twice")
	}
	j.Close()
	if _, err := OpenJournal(path, DefaultSetup(2, 3)); err == nil || !strings.Contains(err.Error(), "seed: 1, now 2") {
		t.Errorf("another seed's journal: %v", err)
	}
	// A power failure in the middle of a line.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"entry":{"outcome":{"number":2,"kin`)
	f.Close()
	if j, err = OpenJournal(path, s); err != nil {
		t.Fatal(err)
	}
	if len(j.outcomes) != 1 || j.outcomes[0].StallMS != 1.5 || len(j.rounds) != 1 || len(j.findings) != 1 || len(j.endings) != 1 {
		t.Errorf("read back: %+v", j)
	}
	if err := j.add(line{Outcome: &Outcome{Step: steps[1]}}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if j, err = OpenJournal(path, s); err != nil || len(j.outcomes) != 2 {
		t.Errorf("%+v, %v", j, err)
	}
	j.Close()
}

func TestAFileThatIsNoJournalIsLeftAlone(t *testing.T) {
	for _, content := range []string{"no newline", "text\n", "{}\n", `{"penstock_journal":9,"setup":{}}` + "\n"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenJournal(path, DefaultSetup(1, 1)); err == nil {
			t.Errorf("%q is a journal", content)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != content {
			t.Errorf("%q has become %q (%v)", content, now, err)
		}
	}
}

// People copy and edit journals: any content is either refused or read, and a journal that was read
// can be summarised.
func FuzzJournal(f *testing.F) {
	s := DefaultSetup(1, 3)
	f.Add([]byte(`{"entry":{"outcome":{"number":1,"kind":"kill-daemon","usage":[{"process":"daemon","pid":1}]}}}` + "\n"))
	f.Add([]byte(`{"entry":{"round":{"load":"terasort"}}}` + "\n" + `{"entry":{"ending":{"clean":true}}}` + "\n" + `{"entry":{"finding":"x"}}` + "\n"))
	f.Add([]byte(`{"entry":{}}` + "\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "f")
		j, err := OpenJournal(path, s)
		if err != nil {
			t.Fatal(err)
		}
		j.Close()
		head, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(head, content...), 0o600); err != nil {
			t.Fatal(err)
		}
		if j, err = OpenJournal(path, s); err != nil {
			return
		}
		defer j.Close()
		r := Summarise(s, "", j)
		if r.Good && r.Kills < s.Kills {
			t.Errorf("good with %d kills", r.Kills)
		}
		if err := r.WriteTable(new(strings.Builder)); err != nil {
			t.Error(err)
		}
	})
}
