package depth_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/core/depth"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scenarios in testdata")

// The scenarios in testdata/*.txt are read from top to bottom: a comment, a
// command, and indented under it what the controller did. After a change of
// rules rewrite them with `go test ./core/depth -run TestScenarios -update`.
//
//	new [min=N] [max=N] [start=N] [gain=N] read=FIXED+PERMIB [write=FIXED+PERMIB]
//	period [limited] [read=COUNTxKIB@LATENCY] [write=COUNTxKIB@LATENCY] [xN]
//	device [limited] KIB LATENCY [xN]   eight reads a period, each of LATENCY times the depth
//	report
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s no longer tells what happens; now it is:\n%s", file, got)
			}
		})
	}
}

// play returns a scenario with the output that its commands have now.
func play(t *testing.T, text string) string {
	var out strings.Builder
	var c *depth.Controller
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "    ") {
			continue // earlier output
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		args, times := words[1:], 1
		if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "x") {
			times, args = int(number(t, args[n-1][1:])), args[:n-1]
		}
		for range times {
			var printed string
			switch words[0] {
			case "new":
				var err error
				if c, err = depth.New(config(t, args)); err != nil {
					printed = err.Error()
				}
			case "period", "device":
				printed = period(t, c, words[0], args)
			case "report":
				r := c.Report()
				printed = fmt.Sprintf("%d periods, at min %d, at max %d, held %d", r.Periods, r.AtMin, r.AtMax, r.Held)
			default:
				t.Fatalf("unknown command %q", line)
			}
			for p := range strings.Lines(printed) {
				out.WriteString("    " + strings.TrimRight(p, "\n") + "\n")
			}
		}
	}
	return out.String()
}

func number(t *testing.T, word string) float64 {
	n, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatalf("%q is not a number", word)
	}
	return n
}

func duration(t *testing.T, word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		t.Fatalf("%q is not a duration", word)
	}
	return d
}

func config(t *testing.T, args []string) (cfg depth.Config) {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		line := func() depth.Line {
			fixed, perMiB, _ := strings.Cut(value, "+")
			return depth.Line{Fixed: duration(t, fixed), PerMiB: duration(t, perMiB)}
		}
		switch key {
		case "min":
			cfg.Min = number(t, value)
		case "max":
			cfg.Max = number(t, value)
		case "start":
			cfg.Start = number(t, value)
		case "gain":
			cfg.Gain = number(t, value)
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
			c.Observe(false, int64(number(t, args[0]))<<10, duration(t, args[1])*time.Duration(c.Depth()))
		}
		args = nil
	}
	for _, a := range args {
		direction, value, _ := strings.Cut(a, "=")
		load, latency, _ := strings.Cut(value, "@")
		count, kib, _ := strings.Cut(load, "x")
		for range int(number(t, count)) {
			c.Observe(direction == "write", int64(number(t, kib))<<10, duration(t, latency))
		}
	}
	next := c.Update()
	r := c.Report()
	if r.Periods == before.Periods {
		return fmt.Sprintf("nothing completed, D %.3f, depth %d", r.Depth, next)
	}
	held := ""
	if r.Held > before.Held {
		held = ", held"
	}
	return fmt.Sprintf("L %v, Lref %v, D %.3f, depth %d%s", r.Latency.Round(time.Microsecond), r.Reference.Round(time.Microsecond), r.Depth, next, held)
}
