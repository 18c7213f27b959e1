package journal_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/lab/experiment/journal"
)

type setup struct {
	Bytes int64 `json:"bytes"`
	Disk  struct {
		Size int64 `json:"size"`
	} `json:"disk"`
}

type entry struct {
	Round int     `json:"round"`
	Value float64 `json:"value"`
}

func open(path string, s setup) (*journal.Journal[setup, entry], error) {
	return journal.Open[setup, entry](path, "test", s)
}

func must(t *testing.T, path string, s setup) *journal.Journal[setup, entry] {
	t.Helper()
	j, err := open(path, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func fill(t *testing.T, path string, rounds int) {
	t.Helper()
	j := must(t, path, setup{Bytes: 1})
	for i := range rounds {
		if err := j.Append(entry{Round: i + 1, Value: 0.5}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestGoesOnWhereItEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	fill(t, path, 2)
	j := must(t, path, setup{Bytes: 1})
	if err := j.Append(entry{Round: 3, Value: 0.25}); err != nil {
		t.Fatal(err)
	}
	want := []entry{{1, 0.5}, {2, 0.5}, {3, 0.25}}
	if !slices.Equal(j.Entries(), want) {
		t.Errorf("%+v", j.Entries())
	}
	j.Close()
	if got := must(t, path, setup{Bytes: 1}).Entries(); !slices.Equal(got, want) {
		t.Errorf("read again: %+v", got)
	}
}

func TestInMemoryOnly(t *testing.T) {
	j := must(t, "", setup{})
	if err := j.Append(entry{Round: 1}); err != nil || len(j.Entries()) != 1 {
		t.Errorf("%v, %+v", err, j.Entries())
	}
}

// A journal that is cut off at any byte has all entries before the cut with their newline, and can
// be continued.
func TestAnyCutIsRepaired(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	fill(t, path, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		cut := filepath.Join(dir, "cut")
		if err := os.WriteFile(cut, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		j := must(t, cut, setup{Bytes: 1})
		want := max(0, strings.Count(string(whole[:n]), "\n")-1)
		if len(j.Entries()) != want {
			t.Fatalf("cut at %d: %d entries, want %d", n, len(j.Entries()), want)
		}
		if err := j.Append(entry{Round: 9}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		if got := must(t, cut, setup{Bytes: 1}); len(got.Entries()) != want+1 {
			t.Fatalf("cut at %d, gone on: %d entries", n, len(got.Entries()))
		} else {
			got.Close()
		}
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	fill(t, good, 1)
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	header := string(content[:strings.IndexByte(string(content), '\n')+1])
	for name, c := range map[string]struct{ text, says string }{
		"a text without a line":  {"something that somebody wrote", "not a journal"},
		"a text":                 {"one\ntwo\n", "not a line of a journal"},
		"JSON of another kind":   {strings.Replace(header, `"test"`, `"other"`, 1), "not a journal"},
		"JSON":                   {"{}\n", "not a journal"},
		"a later version":        {strings.Replace(header, `:1,`, `:2,`, 1), "version 2"},
		"a line that is no part": {header + "{}\n", "no finished part"},
		"garbage in the middle":  {header + "garbage\n" + `{"entry":{"round":1}}` + "\n", "line 2"},
	} {
		path := filepath.Join(dir, "bad")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := open(path, setup{Bytes: 1}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if now, _ := os.ReadFile(path); string(now) != c.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	other := setup{Bytes: 1}
	other.Disk.Size = 7
	if _, err := open(good, other); err == nil || !strings.Contains(err.Error(), "disk.size: 0, now 7") {
		t.Errorf("another setup: %v", err)
	}
	must(t, good, setup{Bytes: 1})
	if _, err := open(good, setup{Bytes: 1}); err == nil || !strings.Contains(err.Error(), "another penstock") {
		t.Errorf("open twice: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"penstock_journal":1,"kind":"test","setup":{"bytes":1,"disk":{"size":0}}}` + "\n" + `{"entry":{"round":1,"value":2}}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"penstock_jou`))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := open(path, setup{Bytes: 1})
		if err != nil {
			return
		}
		n := len(j.Entries())
		if err := j.Append(entry{Round: 1}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		if again := must(t, path, setup{Bytes: 1}); len(again.Entries()) != n+1 {
			t.Errorf("%d entries after adding one to %d", len(again.Entries()), n)
		}
	})
}
