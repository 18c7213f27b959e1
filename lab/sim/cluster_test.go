package sim

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func load(t *testing.T, file string) *Scenario {
	t.Helper()
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestScenarios plays the quick scenarios with several seeds and checks that they meet their
// expectations.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		seeds := uint64(3)
		if name := filepath.Base(file); strings.HasPrefix(name, "scale-1000") || name == "equal-thousand.yaml" {
			load(t, file)
			continue // at least half a minute: `make sim` and `make sim-large`
		}
		if strings.HasSuffix(file, "-thousand.yaml") {
			load(t, file)
			continue // `make verify`
		}
		switch filepath.Base(file) {
		case "scale-100.yaml", "scale-100-local.yaml", "swim.yaml", "slowdown.yaml", "equal-slowdown.yaml", "equal-hundred.yaml", "changes.yaml", "hundred-nodes.yaml", "hundred-nodes-dsfq.yaml", "shortest-hundred.yaml":
			seeds = 1 // they take longest
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				r, err := load(t, file).Play(seed+1, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("seed %d: %.2f %% misplaced, at most %.2f %%, in %d windows; %d events", seed+1, 100*r.Misplaced, 100*r.Worst, r.Judged, r.Events)
				for _, fault := range r.Faults {
					t.Error(fault)
				}
			}
		})
	}
}

// TestReplay: the same seed leads to the same run, to the last digit. Another seed leads to another
// run.
func TestReplay(t *testing.T) {
	s := load(t, "scenarios/ten-nodes.yaml")
	play := func(seed uint64) string {
		r, err := s.Play(seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	once, again, other := play(7), play(7), play(8)
	if once != again {
		t.Error("the same seed leads to different runs")
	}
	if once == other {
		t.Error("different seeds lead to the same run")
	}
}
