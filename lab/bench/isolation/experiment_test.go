package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/lab/contest"
	"penstock/lab/daemon"
	"penstock/lab/experiment/counters"
	"penstock/lab/experiment/progress"
)

// fake is an Environment without disks, Hadoop or daemon. It records the calls, and its protected
// job ends when the counters have been read a few times. It only shows the order of calls and the
// clean-up.
type fake struct {
	mu    sync.Mutex
	calls []string
	fail  map[string]error // by call
	reads int
	jobs  []*fakeJob
	// onProtected is called when the protected job has been started.
	onProtected func()
	// aggressorFirst ends the aggressor before the protected job.
	aggressorFirst bool
	// outlasts lets the protected job end after the aggressor.
	outlasts bool
	// aggressorEnds lets the aggressor end by itself, after the protected job if there is one.
	aggressorEnds bool
	// aggressorWeight is added to the aggressor's weight in the daemon's metrics.
	aggressorWeight float64
}

func (f *fake) call(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, c)
	return f.fail[c]
}

func (f *fake) Limit(_ context.Context, on bool) error   { return f.call("limit %v", on) }
func (f *fake) Arrange(_ context.Context, p Phase) error { return f.call("arrange %s", p.Name) }
func (f *fake) DropCaches(context.Context) error         { return f.call("drop caches") }
func (f *fake) Release(context.Context) error            { return f.call("release") }
func (f *fake) SetWeights(_ context.Context, p string, a []string) error {
	return f.call("set weights %s %s", p, strings.Join(a, " "))
}
func (f *fake) Metrics(context.Context) (daemon.Metrics, error) {
	return daemon.ParseMetrics(strings.NewReader(fmt.Sprintf(`# TYPE penstock_flow_bytes_total counter
penstock_flow_bytes_total{device="a",flow="app-protected",direction="read"} 1
penstock_flow_bytes_total{device="a",flow="app-aggressor",direction="write"} 1
# TYPE penstock_flow_weight gauge
penstock_flow_weight{device="a",flow="app-protected"} 32
penstock_flow_weight{device="a",flow="app-aggressor"} %v
`, f.aggressorWeight+1)))
}

func (f *fake) Judge(context.Context, time.Time, time.Time, *contest.Job, *contest.Job) (*contest.Verdict, error) {
	return nil, f.call("judge")
}

func (f *fake) job(name string) (*fakeJob, error) {
	if err := f.call("start %s", name); err != nil {
		return nil, err
	}
	j := &fakeJob{f: f, name: name, done: make(chan struct{}), started: time.Now()}
	f.mu.Lock()
	f.jobs, f.reads = append(f.jobs, j), 0
	f.mu.Unlock()
	return j, nil
}

func (f *fake) StartAggressor(context.Context, Phase) (*contest.Job, error) {
	j, err := f.job("aggressor")
	if err != nil {
		return nil, err
	}
	if f.aggressorFirst {
		j.end()
	}
	return j.job(), nil
}

func (f *fake) StartProtected(context.Context, Phase) (*contest.Job, error) {
	j, err := f.job("protected")
	if f.onProtected != nil {
		f.onProtected()
	}
	if err != nil {
		return nil, err
	}
	return j.job(), nil
}

func (f *fake) Counters() (map[string]counters.Bytes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.reads == 4 && (!f.aggressorFirst || f.outlasts) && f.onProtected == nil {
		f.end("protected")
		if f.aggressorEnds && !slices.Contains(f.calls, "start protected") {
			f.end("aggressor")
		}
	}
	return map[string]counters.Bytes{"a": {Read: float64(f.reads) * 1000}}, nil
}

func (f *fake) end(name string) {
	for _, j := range f.jobs {
		if j.name == name {
			j.end()
		}
	}
}

type fakeJob struct {
	f                 *fake
	name              string
	once              sync.Once
	done              chan struct{}
	started, finished time.Time
}

func (j *fakeJob) end() {
	j.once.Do(func() { j.finished = time.Now(); close(j.done) })
}

