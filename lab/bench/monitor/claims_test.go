package monitor

import (
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment/claims"
	"penstock/lab/judge"
	"penstock/lab/spark"
)

// measured has two runs. Natively, the activities harm WordCount in the paper's order in the first run, and
// fio-writer and hdfs-writer in reverse in the second.
func measured() Result {
	r := Result{}
	r.Setup = DefaultSetup()
	d := Disk{Rate: 20e6, Limit: 4e6}
	turn := func(row string, run int, seconds, background float64) {
		t := Turn{Row: row, Run: run, Disk: d, WordCount: &Job{RuntimeS: seconds, ReadMBps: 180 / seconds, Reads: []float64{1, 2}}}
		if background > 0 {
			t.Background = &Background{ReadMBps: background, WriteMBps: background / 2}
		}
		r.Turns = append(r.Turns, t)
	}
	for run := 1; run <= 2; run++ {
		swap := float64(run-1) * 50
		turn(rowAlone, run, 20, 0)
		turn(rowTogether, run, 35, 0)
		turn(string(HDFSReader), run, 30, 10)
		turn(string(FioReader), run, 45, 12)
		turn(string(FioWriter), run, 70, 32)
		turn(string(HDFSWriter), run, 80-swap, 24)
		turn("fio-writer-penstock", run, 20+2*float64(run), 8.08)
		turn("fio-reader-cgroup", run, 25, 3)
	}
	r.Turns = append(r.Turns, Turn{Row: rowTeraSort, Run: 2, Disk: d, TeraSort: &Job{RuntimeS: 40}})
	for i, t := range r.Turns {
		if t.Row == rowTogether {
			r.Turns[i].TeraSort = &Job{RuntimeS: 50}
		}
	}
	return r
}

func TestClaims(t *testing.T) {
	all := measured().claims()
	for _, w := range []struct {
		name             string
		value, low, high float64
		runs             int
		met              string
	}{
		{"WordCount alone: part of the disk's rate", 0.45, 0.45, 0.45, 2, ""},
		{"WordCount's run time with TeraSort, natively / alone", 1.75, 1.75, 1.75, 2, ""},
		{"TeraSort's run time with WordCount, natively / alone", 1.25, 1.25, 1.25, 1, ""}, // of the same run only
		{"WordCount's run time with fio-writer, natively / alone", 3.5, 3.5, 3.5, 2, ""},
		// In the second run, hdfs-writer is as harmless as hdfs-reader, and less harmful than three others.
		{"pairs of activities that harm WordCount natively in the paper's order, of 10", 8, 6, 10, 2, "missed"},
		{"WordCount's run time with fio-writer held by Penstock's gate / alone", 1.15, 1.1, 1.2, 2, "missed"},
		{"fio-writer held by Penstock's gate: its rate's deviation from its limit", 1, 1, 1, 2, "met"},
		{"fio-writer held by Penstock's gate: its loss against native", 74.75, 74.75, 74.75, 2, ""},
		{"fio-reader held by cgroup v1: its rate's deviation from its limit", 25, 25, 25, 2, ""},
	} {
		found := false
		for _, c := range all {
			if c.Name != w.name {
				continue
			}
			found = true
			for _, pair := range [][2]float64{{c.Value, w.value}, {c.Low, w.low}, {c.High, w.high}} {
				if math.Abs(pair[0]-pair[1]) > 1e-9 {
					t.Errorf("%+v, want %v (%v to %v)", c, w.value, w.low, w.high)
				}
			}
			if met := verdict(c); c.Runs != w.runs || met != w.met {
				t.Errorf("%s: %d runs, %q; want %d, %q", c.Name, c.Runs, met, w.runs, w.met)
			}
		}
		if !found {
			t.Errorf("no claim %q", w.name)
		}
	}
	for _, c := range all {
		if strings.Contains(c.Name, "hdfs-reader held") || strings.Contains(c.Name, "preferred") {
			t.Errorf("%q was not measured", c.Name)
		}
	}
}

func verdict(c claims.Claim) string {
	switch {
	case c.Met == nil:
		return ""
	case *c.Met:
		return "met"
	}
	return "missed"
}

