package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"penstock/settings/plain"
)

// Bounds of a trace.
const (
	maxTraceJobs  = 1_000_000
	maxTraceLine  = 4096
	maxTraceBytes = 1 << 50 // each of a job's input, shuffle and output
	maxTraceTime  = 10 * 365 * 24 * 3600
)

// TraceJob is a line of a trace.
type TraceJob struct {
	Name                   string
	Submitted              time.Duration // since the trace's beginning
	Input, Shuffle, Output int64         // bytes
}

// ParseTrace reads jobs in the format of SWIM (Statistical Workload Injector for MapReduce). Each
// line is a job. Its fields, separated by tabs, are: name, time of submission in seconds, seconds
// since the previous job's submission, and bytes of map input, shuffle and reduce output. Further
// fields are ignored. Times must not decrease. Errors name the line.
func ParseTrace(r io.Reader) ([]TraceJob, error) {
	var jobs []TraceJob
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, maxTraceLine), maxTraceLine)
	n := 0
	for lines.Scan() {
		n++
		text := bytes.TrimRight(lines.Bytes(), "\r")
		if len(text) == 0 {
			continue
		}
		if len(jobs) == maxTraceJobs {
			return nil, fmt.Errorf("line %d: the trace has more than %d jobs: shorten it", n, maxTraceJobs)
		}
		j, err := parseTraceJob(string(text))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(jobs) > 0 && j.Submitted < jobs[len(jobs)-1].Submitted {
			return nil, fmt.Errorf("line %d: job %s is submitted before the previous job: sort the trace by its second field", n, j.Name)
		}
		jobs = append(jobs, j)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: the line is longer than %d bytes", n+1, maxTraceLine-1)
	} else if err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(jobs) == 0 {
		return nil, errors.New("the trace has no jobs")
	}
	return jobs, nil
}

func parseTraceJob(line string) (j TraceJob, err error) {
	f := strings.Split(line, "\t")
	if len(f) < 6 {
		return j, fmt.Errorf("%d fields, want at least 6, separated by tabs: job, time of submission, time since the previous job, map input, shuffle, reduce output", len(f))
	}
	number := func(i int, what string, most int64) int64 {
		v, e := strconv.ParseInt(f[i], 10, 64)
		if err == nil && (e != nil || v < 0 || v > most) {
			err = fmt.Errorf("field %d, %s: %.40q: want a whole number from 0 to %d", i+1, what, f[i], most)
		}
		return v
	}
	j.Name = f[0]
	if j.Name == "" || len(j.Name) > 200 {
		return j, errors.New("field 1, name of the job: want 1 to 200 bytes")
	}
	seconds := number(1, "seconds", maxTraceTime)
	number(2, "seconds since the previous job", maxTraceTime)
	j.Input = number(3, "bytes of map input", maxTraceBytes)
	j.Shuffle = number(4, "bytes of shuffle", maxTraceBytes)
	j.Output = number(5, "bytes of reduce output", maxTraceBytes)
	j.Submitted = time.Duration(seconds) * time.Second
	return j, err
}

// LoadTrace reads a trace from a file. Errors name the file and the line.
func LoadTrace(file string) ([]TraceJob, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, plain.File(err)
	}
	defer f.Close()
	jobs, err := ParseTrace(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return jobs, nil
}