func (j *fakeJob) job() *contest.Job {
	call := func(what string) func(context.Context) error {
		return func(context.Context) error { return j.f.call("%s %s", what, j.name) }
	}
	return &contest.Job{Applications: []string{"app-" + j.name}, Done: j.done, Check: call("check"), Discard: call("discard"),
		Times: func() (time.Time, time.Time, error) {
			err := j.f.call("times %s", j.name)
			if j.f.aggressorEnds {
				j.f.end("aggressor")
			}
			return j.started, j.finished, err
		},
		Kill: func(ctx context.Context) error { j.end(); return call("kill")(ctx) }}
}

// finisher lets the aggressor end when the disks' limit is switched off, as a real aggressor does.
type finisher struct{ *fake }

func (f finisher) Limit(ctx context.Context, on bool) error {
	if !on {
		f.mu.Lock()
		for _, j := range f.jobs {
			j.end()
		}
		f.mu.Unlock()
	}
	return f.fake.Limit(ctx, on)
}

func newExperiment(t *testing.T, f *fake, phases ...string) *Experiment {
	t.Helper()
	list, err := ParsePhases(phases, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	return &Experiment{Request: Request{Setup: testSetup(), Phases: list, Runs: 1, Progress: &progress.Log{Out: &bytes.Buffer{}}, Build: "test"},
		Env: finisher{f}, SampleEvery: time.Millisecond}
}

// run does the turns that the journal lacks, in the test's own folder.
func run(t *testing.T, ctx context.Context, x *Experiment) ([]Run, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	return x.turns(func(context.Context, string) (func() error, error) {
		return func() error { return nil }, nil
	}).Perform(ctx)
}

func TestOrderOfATurn(t *testing.T) {
	f := &fake{}
	x := newExperiment(t, f, "sfqd2")
	runs, err := run(t, context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"limit false", "arrange sfqd2", "drop caches", "limit true",
		"start aggressor", "start protected", "set weights app-protected app-aggressor",
		"times protected", "limit false", "times aggressor",
		"judge", "check protected", "check aggressor",
		"limit false", "discard protected", "discard aggressor", "release",
	}
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls\n  %s\nwant\n  %s", strings.Join(f.calls, "\n  "), strings.Join(want, "\n  "))
	}
	r := runs[0]
	if r.Phase != "sfqd2" || r.Number != 1 || r.Protected != "app-protected" || r.Aggressor != "app-aggressor" || r.RuntimeS <= 0 {
		t.Errorf("run %+v", r)
	}
}

