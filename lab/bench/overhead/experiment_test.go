package overhead

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeWorld is an environment with known figures.
type fakeWorld struct {
	t       *testing.T
	agent   int
	begun   int
	stopped int
	daemon  Variant // whose daemon runs
	did     []string
	failAt  string // an operation's name
	cancel  context.CancelFunc
	cancels int // operations until cancel is called
}

func (w *fakeWorld) Begin(_ context.Context, agent int) error {
	w.agent, w.begun = agent, w.begun+1
	return nil
}

func (w *fakeWorld) Arrange(_ context.Context, v Variant) error {
	if w.daemon != "" {
		w.t.Errorf("%s while the daemon of %s runs", v, w.daemon)
	}
	if v.governed() {
		w.daemon = v
	}
	return nil
}

func (w *fakeWorld) Do(ctx context.Context, v Variant, place int, op Operation) (Sample, error) {
	if (place == w.agent) != v.agent() {
		w.t.Errorf("%s on place %d, the agent is on %d", v, place, w.agent)
	}
	if w.cancels--; w.cancels == 0 {
		w.cancel()
	}
	if ctx.Err() != nil {
		return Sample{}, ctx.Err()
	}
	w.did = append(w.did, fmt.Sprint(v, " ", op))
	if w.failAt == string(op) {
		return Sample{}, errors.New("it broke")
	}
	cpu := map[Variant]float64{Native: 1, Absent: 1.01, Observe: 1.02, Enforce: 1.03}[v]
	s := Sample{Bytes: 1e9, Seconds: 2 * cpu, DataNodeCPU: cpu + float64(w.begun)*0.001*cpu}
	if v.governed() {
		s.DaemonCPU = 0.5
	}
	return s, nil
}

func (w *fakeWorld) Release(context.Context) (int64, error) {
	peak := int64(0)
	if w.daemon != "" {
		peak = 20 * mib
	}
	w.daemon = ""
	return peak, nil
}

func (w *fakeWorld) Stop() error {
	w.stopped++
	return nil
}

func run(t *testing.T, ctx context.Context, w *fakeWorld, path string, rounds int) ([]Round, error) {
	t.Helper()
	return performFake(t, ctx, DefaultSetup(), path, rounds, Experiment{Variants: Variants, Operations: DefaultSetup().operations()}, w)
}

// performFake performs rounds without a machine.
func performFake[S any](t *testing.T, ctx context.Context, setup S, path string, rounds int, x Experiment, w Environment) ([]Round, error) {
	t.Helper()
	t.Chdir(t.TempDir()) // run folders are made below it
	q := Request[S]{Setup: setup, Rounds: rounds, Build: "test", Resume: path, Options: Options{Say: t.Logf}}
	return q.perform(ctx, "overhead", x, func(context.Context, Options) (Environment, error) { return w, nil })
}

func TestRoundsMeasureEveryVariantOnItsDataNode(t *testing.T) {
	w := &fakeWorld{t: t}
	j, err := run(t, t.Context(), w, "", 8)
	if err != nil {
		t.Fatal(err)
	}
	if len(j) != 8 || w.begun != 8 {
		t.Fatalf("%d rounds, %d begun", len(j), w.begun)
	}
	first := map[Variant]int{}
	for i, r := range j {
		if r.Agent != i%2 || r.Number != i+1 {
			t.Errorf("round %d: number %d, agent on %d", i+1, r.Number, r.Agent)
		}
		first[r.Order[0]]++
		for _, v := range Variants {
			if got := len(r.Variants[v].Samples); got != len(Streams)+len(Jobs) {
				t.Errorf("round %d: %d samples of %s", i+1, got, v)
			}
			if (r.Variants[v].DaemonPeak > 0) != v.governed() {
				t.Errorf("round %d: the daemon's peak of %s is %d", i+1, v, r.Variants[v].DaemonPeak)
			}
		}
	}
	for _, v := range Variants {
		if first[v] != 2 {
			t.Errorf("%s was first %d times of 8: %v", v, first[v], first)
		}
	}
}

func TestOrderHoldsEachVariantOnce(t *testing.T) {
	for round := range 16 {
		o := order(Variants, round)
		for _, v := range Variants {
			if !slices.Contains(o, v) {
				t.Errorf("round %d lacks %s: %v", round, v, o)
			}
		}
	}
	if slices.Equal(order(Variants, 1), order(Variants, 5)) {
		t.Error("every second turn goes backwards")
	}
}

func TestFailedRoundIsNotKeptAndItsDaemonEnds(t *testing.T) {
	w := &fakeWorld{t: t, failAt: "cold read"}
	j, err := run(t, t.Context(), w, "", 2)
	if err == nil || !strings.Contains(err.Error(), "cold read: it broke") || len(j) != 0 {
		t.Errorf("%v, %d rounds", err, len(j))
	}
	if w.daemon != "" || w.stopped != 1 {
		t.Errorf("the daemon of %q runs on, the machine was stopped %d times", w.daemon, w.stopped)
	}
}

func TestInterruptedMeasurementGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	ctx, cancel := context.WithCancel(t.Context())
	w := &fakeWorld{t: t, cancel: cancel, cancels: 30}
	j, err := run(t, ctx, w, path, 3)
	if !errors.Is(err, context.Canceled) || len(j) != 1 || w.daemon != "" {
		t.Fatalf("%v, %d rounds, daemon %q", err, len(j), w.daemon)
	}
	w = &fakeWorld{t: t}
	j, err = run(t, t.Context(), w, path, 3)
	if err != nil || len(j) != 3 || w.begun != 2 {
		t.Fatalf("%v, %d rounds, %d begun", err, len(j), w.begun)
	}
	for i, r := range j {
		if r.Number != i+1 {
			t.Errorf("round %d has number %d", i+1, r.Number)
		}
	}
}
