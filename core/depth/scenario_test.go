package depth_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/core/depth"
	"penstock/lab/scenario"
)

// TestScenarios runs the scenarios in testdata/*.txt, which are read from top to bottom. A scenario
// has comments and commands; below each command is the controller's result, indented. After a
// change of the rules, rewrite the files with `go test ./core/depth -run TestScenarios -update`.
//
//	new [min=N] [max=N] [start=N] [gain=N] read=FIXED+PERMIB [write=FIXED+PERMIB]
//	period [limited] [read=COUNTxKIB@LATENCY] [write=COUNTxKIB@LATENCY] [xN]
//	others PART      foreign part of the device's time
//	device [limited] KIB LATENCY [xN]   eight reads a period, each with a latency of LATENCY times the depth
//	report
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t}
		return st.run
	})
}

// stage is the state of one running scenario.
type stage struct {
	t *testing.T
	c *depth.Controller
}

// run carries out a command. A last word xN repeats the command N times.
func (st *stage) run(words []string) string {
	args, times := words[1:], 1
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "x") {
		times, args = int(scenario.Number(st.t, args[n-1][1:])), args[:n-1]
	}
	var out strings.Builder
	for range times {
		if printed := st.once(words[0], args); printed != "" {
			fmt.Fprintln(&out, printed)
		}
	}
	return out.String()
}

func (st *stage) once(command string, args []string) (printed string) {
	switch command {
	case "new":
		c, err := depth.New(config(st.t, args))
		if err != nil {
			return err.Error()
		}
		st.c = c
	case "period", "device":
		return period(st.t, st.c, command, args)
	case "others":
		st.c.Others(scenario.Number(st.t, args[0]))
	case "report":
		r := st.c.Report()
		return fmt.Sprintf("%d periods, at min %d, at max %d, held %d, clipped %d", r.Periods, r.AtMin, r.AtMax, r.Held, r.Clipped)
	default:
		st.t.Fatalf("unknown command %q", command)
	}
	return ""
}

func config(t *testing.T, args []string) (cfg depth.Config) {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		line := func() depth.Line {
			fixed, perMiB, _ := strings.Cut(value, "+")
			return depth.Line{Fixed: scenario.Duration(t, fixed), PerMiB: scenario.Duration(t, perMiB)}
		}
		switch key {
		case "min":
			cfg.Min = scenario.Number(t, value)
		case "max":
			cfg.Max = scenario.Number(t, value)
		case "start":
			cfg.Start = scenario.Number(t, value)
		case "gain":
			cfg.Gain = scenario.Number(t, value)
		case "read":
			cfg.Read = line()
		case "write":
			cfg.Write = line()
		default:
			t.Fatalf("unknown setting %q", a)
		}
	}
	return cfg
}

func period(t *testing.T, c *depth.Controller, command string, args []string) string {
	before := c.Report()
	if len(args) > 0 && args[0] == "limited" {
		c.Limited()
		args = args[1:]
	}
	if command == "device" {
		for range 8 {
			c.Observe(false, int64(scenario.Number(t, args[0]))<<10, scenario.Duration(t, args[1])*time.Duration(c.Depth()))
		}
		args = nil
	}
	for _, a := range args {
		direction, value, _ := strings.Cut(a, "=")
		load, latency, _ := strings.Cut(value, "@")
		count, kib, _ := strings.Cut(load, "x")
		for range int(scenario.Number(t, count)) {
			c.Observe(direction == "write", int64(scenario.Number(t, kib))<<10, scenario.Duration(t, latency))
		}
	}
	next := c.Update()
	r := c.Report()
	if r.Periods == before.Periods {
		return fmt.Sprintf("nothing completed, D %.3f, depth %d", r.Depth, next)
	}
	notes := ""
	if r.Others > 0 {
		notes = fmt.Sprintf(", others %.0f %%", 100*r.Others)
	}
	if r.Held > before.Held {
		notes += ", held"
	}
	if r.Clipped > before.Clipped {
		notes += ", clipped"
	}
	return fmt.Sprintf("L %v, Lref %v, D %.3f, depth %d%s", r.Latency.Round(time.Microsecond), r.Reference.Round(time.Microsecond), r.Depth, next, notes)
}
