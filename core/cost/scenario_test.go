package cost_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/core/cost"
	"penstock/lab/scenario"
)

// TestScenarios runs the scenarios in testdata/*.txt, which are read from top to bottom. A scenario
// has comments and commands; below each command is the tracker's state, indented. After a change of
// the rules, rewrite the files with `go test ./core/cost -run TestScenarios -update`.
//
//	new [learn]                     the model is a disk with seeks of 8 ms and 87 ms per MiB
//	device read=F write=F           factors of the requests' real time to the model's
//	run LENGTH depth=N read=NxKIB write=NxKIB   runs requests, N reads and N writes in turn
//	until slow|healthy LENGTH ...   the same, until the given verdict
//	stall LENGTH KIB                one read takes longer by LENGTH
//	idle LENGTH
//	others COST
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t}
		return st.run
	})
}

// stage is the state of one running scenario.
type stage struct {
	t *testing.T
	d *device
}

func (st *stage) run(words []string) string {
	t, d, args := st.t, st.d, words[1:]
	if words[0] == "new" {
		st.d = newDevice(cost.TrackerConfig{Learn: len(args) > 0 && args[0] == "learn"})
		return ""
	}
	began := d.now
	took := ""
	switch words[0] {
	case "device":
		for i, direction := range []string{"read", "write"} {
			if v := scenario.Value(args, direction); v != "" {
				d.factor[i] = scenario.Number(t, v)
			}
		}
		return ""
	case "run":
		load(t, d, args, never)
	case "until":
		want := args[0] == "slow"
		load(t, d, args[1:], func(v cost.Verdict) bool { return v.Slow == want })
		took = fmt.Sprintf(" after %v", (d.now - began).Round(10*time.Millisecond))
	case "stall":
		d.start(false, int64(scenario.Number(t, args[1]))<<10)
		d.finish(scenario.Duration(t, args[0]))
	case "idle":
		d.now += scenario.Duration(t, args[0])
	case "others":
		d.tracker.Others(scenario.Duration(t, args[0]))
	default:
		t.Fatalf("unknown command %q", words)
	}
	v := d.tracker.Look(d.now)
	verdict := "healthy"
	if v.Slow {
		verdict = fmt.Sprintf("slow by %.1f", v.Factor)
	}
	return fmt.Sprintf("scales %.3f and %.3f, %s%s", d.tracker.Scale(false), d.tracker.Scale(true), verdict, took)
}

// load runs LENGTH depth=N read=NxKIB write=NxKIB.
func load(t *testing.T, d *device, args []string, stop func(cost.Verdict) bool) {
	count, size := [2]int{}, 0.0
	for i, direction := range []string{"read", "write"} {
		if v := scenario.Value(args, direction); v != "" {
			n, kib, _ := strings.Cut(v, "x")
			count[i], size = int(scenario.Number(t, n)), scenario.Number(t, kib)
		}
	}
	turn := 0
	write := func() bool {
		turn++
		return turn%(count[0]+count[1]) >= count[0]
	}
	d.run(scenario.Duration(t, args[0]), int(scenario.Number(t, scenario.Value(args, "depth"))), int64(size)<<10, write, stop)
}
