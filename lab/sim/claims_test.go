package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/settings"
)

func played(t *testing.T, s *Scenario, seed uint64) *Result {
	t.Helper()
	r, err := s.Play(seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestVirtualDatanodes: schedulers that share a disk without knowledge of each other cannot enforce
// weights; a single scheduler for the disk can (IBIS, section 9). A hard disk does not even divide
// its time equally, because it prefers the stream at the position of its head.
func TestVirtualDatanodes(t *testing.T) {
	for seed := range uint64(3) {
		each := played(t, load(t, "scenarios/virtual-datanodes.yaml"), seed+1)
		one := played(t, load(t, "scenarios/virtual-datanodes-cured.yaml"), seed+1)
		t.Logf("seed %d: misplaced with a scheduler in each %.3f, with one for the disk %.4f", seed+1, each.Misplaced, one.Misplaced)
		if each.Misplaced < 10*one.Misplaced || each.Misplaced < 0.2 {
			t.Error("with a scheduler in each datanode, at least ten times as much service should be misplaced")
		}
	}
}

// TestCoordinationLessensSlowdowns: coordination reduces the average slowdown (IBIS, section 7.6).
// The paper reports a reduction of 25 percentage points.
func TestCoordinationLessensSlowdowns(t *testing.T) {
	s := load(t, "scenarios/slowdown.yaml")
	var points []float64
	for seed := range uint64(3) {
		r := played(t, s, seed+1)
		gain := r.Average(wayLocal) - r.Average(wayCoordinated)
		t.Logf("seed %d: average slowdown %.2f with local shares, %.2f coordinated: %.0f points better", seed+1, r.Average(wayLocal), r.Average(wayCoordinated), 100*gain)
		points = append(points, gain)
	}
	if median(points) < 0.08 {
		t.Errorf("the median gain is %.3f", median(points))
	}
}

// TestWithoutTotalsNothingConverges: without the broker, the shares in convergence.yaml are not
// right again after a change.
func TestWithoutTotalsNothingConverges(t *testing.T) {
	s := load(t, "scenarios/convergence.yaml")
	s.Exchange.Off = true
	r := played(t, s, 1)
	if len(r.Changes) != 6 || r.Good {
		t.Fatalf("%d changes, good %v", len(r.Changes), r.Good)
	}
	for _, c := range r.Changes {
		if c.Converged >= 0 {
			t.Errorf("%s: converged after %g s with local shares", c.What, c.Converged)
		}
	}
}

// TestSessionsOfBrokers: a standby takes over after the session, and not before two thirds of it.
// Without a standby there is no new broker.
func TestSessionsOfBrokers(t *testing.T) {
	s := load(t, "scenarios/fail-over.yaml")
	for _, standby := range []bool{true, false} {
		if !standby {
			s.Exchange.Session = 0
		}
		p, err := newPlay(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := p.cluster
		c.Run(30*time.Second + 6*time.Second)
		if !c.broker.down {
			t.Error("a standby leads after 6 s of a session of 10 s")
		}
		c.Run(41 * time.Second)
		if c.broker.down == standby {
			t.Errorf("a second after the session: down %v, standby %v", c.broker.down, standby)
		}
	}
}

// TestSettling: the totals of one broker among several count as complete later than the totals of a
// single broker.
func TestSettling(t *testing.T) {
	s := load(t, "scenarios/fail-over.yaml")
	for _, c := range []struct{ session, settles time.Duration }{{10 * time.Second, 5 * time.Second}, {0, 2 * time.Second}} {
		s.Exchange.Session = settings.Duration(c.session)
		p, err := newPlay(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.cluster.Run(c.settles - time.Millisecond)
		before := p.cluster.settled() || slices.ContainsFunc(p.cluster.nodes, func(n *node) bool { return n.inForce })
		p.cluster.Run(c.settles + 2*time.Second)
		after := p.cluster.settled() && !slices.ContainsFunc(p.cluster.nodes, func(n *node) bool { return !n.inForce })
		if before || !after {
			t.Errorf("session %v: parts are in force before %v: %v; on all nodes 2 s later: %v", c.session, c.settles, before, after)
		}
	}
}

// TestReplayOnAnyMachine: the result is identical in every byte with any number of processors.
func TestReplayOnAnyMachine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, file := range []string{"changes", "fail-over", "swim"} {
		var first []byte
		for _, processors := range []int{1, 4} {
			runtime.GOMAXPROCS(processors)
			s := load(t, "scenarios/"+file+".yaml")
			s.Length = min(s.Length, s.Length/2+1)
			if len(s.Traces) > 0 {
				s.Traces[0].Jobs = 20
			}
			text, err := json.Marshal(played(t, s, 11))
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = text
			} else if !bytes.Equal(first, text) {
				t.Errorf("%s: a different result with %d processors", file, processors)
			}
		}
	}
}

// oneJob plays a job on six nodes to its end. It returns the cluster, its yarn and the job's run
// time.
func oneJob(t *testing.T, w *work, events []EventSpec) (*Cluster, *yarn, time.Duration) {
	t.Helper()
	s := &Scenario{Nodes: []NodeSpec{{Count: 6}}, Jobs: []JobSpec{{Name: "j", Input: 1}}, Events: events}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	app := &App{Name: "j", Weight: 1}
	c := newCluster(1, s.exchange(), []*App{app})
	if err := c.populate(s); err != nil {
		t.Fatal(err)
	}
	y := newYarn(c, s.MapReduce, 1)
	took := time.Duration(0)
	y.add(w, app, 0, 1, func(end time.Duration) { took = end })
	for _, ev := range events {
		c.At(time.Duration(ev.At), func() {
			c.happen(ev)
			y.happen(ev)
		})
	}
	c.Run(time.Hour)
	if took == 0 {
		t.Fatal("the job has not ended in an hour")
	}
	for at, free := range y.free {
		if free != s.MapReduce.Slots {
			t.Errorf("%d slots are free on node %d at the end", free, at)
		}
	}
	return c, y, took
}

// TestBytesOfAJob: a job reads and writes every byte as often as MapReduce does.
func TestBytesOfAJob(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		work          work
		read, written int64
	}{
		"sort":                  {work{maps: 32, input: 4 * gib, shuffle: 2 * gib, output: gib, reduces: 16}, 6 * gib, 5 * gib},
		"few reduces merge":     {work{maps: 32, input: 4 * gib, shuffle: 2 * gib, output: gib, reduces: 4}, 8 * gib, 7 * gib},
		"maps only":             {work{maps: 8, input: gib, output: 2 * gib}, gib, 6 * gib},
		"generated":             {work{maps: 10, output: gib + 7}, 0, 3 * (gib + 7)},
		"nothing to write":      {work{maps: 3, input: 1000, shuffle: 10, reduces: 2}, 1010, 10},
		"more reduces than any": {work{maps: 1, input: 5, shuffle: 2, output: 1, reduces: 4}, 7, 2 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := oneJob(t, &test.work, nil)
			if a := c.apps[0]; a.read != test.read || a.written != test.written {
				t.Errorf("read %d, written %d, want %d and %d", a.read, a.written, test.read, test.written)
			}
		})
	}
}

