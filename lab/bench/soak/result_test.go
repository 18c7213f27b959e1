package soak

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestSpreadIsByNearestRank(t *testing.T) {
	var all []float64
	for i := range 100 {
		all = append(all, float64(100-i))
	}
	if got := spread(all); got != (Spread{50, 99, 100}) {
		t.Errorf("1 to 100: %+v", got)
	}
	if got := spread([]float64{7}); got != (Spread{7, 7, 7}) {
		t.Errorf("7: %+v", got)
	}
	if got := spread(nil); got != (Spread{}) {
		t.Errorf("nothing: %+v", got)
	}
}

// Each life begins at its own level; only what happens within a life is growth.
func TestGrowthIsWithinALife(t *testing.T) {
	var all []Usage
	for life := range 5 {
		for age := 0.0; age < 100; age += 10 {
			all = append(all, Usage{Process: "daemon", PID: life, AgeS: age, RSSKiB: int64(1000*life) + int64(2*age), FDs: 10 + life, Threads: 5})
		}
		all = append(all, Usage{Process: "datanode0", PID: 99, AgeS: 50, RSSKiB: 1 << 30})
	}
	// The initial allocation is left out.
	all = append(all, Usage{Process: "daemon", PID: 0, AgeS: settled - 1, RSSKiB: 0, FDs: 0})
	g := growth("daemon", all)
	if g.Lives != 5 || g.LongestS != 90 || g.RSSKiBMax != 4180 || g.FDsMax != 14 {
		t.Errorf("%+v", g)
	}
	if math.Abs(g.RSSKiBPerMin-120) > 1e-6 || math.Abs(g.FDsPerMin) > 1e-9 || g.ThreadsPerMin != 0 {
		t.Errorf("slopes %+v, want 120 KiB, 0 and 0 a minute", g)
	}
	if g := growth("datanode1", all); g.Lives != 0 || g.RSSKiBPerMin != 0 {
		t.Errorf("a process that never was: %+v", g)
	}
}

// whole returns the journal of a good campaign.
func whole(s Setup) *Journal {
	j, err := OpenJournal("", s)
	if err != nil {
		panic(err) // nothing is opened
	}
	for _, step := range NewPlan(s.Seed, s.Kills).Steps {
		o := Outcome{Step: step, StallMS: 20, TookMS: 1500}
		if step.Kind == StopDaemon {
			o.Orphans, o.OrphanMS = 3, 1004
		}
		j.add(line{Outcome: &o})
	}
	j.add(line{Round: &Round{Load: "terasort", Number: 1, Seconds: 50}})
	j.add(line{Ending: &Ending{Last: len(j.outcomes), Seconds: 100, Files: 4, Clean: true}})
	return j
}

