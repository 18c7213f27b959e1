package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/asroot"
	"penstock/lab/chart"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/ledger"
	"penstock/ops/network"
)

func TestMain(m *testing.M) {
	network.RunIfWorker()
	asroot.Main(m, "Goals|Claims|Report|Validate|Runs")
}

// met is a result in which every goal of the remedy is just met.
func met() Result {
	r := invented(DefaultSetup(), network.Host, network.Bridge, network.BridgeFilter, network.BridgeNAT, Runc, network.Joined)
	for i := range r.Turns {
		t := &r.Turns[i]
		for j := range t.Streams {
			switch t.SetUp {
			case network.Joined:
				t.Streams[j] = network.Stream{Way: t.Streams[j].Way, MBPerSecond: 2000, MachineCPU: 0.7, ThreadsCPU: 0.5}
			default:
				t.Streams[j] = network.Stream{Way: t.Streams[j].Way, MBPerSecond: 1000, MachineCPU: 1, ThreadsCPU: 0.8}
			}
		}
		for j := range t.Trips {
			x := &t.Trips[j]
			us := map[string]float64{network.Host: 12 / 1.15, network.Joined: 12}[t.SetUp]
			if us == 0 {
				us = 20
			}
			x.MeanUS, x.P50US, x.P99US, x.RunDelayUS = us*float64(x.Pairs), us, 2*us, us*float64(x.Pairs-1)
		}
	}
	return r
}

func TestGoals(t *testing.T) {
	goals := 0
	for _, c := range met().claims() {
		if c.Met != nil {
			if goals++; !*c.Met {
				t.Errorf("missed: %+v", c)
			}
		}
	}
	if goals != 3*4+6+1 {
		t.Errorf("%d claims have goals", goals)
	}
	change := func(part network.Part, f func(*Turn)) func(*Result) {
		return func(r *Result) {
			for i := range r.Turns {
				if r.Turns[i].Part == part && r.Turns[i].SetUp == network.Joined {
					f(&r.Turns[i])
				}
			}
		}
	}
	for name, worse := range map[string]func(*Result){
		"joined: p50 of round trips / bridge-nat":                     change(network.PartTrips, func(t *Turn) { t.Trips[0].P50US = 12.1 }),
		"joined: p50 of round trips / host":                           change(network.PartTrips, func(t *Turn) { t.Trips[0].P50US = 12.1 }),
		"joined: p99 of round trips / host":                           change(network.PartTrips, func(t *Turn) { t.Trips[0].P99US = 24.1 }),
		"joined: p99 of round trips, CPUs kept awake / host":          change(network.PartAwake, func(t *Turn) { t.Trips[0].P99US = 24.1 }),
		"joined: throughput, both / bridge-nat":                       change(network.PartStreams, func(t *Turn) { t.Streams[2].MBPerSecond = 1999 }),
		"joined: CPU time per byte, transmit / bridge-nat":            change(network.PartStreams, func(t *Turn) { t.Streams[0].MachineCPU = 0.71 }),
		"joined: mean round trip of 16 pairs on one CPU / bridge-nat": change(network.PartPairs, func(t *Turn) { t.Trips[4].MeanUS = 193 }),
	} {
		r := met()
		worse(&r)
		found := false
		for _, c := range r.claims() {
			if c.Name == name {
				found = true
				if c.Met == nil || *c.Met {
					t.Errorf("%s: still met: %+v", name, c)
				}
			}
		}
		if !found {
			t.Errorf("no claim %q", name)
		}
	}
}

// Without the remedy, no claim has a goal.
func TestClaimsWithoutTheCure(t *testing.T) {
	r := met()
	var rest []Turn
	for _, turn := range r.Turns {
		if turn.SetUp != network.Joined {
			rest = append(rest, turn)
		}
	}
	byName := map[string]claims.Claim{}
	for _, c := range newResult(r.Setup, rest).claims() {
		byName[c.Name] = c
		if c.Met != nil || strings.Contains(c.Name, network.Joined) {
			t.Errorf("%+v", c)
		}
	}
	for name, want := range map[string]float64{"tcp: what rules and translation add to the mean round trip of one pair on one CPU": 0, "transmit, bridge-nat: CPU time per byte / host": 1,
		"pairs, bridge-nat: mean round trip of 32 on one CPU": 640, "pairs, bridge: part of the growth that is delay in the run queue": 1} {
		if c, ok := byName[name]; !ok || c.Value != want {
			t.Errorf("%s: %+v, want %v", name, c, want)
		}
	}
}

