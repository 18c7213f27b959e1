package overhead

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/node/status"
)

// fakeYARN is an environment with known figures: governed jobs take 1 % more time and 4 % more CPU
// time, and each job is slower than the one before.
type fakeYARN struct {
	did    []Variant
	begun  int
	warm   []Variant
	failAt int // a job's number, from 1
}

func (w *fakeYARN) Begin(context.Context, int) error { w.begun++; return nil }

func (w *fakeYARN) Arrange(context.Context, Variant) error { return nil }

func (w *fakeYARN) Do(ctx context.Context, v Variant, _ int, op Operation) (Sample, error) {
	if op == YARNCheck {
		if w.warm = append(w.warm, v); w.begun > 0 {
			return Sample{}, errors.New("checked too late")
		}
		return Sample{}, nil
	}
	w.did = append(w.did, v)
	if len(w.did) == w.failAt {
		return Sample{}, errors.New("it broke")
	}
	slow := 1 + 0.1*float64((len(w.did)-1)/2)
	if v == Native {
		return Sample{Seconds: 50 * slow, DataNodeCPU: 5 * slow, NodeManagerCPU: 5 * slow, TasksCPU: 40 * slow, MachineCPU: 60 * slow}, ctx.Err()
	}
	return Sample{Seconds: 50.5 * slow, DataNodeCPU: 5 * slow, NodeManagerCPU: 5 * slow, TasksCPU: 41 * slow, DaemonCPU: slow, MachineCPU: 60 * slow}, ctx.Err()
}

func (w *fakeYARN) Release(context.Context) (int64, error) { return int64(20+len(w.did)) * mib, nil }

func (w *fakeYARN) Stop() error { return nil }

func runYARN(t *testing.T, w *fakeYARN, path string, rounds int) ([]Round, error) {
	t.Helper()
	return performFake(t, t.Context(), DefaultYARNSetup(1<<30), path, rounds, yarnExperiment, w)
}

func TestYARNRoundsAlternate(t *testing.T) {
	w := &fakeYARN{}
	j, err := runYARN(t, w, "", 4)
	if err != nil || len(j) != 4 || !slices.Equal(w.warm, YARNVariants) {
		t.Fatalf("%v, %d rounds, warmed %v", err, len(j), w.warm)
	}
	n, e := Native, Enforce
	if want := []Variant{n, e, n, e, e, n, e, n, n, e}; !slices.Equal(w.did, want) { // the first two count for nothing
		t.Errorf("jobs %v, want %v", w.did, want)
	}
	for i, r := range j {
		if r.Number != i+1 || len(r.Variants) != 2 {
			t.Errorf("round %d: %+v", i+1, r)
		}
	}
}

func TestFailedYARNRoundIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := runYARN(t, &fakeYARN{failAt: 6}, path, 3)
	if err == nil || !strings.Contains(err.Error(), "round 2: native: terasort on YARN: it broke") || len(j) != 1 {
		t.Fatalf("%v, %d rounds", err, len(j))
	}
	w := &fakeYARN{}
	if j, err = runYARN(t, w, path, 3); err != nil || len(j) != 3 || len(w.did) != 6 {
		t.Errorf("%v, %d rounds, %d jobs", err, len(j), len(w.did))
	}
}

func TestYARNFigures(t *testing.T) {
	j, err := runYARN(t, &fakeYARN{}, "", 6)
	if err != nil {
		t.Fatal(err)
	}
	res := SummariseYARN(DefaultYARNSetup(1<<30), j)
	for _, f := range res.Figures {
		switch f.What {
		case "run time":
			near(t, f.What, f.Ratio.Mean, 1.01)
			near(t, "native", f.Native.Median, 50*1.35) // the round before them was not counted
		case "CPU of DataNode, NodeManager, containers and daemon":
			near(t, f.What, f.Ratio.High, 1.04)
		case "CPU, daemon":
			if f.Ratio != nil {
				t.Errorf("what native lacks has a ratio: %+v", f.Ratio)
			}
		}
	}
	if len(res.Verdicts) != 3 || slices.ContainsFunc(res.Verdicts, func(v Target) bool { return !v.Kept }) {
		t.Errorf("%+v", res.Verdicts)
	}
	var table, doc strings.Builder
	if err := errors.Join(res.WriteTable(&table), res.WriteJSON(&doc)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"run time", "1.040 (1.040-1.040)", "at most +5 %", "34.0 MiB", "6 rounds"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	var back YARNResult
	if err := json.Unmarshal([]byte(doc.String()), &back); err != nil || len(back.Figures) != len(res.Figures) {
		t.Errorf("%v: %s", err, &doc)
	}
	one := SummariseYARN(DefaultYARNSetup(64*mib), j[:1])
	if notes := strings.Join(one.Notes(), "\n"); len(one.Verdicts) != 1 || !strings.Contains(notes, "Fewer than 5 rounds") || !strings.Contains(notes, "Less than 1 GB") {
		t.Errorf("one round: %+v; %s", one.Verdicts, notes)
	}
}

func TestYARNSetupsBounds(t *testing.T) {
	for bytes, good := range map[int64]bool{64*mib - 1: false, 64 * mib: true, 1 << 30: true, 4 << 30: false, 64<<30 + 1: false} {
		s := DefaultYARNSetup(bytes)
		s.MemoryBytes = 16 << 30
		if err := s.Validate(); (err == nil) != good {
			t.Errorf("%d bytes on 16 GiB: %v", bytes, err)
		}
	}
	s := DefaultYARNSetup(1 << 30)
	if perFile := s.rows() * 100 / int64(s.maps()); s.maps() != 8 || perFile > s.BlockBytes {
		t.Errorf("%d maps of %d bytes", s.maps(), perFile)
	}
}

// A job is governed if the daemon saw, in each phase, at least as many bytes as the job sorts.
func TestStreamedAddsUpAFlowsDevices(t *testing.T) {
	flow := func(name string, kinds ...status.Kind) status.Flow { return status.Flow{Name: name, Kinds: kinds} }
	kind := func(name string, read, written int64) status.Kind {
		return status.Kind{Kind: name, Streamed: status.Pair{Read: read, Written: written}}
	}
	doc := &status.Document{Devices: []status.Device{
		{Flows: []status.Flow{flow("a", kind("persistent", 1, 2), kind("intermediate", 4, 8)), flow("b", kind("persistent", 100, 100))}},
		{Flows: []status.Flow{flow("a", kind("persistent", 16, 32))}},
	}}
	for kind, want := range map[string]int64{"persistent": 51, "intermediate": 12, "network": 0} {
		if got := streamed(doc, "a", kind); got != want {
			t.Errorf("%s: %d, want %d", kind, got, want)
		}
	}
}
