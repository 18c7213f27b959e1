package sharedfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Storage clients are processes of fio in the pattern of IOR: each writes its own file from the beginning to the end, and then reads
// it, with direct I/O, so that each transfer is at the server's disk. Beside each process, a probe reads 4 KiB at random places
// a few times a second. All requests of a file go to one server.

const (
	probeBytes = 4 << 10
	probeMiB   = 16

	transferJob, probeJob = "transfer", "probe" // beginnings of jobs' names
)

// files are the files of one machine's processes and probes, one of each for each server.
type files struct{ transfers, probes []string }

// jobs returns fio's description of one cycle: all processes write for some time, then all of them read for as long.
func (b Beside) jobs(f files) string {
	var t strings.Builder
	fmt.Fprintf(&t, "[global]\nioengine=psync\nthread=1\ndirect=1\noverwrite=1\nfallocate=none\ntime_based=1\nruntime=%d\n", b.PhaseS)
	for phase, kind := range []string{"write", "read"} {
		for i, name := range f.transfers {
			fmt.Fprintf(&t, "[%s-%s%d]\n", transferJob, kind, i)
			if phase > 0 && i == 0 {
				t.WriteString("stonewall=1\n") // the jobs from here on wait for the end of those above
			}
			fmt.Fprintf(&t, "filename=%s\nrw=%s\nbs=%d\nsize=%dm\n", name, kind, b.Transfer, b.FileMiB)
		}
		for i, name := range f.probes {
			fmt.Fprintf(&t, "[%s-%s%d]\nfilename=%s\nrw=randread\nnorandommap=1\nbs=%d\nsize=%dm\nrate_iops=%d\n", probeJob, kind, i, name, probeBytes, probeMiB, b.ProbesHz)
		}
	}
	return t.String()
}

// tally is what some processes have measured.
type tally struct {
	bytes   int64
	seconds float64         // of I/O, summed over processes
	waits   map[int64]int64 // numbers of requests by their latency in nanoseconds, in classes of 1.6 %
}

func (t *tally) plus(other tally) {
	t.bytes += other.bytes
	t.seconds += other.seconds
	if t.waits == nil {
		t.waits = map[int64]int64{}
	}
	for latency, n := range other.waits {
		t.waits[latency] += n
	}
}

// requests returns the number of requests.
func (t tally) requests() (n int64) {
	for _, some := range t.waits {
		n += some
	}
	return n
}

// quantile returns the least latency that a part q of the requests did not exceed; 0 without requests.
func (t tally) quantile(q float64) time.Duration {
	all, seen := t.requests(), int64(0)
	for _, latency := range slices.Sorted(maps.Keys(t.waits)) {
		if seen += t.waits[latency]; float64(seen) >= q*float64(all) {
			return time.Duration(latency)
		}
	}
	return 0
}

// measured is what storage clients have measured.
type measured struct{ writes, reads, probes tally }

func (m *measured) plus(other measured) {
	m.writes.plus(other.writes)
	m.reads.plus(other.reads)
	m.probes.plus(other.probes)
}

// transfers returns the writes and reads.
func (m measured) transfers() (t tally) {
	t.plus(m.writes)
	t.plus(m.reads)
	return t
}

// counted are fio's figures of the reads or the writes of a job.
type counted struct {
	Bytes   int64 `json:"io_bytes"`
	Millis  int64 `json:"runtime"`
	Latency struct {
		Bins map[string]int64 `json:"bins"`
	} `json:"clat_ns"`
}

func (c counted) tally() (tally, error) {
	t := tally{bytes: c.Bytes, seconds: float64(c.Millis) / 1e3, waits: map[int64]int64{}}
	for text, n := range c.Latency.Bins {
		latency, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return t, fmt.Errorf("a latency of %q ns: %w", text, err)
		}
		t.waits[latency] += n
	}
	return t, nil
}

// parseFio reads fio's output in its format json+. Lines before the document are fio's remarks.
func parseFio(text string) (m measured, err error) {
	begin := strings.Index(text, "{")
	if begin < 0 {
		return m, errors.New("fio's output has no figures")
	}
	var doc struct {
		Jobs []struct {
			Name        string `json:"jobname"`
			Error       int
			Read, Write counted
		}
	}
	if err := json.NewDecoder(strings.NewReader(text[begin:])).Decode(&doc); err != nil {
		return m, fmt.Errorf("fio's output: %w", err)
	}
	for _, j := range doc.Jobs {
		if j.Error != 0 {
			return m, fmt.Errorf("fio's job %s failed with the error number %d", j.Name, j.Error)
		}
		of, into := j.Read, &m.probes
		switch {
		case strings.HasPrefix(j.Name, transferJob+"-write"):
			of, into = j.Write, &m.writes
		case strings.HasPrefix(j.Name, transferJob):
			into = &m.reads
		}
		t, err := of.tally()
		if err != nil {
			return m, fmt.Errorf("fio's job %s: %w", j.Name, err)
		}
		into.plus(t)
	}
	if m.writes.bytes == 0 || m.reads.bytes == 0 {
		return m, fmt.Errorf("fio has written %d bytes and read %d", m.writes.bytes, m.reads.bytes)
	}
	return m, nil
}
