package together

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/broker/policyfile"
	"penstock/lab/contest"
	"penstock/lab/hadoop"
)

// fake is an Environment without disks, Hadoop or daemon. Its jobs end one after the other, the first job
// first. It shows the order of calls and the clean-up.
type fake struct {
	calls []string
	fail  map[string]error // by call
	moved int64
	jobs  []*contest.Job
	ends  []func() // of the jobs, in order; the next to call first
	begun time.Time
}

func (f *fake) call(format string, args ...any) error {
	c := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, c)
	return f.fail[c]
}

func (f *fake) Limit(on bool) error                       { return f.call("limit %v", on) }
func (f *fake) Arrange(context.Context, Way, []Job) error { return f.call("arrange") }
func (f *fake) Forget() error                             { return f.call("forget") }
func (f *fake) Release() error                            { return f.call("release") }
func (f *fake) Estimate(context.Context, string) (Estimate, error) {
	return Estimate{Slowdown: 1.5}, nil
}

func (f *fake) Moved(_ context.Context, a []string) ([]int64, error) {
	return slices.Repeat([]int64{f.moved}, len(a)), f.call("moved %s", strings.Join(a, " "))
}

func (f *fake) Start(_ context.Context, _ Way, jobs []Job) ([]*contest.Job, error) {
	err := f.call("start %s", strings.Join(names(jobs), " "))
	f.jobs, f.ends = nil, nil
	for i, j := range jobs {
		done := make(chan struct{})
		end := sync.OnceFunc(func() { close(done) })
		call := func(what string) func(context.Context) error {
			return func(context.Context) error { return f.call("%s %s", what, j.Name) }
		}
		f.ends = append(f.ends, end)
		f.jobs = append(f.jobs, &contest.Job{Applications: []string{"app-" + j.Name}, Done: done, Check: call("check"), Discard: call("discard"),
			Times: func() (time.Time, time.Time, error) {
				return f.begun.Add(-3 * time.Second), f.begun.Add(time.Duration(i+1) * 10 * time.Second), f.fail["times "+j.Name]
			},
			Kill: func(ctx context.Context) error { end(); return call("kill")(ctx) }})
	}
	return f.jobs, err
}

// end ends the next job.
func (f *fake) end() {
	if len(f.ends) > 0 {
		f.ends[0]()
		f.ends = f.ends[1:]
	}
}

func (f *fake) Begin() error {
	f.begun = time.Now()
	err := f.call("begin")
	if err == nil {
		f.end()
	}
	return err
}

func (f *fake) Ended(_ Way, left []string) error {
	err := f.call("left [%s]", strings.Join(left, " "))
	if err == nil {
		f.end()
	}
	return err
}

func (f *fake) Judge(_ context.Context, from, to time.Time, jobs map[string]*contest.Job) (*contest.Verdict, error) {
	v := &contest.Verdict{StepSeconds: 1, MBps: map[string][]float64{}, Read: map[string]int64{}, Written: map[string]int64{}, Bytes: map[string]int64{}}
	for name := range jobs {
		v.MBps[name] = []float64{0, 5, 5, 0, 0}
		v.Bytes[name], v.Written[name] = 10*contest.Megabyte, 10*contest.Megabyte
	}
	return v, f.call("judge")
}

func testSetup() Setup {
	s, err := NewSetup(contest.HDD)
	if err != nil {
		panic(err) // the preset exists
	}
	s.Machine.CPUs = 2
	s.Jobs = []Job{{Name: "a", Kind: hadoop.TeraGen, Bytes: 32 * contest.MiB, Maps: 2}, {Name: "b", Kind: hadoop.TeraSort, Bytes: 64 * contest.MiB, Maps: 2, Reduces: 1}}
	return s
}

// run performs a request on a fake, in the test's own folder.
func run(t *testing.T, f *fake, q Request) ([]Run, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	q.Name, q.Progress = "test", t.Logf
	return perform(t.Context(), q, func(context.Context, string) (Environment, func() error, error) {
		return f, func() error { return nil }, nil
	})
}

