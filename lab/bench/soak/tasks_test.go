package soak

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPhasesPlan(t *testing.T) {
	p := PhasesSetup(3, 50).Plan()
	if len(p.Steps) != 50 || !reflect.DeepEqual(p, PhasesSetup(3, 50).Plan()) || reflect.DeepEqual(p.Steps, PhasesSetup(4, 50).Plan().Steps) {
		t.Errorf("%d steps, or not the seed's", len(p.Steps))
	}
	for i, s := range p.Steps {
		if s.Number != i+1 || s.Kind != KillDaemon || s.Pause > time.Second || s.Lasts > 2*time.Second || s.In != phases[i%len(phases)] {
			t.Errorf("step %d: %+v", i, s)
		}
	}
}

func TestPhases(t *testing.T) {
	for body, want := range map[string]Phase{
		`{"jobs":{"job":[{"mapProgress":0,"reduceProgress":0}]}}`:      PhaseMap,
		`{"jobs":{"job":[{"mapProgress":99.9,"reduceProgress":0}]}}`:   PhaseMap,
		`{"jobs":{"job":[{"mapProgress":99.9,"reduceProgress":20}]}}`:  PhaseShuffle,
		`{"jobs":{"job":[{"mapProgress":100,"reduceProgress":0}]}}`:    PhaseShuffle,
		`{"jobs":{"job":[{"mapProgress":100,"reduceProgress":33.3}]}}`: PhaseShuffle,
		`{"jobs":{"job":[{"mapProgress":100,"reduceProgress":50}]}}`:   PhaseMerge,
		`{"jobs":{"job":[{"mapProgress":100,"reduceProgress":66.7}]}}`: PhaseReduce,
		`{"jobs":{"job":[{"mapProgress":100,"reduceProgress":100}]}}`:  PhaseReduce,
	} {
		if got, err := parseProgress([]byte(body)); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
	for _, body := range []string{"", "<html>", `{"jobs":{}}`, `{"jobs":{"job":[]}}`} {
		if got, err := parseProgress([]byte(body)); err == nil {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func TestTaskWaits(t *testing.T) {
	var w TaskWaits
	for _, text := range []string{"0 0", "3 250000000", "1 900000000\n"} {
		if err := w.add(text); err != nil {
			t.Error(err)
		}
	}
	if want := (TaskWaits{Tasks: 3, Held: 2, Waits: 4, LongMS: 900}); w != want {
		t.Errorf("%+v, want %+v", w, want)
	}
	for _, text := range []string{"", "x", "1", "-1 0", "1 -1"} {
		if err := w.add(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestACampaignInPhases(t *testing.T) {
	s := PhasesSetup(1, 50)
	campaign := func(spoil func(*Journal)) Result {
		j, err := OpenJournal("", s)
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range s.Plan().Steps {
			j.add(line{Outcome: &Outcome{Step: step, Orphans: 1, OrphanMS: 400, Phase: phases[i%len(phases)]}})
		}
		for n := range 2 {
			j.add(line{Round: &Round{Load: "terasort", Number: n + 1, Seconds: 50, TaskWaits: TaskWaits{Tasks: 9, Held: 2 * n, Waits: 3, LongMS: 500}}})
		}
		j.add(line{Ending: &Ending{Last: len(j.outcomes), Clean: true}})
		if spoil != nil {
			spoil(j)
		}
		return Summarise(s, "test", j)
	}
	r := campaign(nil)
	var out strings.Builder
	if err := r.WriteTable(&out); err != nil || !r.Good || r.Phases[PhaseMerge] != 12 {
		t.Errorf("%v: %+v", err, r)
	}
	for _, want := range []string{"2 of 18 waited", "map 13 shuffle 13 merge 12 reduce 12"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	for name, spoil := range map[string]func(*Journal){
		"a task waited":   func(j *Journal) { j.rounds[1].TaskWaits.LongMS = killMax + 1 },
		"a server waited": func(j *Journal) { j.outcomes[7].OrphanMS = killMax + 1 },
		"no task told":    func(j *Journal) { j.rounds[0].TaskWaits, j.rounds[1].TaskWaits = TaskWaits{}, TaskWaits{} },
		"a phase is left out": func(j *Journal) {
			for i := range j.outcomes {
				j.outcomes[i].Phase = PhaseMap
			}
		},
	} {
		if r := campaign(spoil); r.Good {
			t.Errorf("%s, and it is good", name)
		}
	}
}