// After a phase's first run the aggressor is killed, but not before the judge has read the extents
// of the aggressor's files. A run with unchecked outputs has Killed set.
func TestLaterRunsKillTheAggressor(t *testing.T) {
	for _, checkAll := range []bool{false, true} {
		f := &fake{}
		x := newExperiment(t, f, "native-none", "sfqd-4")
		x.Runs, x.CheckAll = 2, checkAll
		runs, err := run(t, context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, c := range f.calls {
			counts[c]++
		}
		killed, checked := 2, 2
		if checkAll {
			killed, checked = 0, 4
		}
		if counts["kill aggressor"] != killed || counts["check aggressor"] != checked || counts["check protected"] != 4 || counts["judge"] != 4 {
			t.Errorf("check all %v: calls %v", checkAll, counts)
		}
		for i, r := range runs {
			if want := i >= 2 && !checkAll; r.Killed != want {
				t.Errorf("check all %v: run %d has killed %v, want %v", checkAll, i, r.Killed, want)
			}
		}
		if i := slices.Index(f.calls, "kill aggressor"); i >= 0 {
			want := []string{"limit false", "judge", "kill aggressor", "check protected", "limit false", "discard protected", "discard aggressor", "release"}
			if got := f.calls[i-2:]; !slices.Equal(got[:len(want)], want) {
				t.Errorf("order %v, want %v", got[:len(want)], want)
			}
		}
	}
}

func TestAloneHasNoAggressorAndNoDaemon(t *testing.T) {
	f := &fake{}
	x := newExperiment(t, f, "alone")
	_, err := run(t, context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.calls {
		if strings.Contains(c, "aggressor") || strings.HasPrefix(c, "set weights") {
			t.Errorf("alone called %q", c)
		}
	}
}

func TestRunsAreInterleavedAndResumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	arranged := func(f *fake) (out []string) {
		for _, c := range f.calls {
			if name, ok := strings.CutPrefix(c, "arrange "); ok {
				out = append(out, name)
			}
		}
		return out
	}
	resume := func(f *fake, runs int) error {
		x := newExperiment(t, f, "alone", "floor", "sfqd2")
		x.Resume, x.Runs = path, runs
		_, err := run(t, context.Background(), x)
		return err
	}
	broken := errors.New("broken")
	f := &fake{fail: map[string]error{"arrange sfqd2": broken}}
	if err := resume(f, 2); !errors.Is(err, broken) {
		t.Fatalf("first try: %v", err)
	}
	if got := strings.Join(arranged(f), " "); got != "alone floor sfqd2" {
		t.Fatalf("first try arranged %s", got)
	}
	f = &fake{}
	if err := resume(f, 2); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(arranged(f), " "); got != "sfqd2 alone floor sfqd2" {
		t.Errorf("resumed with %s", got)
	}
}

// After each failure, and after Ctrl-C, the limit is off, jobs are killed, outputs and the daemon
// are gone, and the run is not in the journal.
func TestFailuresArePutBack(t *testing.T) {
	broken := errors.New("broken")
	for _, at := range []string{"arrange sfqd2", "drop caches", "limit true", "start aggressor", "start protected",
		"set weights app-protected app-aggressor", "times protected", "times aggressor", "check protected", "check aggressor"} {
		f := &fake{fail: map[string]error{at: broken}}
		x := newExperiment(t, f, "sfqd2")
		runs, err := run(t, context.Background(), x)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "sfqd2, run 1") {
			t.Errorf("%s: error %v", at, err)
		}
		if strings.HasPrefix(at, "check") && !errors.Is(err, ErrCheck) {
			t.Errorf("%s: %v is not ErrCheck", at, err)
		}
		putBack(t, at, f)
		if n := len(runs); n != 0 {
			t.Errorf("%s: %d runs in the journal", at, n)
		}
	}
}

func putBack(t *testing.T, at string, f *fake) {
	t.Helper()
	last := len(f.calls) - 1
	if f.calls[last] != "release" {
		t.Errorf("%s: ends with %q", at, f.calls[last])
	}
	if i := slices.Index(f.calls, "limit true"); i >= 0 && !slices.Contains(f.calls[i:], "limit false") {
		t.Errorf("%s: the limit stayed", at)
	}
	for _, j := range f.jobs {
		for _, what := range []string{"kill ", "discard "} {
			if !slices.Contains(f.calls, what+j.name) {
				t.Errorf("%s: no %s%s", at, what, j.name)
			}
		}
	}
}

func TestInterruptIsPutBack(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fake{onProtected: cancel}
	x := newExperiment(t, f, "sfqd2")
	if _, err := run(t, ctx, x); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	putBack(t, "interrupt", f)
}

func TestAggressorMustOutlast(t *testing.T) {
	f := &fake{aggressorFirst: true}
	x := newExperiment(t, f, "native-none")
	if _, err := run(t, context.Background(), x); !errors.Is(err, ErrOutlasted) {
		t.Fatalf("error %v", err)
	}
	putBack(t, "outlasted", f)

	// With Both the result has a warning.
	f = &fake{aggressorFirst: true, outlasts: true}
	x = newExperiment(t, f, "native-none")
	x.Setup.Both = true
	runs, err := run(t, context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 || len(runs[0].Warnings) != 1 || !strings.Contains(runs[0].Warnings[0], "the aggressor ended first") {
		t.Errorf("%+v", runs)
	}
}

func TestUngovernedRunIsRefused(t *testing.T) {
	f := &fake{aggressorWeight: 4}
	x := newExperiment(t, f, "sfqd2")
	if _, err := run(t, context.Background(), x); !errors.Is(err, ErrNotGoverned) || !strings.Contains(err.Error(), "weight 5, not 1") {
		t.Fatalf("error %v", err)
	}
	putBack(t, "ungoverned", f)
}