// Figures of different runs are not compared.
func TestRunsAreNotMixed(t *testing.T) {
	r := met()
	for i := range r.Turns {
		if r.Turns[i].SetUp == network.BridgeNAT {
			r.Turns[i].Run = 2
		}
	}
	for _, c := range r.claims() {
		if strings.HasSuffix(c.Name, "/ bridge-nat") || strings.HasPrefix(c.Name, "transmit, bridge-nat: CPU") {
			t.Errorf("%+v", c)
		}
	}
}

func TestKnownClaims(t *testing.T) {
	known := map[string]claims.Claim{}
	for _, c := range KnownClaims() {
		known[c.Name] = c
	}
	for _, c := range met().claims() {
		if k, ok := known[c.Name]; !ok || k.Unit != c.Unit || (k.Goal == nil) != (c.Goal == nil) {
			t.Errorf("%+v is not known: %+v", c, k)
		}
	}
}

func TestReport(t *testing.T) {
	seen := map[chart.Colour]string{}
	for _, name := range setUpNames() {
		colour, ok := colours[name]
		if other := seen[colour]; !ok || other != "" {
			t.Errorf("%s has the colour of %q", name, other)
		}
		seen[colour] = name
	}
	var page, table strings.Builder
	r := met()
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Bridge and NAT add 9.6 us to a round trip", "Figure 3: throughput", "each container with 1000 operations", "at most 1.15"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the paper: Docker's layer adds about 5 us", "joined ", "N = 32", "while each container performs 1000 operations per minute"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Request{Setup: DefaultSetup(), TableRequest: experiment.TableRequest{Runs: 1}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Request){"no runs": func(q *Request) { q.Runs = 0 }, "no pairs": func(q *Request) { q.Setup.Pairs = nil }} {
		q := good
		if change(&q); q.Validate() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// Each row runs, and a further measurement takes the finished turns from the journal.
func TestPerform(t *testing.T) {
	q := Request{Setup: DefaultSetup(), TableRequest: experiment.TableRequest{Rows: []string{"streams-bridge", "trips-host", "pairs-bridge-nat", "streams-runc", "streams-joined", "trips-joined", "pairs-joined"}, Runs: 1,
		Resume: filepath.Join(t.TempDir(), "journal"), Dir: filepath.Join(t.TempDir(), "run"), Progress: t.Logf}}
	q.Setup.WarmUpS, q.Setup.MeasuredS, q.Setup.Pairs = 0.1, 0.3, []int{1, 2}
	first, err := Perform(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Turns) != 7 || len(first.Turns[0].Streams) != 3 || len(first.Turns[1].Trips) != 2 || len(first.Turns[2].Trips) != 2 || len(first.Turns[3].Streams) != 3 {
		t.Fatalf("%+v", first.Turns)
	}
	before, err := os.ReadFile(q.Resume)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Perform(t.Context(), q)
	if err != nil || len(again.Turns) != 7 || again.Turns[0].String() != first.Turns[0].String() {
		t.Errorf("%+v, %v", again.Turns, err)
	}
	if after, err := os.ReadFile(q.Resume); err != nil || string(after) != string(before) {
		t.Errorf("the journal has changed: %v", err)
	}
	var out strings.Builder
	if err := first.WriteJSON(&out); err != nil || !strings.Contains(out.String(), `"bridge_netfilter"`) || !strings.Contains(out.String(), "tcp, host: median round trip") {
		t.Errorf("%v:\n%s", err, &out)
	}
}

// The error names the missing program and the rows that need it.
func TestRunsWithoutRunc(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, _, err := realContainers(nil, t.TempDir()).Launch(exec.Command("true"))
	if err == nil || !strings.Contains(err.Error(), "install the package runc") || !strings.Contains(err.Error(), "*-runc") {
		t.Error(err)
	}
}

// After a row with containers, neither a container nor a control group remains.
func TestContainersAreRemoved(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	groups, err := cgroups("")
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		for _, g := range groups {
			found, err := filepath.Glob(filepath.Join(g, fmt.Sprintf("penstock-lab-%d-*", os.Getpid())))
			if err != nil {
				t.Fatal(err)
			}
			n += len(found)
		}
		return n
	}
	setUp := realContainers(book, dir)
	during := 0
	setUp.Accelerate = func(context.Context, *network.Site) (func() error, error) {
		during = count()
		return nil, errors.New("a failure")
	}
	if _, err := network.NewSite(t.Context(), setUp, 1); err == nil || !strings.Contains(err.Error(), "a failure") {
		t.Error(err)
	}
	if after := count(); during < 2 || after > 0 {
		t.Errorf("%d control groups of containers, and then %d", during, after)
	}
	left, err := filepath.Glob(filepath.Join(dir, "runc", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := book.Close(); err != nil {
		t.Error(err)
	}
}
