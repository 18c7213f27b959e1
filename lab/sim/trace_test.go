package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTraces(t *testing.T) {
	jobs, err := ParseTrace(strings.NewReader("job0\t49\t49\t740773\t2339561\t627471\r\n\njob1\t101\t52\t0\t0\t7\textra\t\n"))
	want := []TraceJob{{"job0", 49 * time.Second, 740773, 2339561, 627471}, {"job1", 101 * time.Second, 0, 0, 7}}
	if err != nil || fmt.Sprint(jobs) != fmt.Sprint(want) {
		t.Errorf("%v, %v, want %v", jobs, err, want)
	}
	long := "a\t1\t0\t0\t0\t" + strings.Repeat("0", maxTraceLine)
	edge := fmt.Sprintf("a\t%d\t0\t%d\t0\t0\n", maxTraceTime, maxTraceBytes)
	if _, err := ParseTrace(strings.NewReader(edge)); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
	for text, want := range map[string]string{
		"":                                   "no jobs",
		"\n\n":                               "no jobs",
		"a\t1\t2\t3\t4\n":                    "line 1: 5 fields",
		"a\t1\t1\t0\t0\t0\nb\t0\t0\t0\t0\t0": "line 2: job b is submitted before",
		"a\t1\t1\t0\t0\t0\n\nb 1 0 0 0 0":    "line 3: 1 fields",
		"a\t1\t1\t0\t-1\t0":                  "line 1: field 5, bytes of shuffle: \"-1\"",
		"a\tx\t1\t0\t0\t0":                   "line 1: field 2, seconds",
		"\t1\t1\t0\t0\t0":                    "line 1: field 1",
		strings.Repeat("n", 201) + "\t1\t1\t0\t0\t0":            "line 1: field 1",
		fmt.Sprintf("a\t1\t1\t%d\t0\t0", maxTraceBytes+1):       "field 4",
		fmt.Sprintf("a\t%d\t1\t0\t0\t0", maxTraceTime+1):        "field 2",
		"a\t1\t1\t0\t0\t0\n" + long:                             "line 2: the line is longer than",
		strings.Repeat("a\t1\t1\t0\t0\t0\n", maxTraceJobs+1):    "more than 1000000 jobs",
		"a\t1\t1\t99999999999999999999999999999999999999\t0\t0": "field 4",
	} {
		if _, err := ParseTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	if jobs, err := LoadTrace("scenarios/swim-sample.tsv"); err != nil || len(jobs) != 300 {
		t.Errorf("the sample: %d jobs, %v", len(jobs), err)
	}
	if _, err := LoadTrace("trace.go"); err == nil || !strings.Contains(err.Error(), "trace.go: line 1: ") {
		t.Errorf("a file that is not a trace: %v", err)
	}
}

// FuzzTrace: accepted jobs are within the bounds and in order. Their text is parsed to the same
// jobs.
func FuzzTrace(f *testing.F) {
	f.Add([]byte("job0\t49\t49\t740773\t2339561\t627471\njob1\t101\t52\t736346\t1700537\t432269\n"))
	f.Add([]byte("a\t0\t0\t0\t0\t0\tpath\r\n\nb\t0\t0\t1125899906842624\t0\t1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, err := ParseTrace(bytes.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		last := time.Duration(0)
		for _, j := range jobs {
			if min(j.Input, j.Shuffle, j.Output) < 0 || max(j.Input, j.Shuffle, j.Output) > maxTraceBytes || j.Submitted < last {
				t.Fatalf("%+v after %v", j, last)
			}
			last = j.Submitted
			fmt.Fprintf(&out, "%s\t%d\t0\t%d\t%d\t%d\n", j.Name, j.Submitted/time.Second, j.Input, j.Shuffle, j.Output)
		}
		again, err := ParseTrace(&out)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(jobs) {
			t.Fatalf("%v, %v, want %v", again, err, jobs)
		}
	})
}
