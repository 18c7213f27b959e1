package monitor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/poll"
)

func TestRowNames(t *testing.T) {
	all := RowNames()
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) || len(all) != len(Rows()) {
		t.Errorf("two rows have one name: %q", all)
	}
	for _, name := range append(all, calibration.Name) {
		if got := rowNamed(name); got.Name != name {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Each kind of control uses one mechanism, and natively there is none.
func TestMechanisms(t *testing.T) {
	want := map[string]string{"fio-reader-cgroup": "cgroup", "fio-writer-cgroup": "cgroup", "hdfs-reader-tc": "shaper", "hdfs-writer-tc": "shaper",
		"fio-reader-penstock": "gate", "fio-writer-penstock": "gate"}
	for _, r := range Rows() {
		if got := r.mechanism(); got != want[r.Name] {
			t.Errorf("%s: %q, want %q", r.Name, got, want[r.Name])
		}
	}
}

// An interrupted measurement continues with the missing turns, and each second run is in reverse.
func TestMissing(t *testing.T) {
	q := Request{TableRequest: experiment.TableRequest{Rows: []string{rowAlone, "fio-writer"}, Runs: 2}}
	keys := func(done ...Turn) (all []string) {
		for _, k := range missing(q, done) {
			all = append(all, k.String())
		}
		return all
	}
	all := []string{"full-speed, run 1", "full-speed, run 2", "alone, run 1", "fio-writer, run 1", "fio-writer, run 2", "alone, run 2"}
	if got := keys(); !slices.Equal(got, all) {
		t.Errorf("%q, want %q", got, all)
	}
	if got := keys(Turn{Row: calibration.Name, Run: 1}, Turn{Row: calibration.Name, Run: 2}, Turn{Row: rowAlone, Run: 1}); !slices.Equal(got, all[3:]) {
		t.Errorf("%q, want %q", got, all[3:])
	}
}

func TestValidate(t *testing.T) {
	q := Request{Setup: DefaultSetup(), TableRequest: experiment.TableRequest{Runs: 1}}
	q.Setup.Machine.CPUs = 2
	if err := q.Validate(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []func(*Request){
		func(q *Request) { q.Runs = 0 }, func(q *Request) { q.Runs = experiment.MaxRuns + 1 },
		func(q *Request) { q.Setup.WordCount.InputBytes = MinInput - 1 }, func(q *Request) { q.Setup.TeraSort.InputBytes = MaxInput + 1 },
		func(q *Request) { q.Setup.Machine.CPUs = 1 }, func(q *Request) { q.Setup.Scheduler = "cfq" },
		func(q *Request) { q.Setup.FioJobs = 0 }, func(q *Request) { q.Setup.FioJobs = MaxFioJobs + 1 },
	} {
		bad := q
		wrong(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// A writer overwrites the whole file and does not change its size. A reader changes nothing. Both end with
// their context.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	before := bytes.Repeat([]byte{7}, 6*loadStep)
	if err := os.WriteFile(file, before, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(write bool, until func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Load(ctx, file, write, 3) }()
		within, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		err := poll.Until(within, time.Millisecond, func() (bool, error) { return until(), nil })
		cancel()
		if err := errors.Join(err, <-ended); err != nil {
			t.Error(err)
		}
	}
	content := func() []byte {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	run(false, func() bool { return true })
	if !bytes.Equal(content(), before) {
		t.Error("a reader has changed the file")
	}
	run(true, func() bool { return bytes.Equal(content(), make([]byte, len(before))) })
	for name, bad := range map[string]struct {
		file string
		jobs int
	}{"no file": {file + "-", 1}, "too many jobs": {file, 7}, "no jobs": {file, 0}} {
		if err := Load(t.Context(), bad.file, false, bad.jobs); err == nil {
			t.Error(name + ": no error")
		}
	}
}