// TestJobsOutliveNodes: the tasks and the maps' output on a node that leaves are lost. The job
// still ends, but later.
func TestJobsOutliveNodes(t *testing.T) {
	w := work{maps: 64, input: 8 << 30, shuffle: 8 << 30, output: 4 << 30, reduces: 16}
	whole, _, took := oneJob(t, &w, nil)
	two := 2
	for part := 1; part < 10; part++ {
		at := took * time.Duration(part) / 10
		events := []EventSpec{{Leave: &two}, {Join: &two}}
		events[0].At, events[1].At = settings.Duration(at), settings.Duration(at+20*time.Second)
		lost, _, longer := oneJob(t, &w, events)
		if lost.apps[0].read <= whole.apps[0].read || longer < took*9/10 {
			t.Errorf("a node lost at %v: %d bytes read, %d without; %v and %v", at, lost.apps[0].read, whole.apps[0].read, longer, took)
		}
	}
}

// TestTasksGoWhereTheirBlocksAre: maps run on nodes with their blocks as long as these nodes have
// slots.
func TestTasksGoWhereTheirBlocksAre(t *testing.T) {
	w := work{maps: 48, input: 48 << 20, shuffle: 48 << 20, reduces: 1}
	s := &Scenario{Nodes: []NodeSpec{{Count: 6}}, Jobs: []JobSpec{{Name: "j", Input: 1}}}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	c := newCluster(1, s.exchange(), []*App{{Name: "j", Weight: 1}})
	if err := c.populate(s); err != nil {
		t.Fatal(err)
	}
	y := newYarn(c, s.MapReduce, 1)
	y.add(&w, c.apps[0], 0, 1, func(time.Duration) {})
	c.Run(0)
	local, all := 0, 0
	for _, t := range y.jobs[0].maps {
		if t.state == running {
			all++
			if y.source(t) == t.at {
				local++
			}
		}
	}
	if all != 48 || local < 40 {
		t.Errorf("%d of %d maps run on a node with their block", local, all)
	}
}

