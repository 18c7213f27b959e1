package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, file string) (*Log, *time.Time) {
	t.Helper()
	l, err := Open(file, "broker-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	l.now = func() time.Time { return now }
	return l, &now
}

func records(t *testing.T, file string) (all []Record) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// TestAppend: records are added after those of an earlier run, and rotation needs no signal.
func TestAppend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	for i := range 2 {
		l, _ := open(t, file)
		if err := l.Write(Record{Who: "alice\n{", Call: "Apply", What: strings.Repeat("x", maxText+1), Outcome: Done, Version: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	all := records(t, file)
	if len(all) != 2 || all[1].Version != 1 || all[1].Who != "alice\n{" || all[1].Broker != "broker-1" || len(all[1].What) != maxText || all[0].Time.IsZero() {
		t.Errorf("%+v", all)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("rights %v, %v", info.Mode(), err)
	}
	l, _ := open(t, file)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(Record{Who: "bob"}); err != nil {
		t.Fatal(err)
	}
	if len(records(t, file)) != 1 || len(records(t, file+".1")) != 2 {
		t.Error("the file was not made again after it was renamed")
	}
}

// TestAfterAnIncompleteLine: the records after a line that was cut have lines of their own.
func TestAfterAnIncompleteLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l, _ := open(t, file)
	for _, text := range []string{"", "{}\n", `{"time":"20`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.Write(Record{Who: "alice", Call: "Apply", Outcome: Begun}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		good := 0
		for line := range bytes.Lines(got) {
			var r Record
			if json.Unmarshal(line, &r) == nil && r.Who == "alice" {
				good++
			}
		}
		if lines := bytes.Count(got, []byte("\n")); good != 2 || lines != 2+min(len(text), 1) {
			t.Errorf("after %q: %s", text, got)
		}
	}
}

func TestNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{dir, link, filepath.Join(dir, "none", "audit")} {
		if _, err := Open(file, "b", nil); err == nil || !strings.Contains(err.Error(), "audit log") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestCounted: equal calls are one record a minute, with their number.
func TestCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	l, now := open(t, file)
	for range 100 {
		l.Note(Record{Who: "alice", From: "10.0.0.1", Call: "ListNodes", Outcome: Done})
	}
	l.Note(Record{Who: "n1", From: "10.0.0.1", Call: "Apply", Outcome: Refused, Why: "a node"})
	if all := records(t, file); len(all) != 2 || all[0].Count != 0 || all[1].Why != "a node" {
		t.Errorf("%+v", all)
	}
	*now = now.Add(interval)
	l.Sweep()
	if all := records(t, file); len(all) != 3 || all[2].Count != 99 || all[2].Who != "alice" {
		t.Errorf("after a minute: %+v", all)
	}
	*now = now.Add(interval)
	l.Sweep()
	if all := records(t, file); len(all) != 3 || len(l.kinds) != 0 {
		t.Errorf("after two minutes: %+v, %d kinds", all, len(l.kinds))
	}
}

func TestManyKinds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	l, _ := open(t, file)
	l.most = 16
	for i := range l.most + 50 {
		l.Note(Record{Who: fmt.Sprint(i), Call: "Apply", Outcome: Refused})
	}
	all := records(t, file)
	if last := all[len(all)-1]; len(all) != l.most+1 || last.Who != "others" || len(l.kinds) != l.most+1 {
		t.Errorf("%d records, the last %+v; %d kinds", len(all), last, len(l.kinds))
	}
}

// TestWithoutFile: changes go to the program's log, and reads only at debug level.
func TestWithoutFile(t *testing.T) {
	var out bytes.Buffer
	l, err := Open("", "b", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l.Note(Record{Who: "alice", Call: "ListNodes", Outcome: Done})
	if out.Len() > 0 {
		t.Errorf("a read: %s", out.String())
	}
	if err := l.Write(Record{Who: "alice", Call: "Apply", Outcome: Done}); err != nil || !strings.Contains(out.String(), "call=Apply") {
		t.Errorf("a change: %v, %s", err, out.String())
	}
}

// TestADiskThatHangs: a record fails in time, further ones fail at once, and nobody waits who only counts.
func TestADiskThatHangs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	l, now := open(t, file)
	hold, add := make(chan struct{}), l.add
	l.wait, l.add = 50*time.Millisecond, func(line []byte) error { <-hold; return add(line) }
	r := Record{Who: "alice", Call: "KillSwitch", Outcome: Begun}
	for range 3 {
		if err := l.Write(r); err != errHangs {
			t.Errorf("%v", err)
		}
	}
	l.wait = time.Hour
	l.began.Store(1) // long ago
	for range 100 {
		if err := l.Write(r); err != errHangs {
			t.Fatalf("%v", err)
		}
		l.Note(Record{Who: "bob", Call: "Policy", Outcome: Done})
		*now = now.Add(interval)
		l.Sweep()
	}
	close(hold)
	for deadline := time.Now().Add(time.Minute); l.Write(r) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no record after the hang")
		}
	}
	if all := records(t, file); len(all) != 2 { // the one that was late, and the last one
		t.Errorf("%+v", all)
	}
}
