package isolation

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment/progress"
)

// The report is written after the first run, with the number of runs to do. Its path is printed once.
func TestTheReportGrows(t *testing.T) {
	var out bytes.Buffer
	phases, err := ParsePhases([]string{"alone", "floor"}, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	x := &Experiment{Request: Request{Setup: testSetup(), Phases: phases, Runs: 1, Report: filepath.Join(t.TempDir(), "new", "demo.html"),
		Progress: &progress.Log{Out: &out}}, Env: finisher{&fake{}}, SampleEvery: time.Millisecond}
	t.Chdir(t.TempDir())
	turns := x.turns(func(context.Context, string) (func() error, error) { return func() error { return nil }, nil })
	after := turns.After
	var pages []string
	turns.After = func(done []Run) error {
		if err := after(done); err != nil {
			return err
		}
		page, err := os.ReadFile(x.Report)
		pages = append(pages, string(page))
		return err
	}
	if _, err := turns.Perform(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(pages) != 2 || !strings.Contains(pages[0], "Runs to do: 1.") || strings.Contains(pages[0], ">CPU contention only</text>") ||
		strings.Contains(pages[1], "Runs to do") || !strings.Contains(pages[1], ">CPU contention only</text>") {
		t.Errorf("%d pages", len(pages))
	}
	if n := strings.Count(out.String(), "first picture: "+x.Report); n != 1 {
		t.Errorf("the report's path is printed %d times:\n%s", n, out.String())
	}
}

func TestFullSpeedHasNoLimit(t *testing.T) {
	f := &fake{}
	x := newExperiment(t, f, "alone")
	x.Phases = []Phase{fullSpeed}
	runs, err := run(t, t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.calls {
		if c == "limit true" || strings.Contains(c, "aggressor") {
			t.Errorf("the run at full speed called %q", c)
		}
	}
	if len(runs) != 1 {
		t.Errorf("%d runs", len(runs))
	}
}