func TestWrongScenariosOfJobs(t *testing.T) {
	s := load(t, "scenarios/swim.yaml")
	if err := s.Trace("testdata/none.tsv"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Play(1, nil); err == nil || !strings.Contains(err.Error(), "traces[0]: testdata/none.tsv: no such file or folder") {
		t.Errorf("a file that does not exist: %v", err)
	}
	s.Traces[0].File = ""
	if _, err := s.Play(1, nil); err == nil || !strings.Contains(err.Error(), "--trace") {
		t.Errorf("no file: %v", err)
	}
	if err := load(t, "scenarios/ten-nodes.yaml").Trace("x"); err == nil {
		t.Error("a scenario without traces accepts a trace")
	}
}

// TestClaims: the claims in --json have the scenario's goals and, for a trace, the goal of IBIS.
func TestClaims(t *testing.T) {
	shares, local, jobs, trace := &Scenario{Title: "t", Expect: ExpectSpec{Misplaced: 0.03}}, &Scenario{Title: "t", Expect: ExpectSpec{Misplaced: 0.1, AtLeast: true}},
		&Scenario{Title: "t", MapReduce: MapReduceSpec{Play: []string{wayAlone, wayFIFO, wayCoordinated}}}, &Scenario{Title: "t", Traces: []TraceSpec{{}}}
	trace.MapReduce = jobs.MapReduce
	windows := &Result{Misplaced: 0.02, Judged: 2, Windows: []Window{{Misplaced: 0.9}, {Misplaced: 0.01, Judged: true}, {Misplaced: 0.04, Judged: true}}}
	slow := &Result{Summaries: []Summary{{Way: wayAlone, Of: average, SlowdownMean: 1}, {Way: wayFIFO, Of: average, SlowdownMean: 6},
		{Way: wayCoordinated, Of: "sort", SlowdownMean: 9}, {Way: wayCoordinated, Of: average, SlowdownMean: 1.3}}}
	for _, c := range []struct {
		scenario *Scenario
		result   *Result
		want     []string // name, value, low and high; goal and verdict
	}{
		{shares, windows, []string{"t: disk time misallocated 2 1 4 goal 3 true"}},
		{local, windows, []string{"t: disk time misallocated 2 1 4"}},
		{jobs, slow, []string{"t: mean slowdown, fifo 6 6 6", "t: mean slowdown, coordinated 1.3 1.3 1.3"}},
		{trace, slow, []string{"t: mean slowdown, fifo 6 6 6", "t: mean slowdown, coordinated 1.3 1.3 1.3 goal 1.2 false"}},
		{shares, &Result{}, nil},
	} {
		var got []string
		for _, claim := range c.scenario.Claims(c.result) {
			text := fmt.Sprint(claim.Name, " ", claim.Value, " ", claim.Low, " ", claim.High)
			if claim.Goal != nil {
				text += fmt.Sprint(" goal ", *claim.Goal, " ", *claim.Met)
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