func TestOrderOfATurn(t *testing.T) {
	f := &fake{moved: 1}
	q := Request{Setup: testSetup(), Rows: []Row{{Name: "equal", Way: Way{Governed: true}}}, Runs: 2}
	runs, err := run(t, f, q)
	if err != nil {
		t.Fatal(err)
	}
	first := []string{"limit false", "arrange", "forget", "start a b", "limit true", "begin", "left [b]", "left []", "moved app-a app-b", "judge", "limit false"}
	last := []string{"limit false", "discard a", "discard b", "release"}
	want := slices.Concat(first, []string{"check a", "check b"}, last, first, last)
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls\n  %s\nwant\n  %s", strings.Join(f.calls, "\n  "), strings.Join(want, "\n  "))
	}
	r := runs[0]
	// The run begins a moment before the tasks continue.
	if a, b := r.Completion("a"), r.Completion("b"); a < 10 || a > 11 || b < 20 || b > 21 || r.Makespan() != b || r.Mean() != (a+b)/2 {
		t.Errorf("completions %v and %v, mean %v", a, b, r.Mean())
	}
	if j := r.Jobs[0]; j.HeldS > 3 || j.HeldS < 2 || j.Written != 10*contest.Megabyte || j.IdleS < 8 || j.IdleS > 9 || !r.Checked || runs[1].Checked {
		t.Errorf("%+v", r)
	}
}

// After each failure and after an interruption, the limit is off, jobs are killed, outputs are gone, and the run is
// not among the results.
func TestFailuresArePutBack(t *testing.T) {
	broken := errors.New("broken")
	for _, at := range []string{"arrange", "forget", "start a b", "limit true", "begin", "left [b]", "times a", "moved app-a app-b", "judge", "check b"} {
		f := &fake{moved: 1, fail: map[string]error{at: broken}}
		runs, err := run(t, f, Request{Setup: testSetup(), Rows: []Row{{Name: "equal", Way: Way{Governed: true}}}, Runs: 1})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "equal, run 1") || len(runs) != 0 {
			t.Errorf("%s: %v, %d runs", at, err, len(runs))
		}
		if f.calls[len(f.calls)-1] != "release" {
			t.Errorf("%s: ends with %q", at, f.calls[len(f.calls)-1])
		}
		if i := slices.Index(f.calls, "limit true"); i >= 0 && !slices.Contains(f.calls[i:], "limit false") {
			t.Errorf("%s: the limit stayed", at)
		}
		for _, what := range []string{"kill a", "kill b", "discard a", "discard b"} {
			if len(f.jobs) > 0 && !slices.Contains(f.calls, what) {
				t.Errorf("%s: no %s", at, what)
			}
		}
	}
}

func TestUngovernedRunIsRefused(t *testing.T) {
	f := &fake{}
	if _, err := run(t, f, Request{Setup: testSetup(), Rows: []Row{{Name: "equal", Way: Way{Governed: true}}}, Runs: 1}); !errors.Is(err, ErrNotGoverned) {
		t.Error(err)
	}
	if _, err := run(t, f, Request{Setup: testSetup(), Rows: []Row{{Name: "native"}}, Runs: 1}); err != nil {
		t.Errorf("a native run: %v", err)
	}
}

// The jobs alone come first, then Known is called once, and then the rows follow, each second run in reverse. A
// journal continues with the missing turns.
func TestTurns(t *testing.T) {
	s := testSetup()
	journal := filepath.Join(t.TempDir(), "journal.jsonl")
	known := 0
	q := Request{Setup: s, First: Alone(s), Rows: []Row{{Name: "x"}, {Name: "y"}}, Runs: 3, Resume: journal, Known: func(done []Run) error {
		known++
		if len(done) < 4 {
			t.Errorf("known after %d runs", len(done))
		}
		return nil
	}}
	broken := errors.New("broken")
	f := &fake{fail: map[string]error{"start a b": broken}}
	if runs, err := run(t, f, q); !errors.Is(err, broken) || len(runs) != 4 || known != 1 {
		t.Fatalf("%d runs, known %d times, %v", len(runs), known, err)
	}
	runs, err := run(t, &fake{}, q)
	var order []string
	for _, r := range runs {
		order = append(order, fmt.Sprintf("%s %d", r.Row, r.Number))
	}
	want := "alone-a 1,alone-b 1,alone-a 2,alone-b 2,x 1,y 1,y 2,x 2,x 3,y 3"
	if got := strings.Join(order, ","); err != nil || got != want || known != 2 {
		t.Errorf("%s, known %d times, %v; want %s", got, known, err, want)
	}
}