// A claim is met at the edge of its goal, and missed beyond it.
func TestGoalsAtTheirEdges(t *testing.T) {
	for _, c := range []struct {
		seconds, rate    float64
		harm, difference string
	}{{22, 4.2, "met", "met"}, {22.01, 4.21, "missed", "missed"}, {22, 3.8, "met", "met"}, {22, 3.79, "met", "missed"}} {
		d := Disk{Rate: 20e6, Limit: 4e6}
		var r Result
		r.Turns = []Turn{{Row: rowAlone, Run: 1, Disk: d, WordCount: &Job{RuntimeS: 20}},
			{Row: "hdfs-reader-penstock", Run: 1, Disk: d, WordCount: &Job{RuntimeS: c.seconds}, Background: &Background{ReadMBps: c.rate}}}
		for _, claim := range r.claims() {
			want := ""
			switch {
			case strings.HasPrefix(claim.Name, "WordCount's run time with hdfs-reader"):
				want = c.harm
			case strings.HasSuffix(claim.Name, "from its limit"):
				want = c.difference
			}
			if got := verdict(claim); got != want {
				t.Errorf("%g s, %g MB/s: %s: %v is %q, want %q", c.seconds, c.rate, claim.Name, claim.Value, got, want)
			}
		}
	}
}

// The disk's rate follows from the fastest run without a limit.
func TestDisk(t *testing.T) {
	s := DefaultSetup()
	full := func(mbps float64) Turn { return Turn{Row: calibration.Name, WordCount: &Job{ReadMBps: mbps}} }
	if d, err := s.disk([]Turn{full(7), full(9.04)}); err != nil || d != (Disk{Rate: 20_100_000, Limit: 4_020_000}) {
		t.Errorf("%+v, %v", d, err)
	}
	for _, none := range [][]Turn{nil, {full(0)}, {{Row: calibration.Name}}} {
		if d, err := s.disk(none); err == nil {
			t.Errorf("%v: %+v", none, d)
		}
	}
}

// A job's figures come from the account of its whole time; its series from those of its seconds.
func TestAccounts(t *testing.T) {
	usage := func(read, written int64) judge.Usage { return judge.Usage{ReadBytes: read, WriteBytes: written} }
	account := func(input, output, background judge.Usage) judge.Account {
		return judge.Account{Owners: map[string]judge.Usage{wordCount: input, wordCount + ownerOutput: output, ownerBackground: background}}
	}
	accounts := []judge.Account{
		account(usage(3e6, 0), usage(0, 0), usage(0, 0)), account(usage(1e6, 0), usage(0, 0), usage(0, 0)),
		account(usage(5e6, 0), usage(7, 1e6), usage(4e6, 2e6)),
	}
	j := &job{application: &application{name: wordCount, container: "c"}, done: spark.Done{Elapsed: 2500 * time.Millisecond},
		before: waits{byOwner: map[string]time.Duration{"c": time.Second}}, after: waits{byOwner: map[string]time.Duration{"c": 3 * time.Second, "d": time.Hour}}}
	got := accountOf(j, accounts)
	if got.RuntimeS != 2.5 || got.ReadMBps != 2 || got.WriteMBps != 0.4 || got.BlockDelayS != 2 || len(got.Reads) != 2 || got.Reads[0] != 3 || got.Reads[1] != 1 {
		t.Errorf("%+v", got)
	}
	if b := backgroundOf(accounts[2], 2.5); b.rate(FioReader) != 1.6 || b.rate(HDFSReader) != 1.6 || b.rate(FioWriter) != 0.8 || b.rate(HDFSWriter) != 0.8 {
		t.Errorf("%+v", b)
	}
}

func TestTableAndReport(t *testing.T) {
	r := measured()
	for _, row := range []string{rowTogether, rowPrefer, rowPreferTeraSort} {
		r.Turns = append(r.Turns, Turn{Row: row, Run: 3, WordCount: &Job{RuntimeS: 1, Reads: []float64{1, 2, 3}}, TeraSort: &Job{RuntimeS: 2, Reads: []float64{4}}})
	}
	var table, page, json strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&json); err != nil {
		t.Fatal(err)
	}
	if err := r.Report().Write(&page, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fio-writer-penstock", "22.0 to 24.0", "terasort-alone"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for text, in := range map[string]string{"Experiment 1: read rates": page.String(), `"claims": [`: json.String()} {
		if !strings.Contains(in, text) {
			t.Errorf("no %q", text)
		}
	}
}