func TestAGoodCampaign(t *testing.T) {
	s := DefaultSetup(3, 40)
	r := Summarise(s, "test", whole(s))
	if !r.Good || r.Kills != 40 || r.Orphan.MS.Max != 1004 || r.Orphan.Held == 0 || r.Loads[0].Rounds != 1 {
		t.Errorf("%+v", r)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"seed 3", "40 kills", "kill-daemon", "max 1004", "GOOD: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	out.Reset()
	if err := r.Report().Write(&out, time.Unix(0, 0)); err != nil || !strings.Contains(out.String(), "40 kills under load: 0 findings") {
		t.Errorf("%v:\n%s", err, &out)
	}
}

// The verdict reports every problem; a figure just within its bound is good.
func TestTheVerdict(t *testing.T) {
	s := DefaultSetup(3, 40)
	first := func(j *Journal, k Kind) *Outcome {
		for i := range j.outcomes {
			if j.outcomes[i].Kind == k {
				return &j.outcomes[i]
			}
		}
		t.Fatalf("no %s in the plan", k)
		return nil
	}
	cases := []struct {
		name   string
		change func(*Journal)
		good   bool
	}{
		{"a finding", func(j *Journal) { j.add(line{Finding: "the data differ"}) }, false},
		{"a fault that was not done", func(j *Journal) { j.outcomes = j.outcomes[:len(j.outcomes)-1] }, false},
		{"checks that were not made", func(j *Journal) { j.endings[0].Clean = false }, false},
		{"no end", func(j *Journal) { j.endings = nil }, false},
		{"an end before the last fault", func(j *Journal) { j.endings[0].Last-- }, false},
		{"the longest wait that may be", func(j *Journal) { first(j, StopDaemon).OrphanMS = orphanMax }, true},
		{"a longer wait", func(j *Journal) { first(j, StopDaemon).OrphanMS = orphanMax + 1 }, false},
		{"the longest stall that may be", func(j *Journal) { first(j, KillDaemon).StallMS = stallMax }, true},
		{"a longer stall", func(j *Journal) { first(j, KillDaemon).StallMS = stallMax + 1 }, false},
		{"a longer stall on a machine that is no better", func(j *Journal) {
			first(j, KillDaemon).StallMS, first(j, Calm).StallMS = stallMax+1, stallMax
		}, true},
		{"a long stall by a dead DataNode", func(j *Journal) { first(j, KillDataNode).StallMS = 20_000 }, true},
		{"an operation that fails", func(j *Journal) { first(j, KillDaemon).Failed = []string{"x"} }, false},
		{"an operation that a dead DataNode fails", func(j *Journal) { first(j, KillDataNode).Failed = []string{"x"} }, true},
		{"a large daemon", func(j *Journal) {
			j.outcomes[0].Usage = []Usage{{Process: "daemon", PID: 1, RSSKiB: rssKiBMax + 1}}
		}, false},
		{"many descriptors", func(j *Journal) {
			j.outcomes[0].Usage = []Usage{{Process: "daemon", PID: 1, FDs: fdsMax + 1}}
		}, false},
		{"as many as may be", func(j *Journal) {
			j.outcomes[0].Usage = []Usage{{Process: "daemon", PID: 1, RSSKiB: rssKiBMax, FDs: fdsMax}}
		}, true},
	}
	for _, c := range cases {
		j := whole(s)
		c.change(j)
		if r := Summarise(s, "test", j); r.Good != c.good || r.Good != (len(r.Findings) == 0) {
			t.Errorf("%s: good is %v, findings %q", c.name, r.Good, r.Findings)
		}
	}
}

func TestTheProbesReports(t *testing.T) {
	at := func(s float64) time.Time { return time.UnixMicro(1_700_000_000_000_000 + int64(s*1e6)) }
	p := &probe{changed: make(chan struct{})}
	for _, e := range [][2]float64{{0, 1.5}, {2, 0.5}, {3, 2.5}, {9, 1}} { // start and length, s
		p.ops = append(p.ops, op{"read", at(e[0]), at(e[0] + e[1])})
	}
	p.trouble = []string{"one"}
	longest, n, failed := p.felt(at(1), at(5))
	if n != 3 || longest.took() != 2500*time.Millisecond || len(failed) != 1 {
		t.Errorf("felt %v of %d, failed %v", longest, n, failed)
	}
	// An operation that began before the window and ended in it is included. An operation that
	// ended before the window is dropped.
	if longest, n, failed = p.felt(at(5.2), at(6)); n != 1 || longest.begin != at(3) || failed != nil {
		t.Errorf("felt %v of %d, failed %v", longest, n, failed)
	}
}

func TestFsckReports(t *testing.T) {
	const lacks = "/f/part:  Under replicated BP-1-127.0.0.1-2:blk_3_4. Target Replicas is 10 but found %d live replica(s), 0 decommissioned replica(s), 0 decommissioning replica(s).\n"
	healthy := "Status: HEALTHY\n Missing blocks:\t\t0\n Corrupt blocks:\t\t0\n Under-replicated blocks:\t1 (0.9 %)\nThe filesystem under path '/' is HEALTHY"
	for _, good := range []string{healthy, fmt.Sprintf(lacks, 2) + healthy} {
		if err := checkReport(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "The filesystem under path '/' is CORRUPT",
		strings.Replace(healthy, "Missing blocks:\t\t0", "Missing blocks:\t\t1", 1),
		strings.Replace(healthy, "Corrupt blocks:\t\t0", "Corrupt blocks:\t\t12", 1),
		fmt.Sprintf(lacks, 2) + fmt.Sprintf(lacks, 1) + healthy,
	} {
		if checkReport(bad) == nil {
			t.Errorf("%q is healthy", bad)
		}
	}
}
