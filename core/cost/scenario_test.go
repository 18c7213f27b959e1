package cost_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/core/cost"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scenarios in testdata")

// The scenarios in testdata/*.txt are read from top to bottom: a comment, a
// command, and indented under it what the tracker thinks then. After a change of
// rules rewrite them with `go test ./core/cost -run TestScenarios -update`.
//
//	new [learn]                     a disk of 8 ms a place and 87 ms a MiB, says the model
//	device read=F write=F           what requests really take, times the model
//	run LENGTH depth=N read=NxKIB write=NxKIB   so many of each in turn
//	until slow|healthy LENGTH ...   the same, until the verdict is as said
//	stall LENGTH KIB                one read takes so much longer
//	idle LENGTH
//	others COST
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
	var d *device
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
		args := words[1:]
		if words[0] == "new" {
			d = newDevice(cost.TrackerConfig{Learn: len(args) > 0 && args[0] == "learn"})
			continue
		}
		began := d.now
		took := ""
		switch words[0] {
		case "device":
			for i, direction := range []string{"read", "write"} {
				if v := value(args, direction); v != "" {
					d.factor[i] = number(t, v)
				}
			}
			continue
		case "run":
			load(t, d, args, never)
		case "until":
			want := args[0] == "slow"
			load(t, d, args[1:], func(v cost.Verdict) bool { return v.Slow == want })
			took = fmt.Sprintf(" after %v", (d.now - began).Round(10*time.Millisecond))
		case "stall":
			d.start(false, int64(number(t, args[1]))<<10)
			d.finish(duration(t, args[0]))
		case "idle":
			d.now += duration(t, args[0])
		case "others":
			d.tracker.Others(duration(t, args[0]))
		default:
			t.Fatalf("unknown command %q", line)
		}
		v := d.tracker.Look(d.now)
		verdict := "healthy"
		if v.Slow {
			verdict = fmt.Sprintf("slow by %.1f", v.Factor)
		}
		fmt.Fprintf(&out, "    scales %.3f and %.3f, %s%s\n", d.tracker.Scale(false), d.tracker.Scale(true), verdict, took)
	}
	return out.String()
}

// load runs LENGTH depth=N read=NxKIB write=NxKIB.
func load(t *testing.T, d *device, args []string, stop func(cost.Verdict) bool) {
	count, size := [2]int{}, 0.0
	for i, direction := range []string{"read", "write"} {
		if v := value(args, direction); v != "" {
			n, kib, _ := strings.Cut(v, "x")
			count[i], size = int(number(t, n)), number(t, kib)
		}
	}
	turn := 0
	write := func() bool {
		turn++
		return turn%(count[0]+count[1]) >= count[0]
	}
	d.run(duration(t, args[0]), int(number(t, value(args, "depth"))), int64(size)<<10, write, stop)
}

func value(args []string, key string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v
		}
	}
	return ""
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