func TestSelectRows(t *testing.T) {
	all := []Row{{Name: "native-none"}, {Name: "native-bfq"}, {Name: "equal"}}
	if rows, err := SelectRows(all, []string{"equal", "*-none"}); err != nil || strings.Join(RowNames(rows), " ") != "native-none equal" {
		t.Errorf("%v, %v", rows, err)
	}
	if rows, err := SelectRows(all, nil); err != nil || len(rows) != 3 {
		t.Errorf("%v, %v", rows, err)
	}
	for _, wrong := range []string{"native", "", "["} {
		if rows, err := SelectRows(all, []string{wrong}); err == nil {
			t.Errorf("%q: %v", wrong, rows)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Request{Setup: testSetup(), Runs: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Request){
		"no runs": func(q *Request) { q.Runs = 0 }, "too many runs": func(q *Request) { q.Runs = MaxRuns + 1 },
		"one CPU": func(q *Request) { q.Setup.Machine.CPUs = 1 }, "no jobs": func(q *Request) { q.Setup.Jobs = nil },
		"small": func(q *Request) { q.Setup.Scale(0.01) }, "large": func(q *Request) { q.Setup.Scale(1000) },
		"disk": func(q *Request) { q.Setup.Disk.DataNodes = 0 }, "Hadoop": func(q *Request) { q.Setup.Hadoop = "2.10.2" },
	} {
		bad := good
		if spoil(&bad); bad.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Scaled files have whole MiB, and the set-up from which another is scaled stays as it is.
func TestScale(t *testing.T) {
	s := testSetup()
	scaled := s
	scaled.Scale(0.3)
	for i, want := range []int64{8, 18} {
		if got := scaled.Jobs[i].Bytes; got != want*contest.MiB {
			t.Errorf("%s: %d MiB, want %d", s.Jobs[i].Name, got/contest.MiB, want)
		}
	}
	if s.Jobs[0].Bytes != 32*contest.MiB {
		t.Error("the set-up has changed")
	}
}

// The broker accepts the policies.
func TestPolicies(t *testing.T) {
	for _, words := range []string{"", "order: shortest, slices: [70, 20, 10], floor: 1", "order: shortest, slices: [100], floor: 1"} {
		if _, err := policyfile.Parse([]byte(policy(testSetup(), Way{Policy: words}))); err != nil {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// Bytes that the kernel writes after a job's end do not count as the job's I/O.
func TestJudged(t *testing.T) {
	for _, c := range []struct {
		mbps       []float64
		completion float64
		want       float64
	}{
		{[]float64{0, 8, 0, 8, 0.1, 0}, 6, 3},
		{[]float64{8, 8, 8, 8}, 2.5, 0},
		{[]float64{0, 0}, 2, 2},
		{nil, 2, 2},
	} {
		j := JobRun{Name: "a", CompletionS: c.completion}
		j.judged(&contest.Verdict{StepSeconds: 1, MBps: map[string][]float64{"a": c.mbps}})
		if j.IdleS != c.want {
			t.Errorf("%v until %v s: idle for %v s, want %v", c.mbps, c.completion, j.IdleS, c.want)
		}
	}
}

// A job's tags state what it moves.
func TestMoves(t *testing.T) {
	for kind, want := range map[hadoop.Kind][2]int64{hadoop.TeraGen: {1, 1}, hadoop.WordCount: {1, 1}, hadoop.TeraSort: {2, 3}, hadoop.Sort: {2, 3}} {
		j := Job{Kind: kind, Bytes: contest.MiB}
		if got := [2]int64{j.moves(false) / contest.MiB, j.moves(true) / contest.MiB}; got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

// The first job's part counts until its end only.
func TestWhileFirst(t *testing.T) {
	r := Run{Jobs: []JobRun{{Name: "a", CompletionS: 2.4}, {Name: "b", CompletionS: 5}},
		Verdict: &contest.Verdict{StepSeconds: 1, MBps: map[string][]float64{"a": {6, 6, 6}, "b": {1, 3, 9, 9, 9}}}}
	if got := r.WhileFirst(); !slices.Equal(got, []float64{6, 2}) || r.FirstPart() != 0.75 {
		t.Errorf("%v, %v", got, r.FirstPart())
	}
	r.Verdict.MBps = nil
	res := Result{Runs: []Run{r}}
	if got := res.Values("", Run.FirstPart); len(got) != 0 {
		t.Errorf("without bytes: %v", got)
	}
}
