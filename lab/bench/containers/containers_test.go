package containers

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/lab/asroot"
	"penstock/lab/chart"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/hadoop"
	"penstock/lab/netns"
	"penstock/lab/stand"
	"penstock/ops/network"
)

func TestMain(m *testing.M) {
	network.RunIfWorker()
	asroot.Main(m, "Knee|Gain|Cause|Find|Accounts|Usage|Threads|Meter|Goals|Claims|Report|Validate|Rows|Submission|Clear|JSON")
}

func byName(all []claims.Claim) map[string]claims.Claim {
	named := map[string]claims.Claim{}
	for _, c := range all {
		named[c.Name] = c
	}
	return named
}

// change changes a job's result with joined connections and n containers.
func change(r Result, kind hadoop.Kind, n int, f func(*Job)) Result {
	for i := range r.Turns {
		if r.Turns[i].SetUp != Joined || r.Turns[i].Nodes != n {
			continue
		}
		r.Turns[i].Jobs = slices.Clone(r.Turns[i].Jobs)
		for j := range r.Turns[i].Jobs {
			if r.Turns[i].Jobs[j].Kind == kind {
				f(&r.Turns[i].Jobs[j])
			}
		}
	}
	return r
}

// Joining is compared at the knee and past it, where the worst number of containers counts.
func TestGoals(t *testing.T) {
	slower := func(by float64) func(*Job) {
		return func(j *Job) { j.RunS, j.MBPerSecond = j.RunS*by, j.MBPerSecond/by }
	}
	for name, c := range map[string]struct {
		bends  bool
		nodes  int // whose time is changed
		by     float64
		missed []string
	}{
		"equal":                       {true, 8, 1, nil},
		"just as slow as is allowed":  {true, 8, 1.02, nil},
		"slower past the knee":        {true, 6, 1.03, []string{"TeraSort past the knee: time, joined / nat", "TeraSort past the knee: throughput, joined / nat"}},
		"slower at the knee":          {true, 4, 1.03, []string{"TeraSort at the knee: time, joined / nat", "TeraSort at the knee: throughput, joined / nat"}},
		"slower before the knee":      {true, 2, 1.5, nil},
		"faster past the knee":        {true, 6, 0.5, nil},
		"slower, and there is none":   {false, 8, 1.03, []string{"TeraSort with the most containers: time, joined / nat", "TeraSort with the most containers: throughput, joined / nat"}},
		"slower with fewer than most": {false, 4, 1.5, nil},
	} {
		var missed []string
		goals := 0
		for _, claim := range change(invented(DefaultSetup(), c.bends), hadoop.TeraSort, c.nodes, slower(c.by)).claims() {
			if claim.Met != nil {
				if goals++; !*claim.Met {
					missed = append(missed, claim.Name)
				}
			}
		}
		if !slices.Equal(missed, c.missed) {
			t.Errorf("%s: missed %q, want %q", name, missed, c.missed)
		}
		if want := map[bool]int{true: 16, false: 8}[c.bends]; goals != want {
			t.Errorf("%s: %d claims have goals, want %d", name, goals, want)
		}
	}
}

// Figures of different runs are not compared, and runs of one row do not count for another.
func TestClaimsCompareWithinARun(t *testing.T) {
	r := invented(DefaultSetup(), true)
	for i := range r.Turns {
		if r.Turns[i].SetUp == Joined {
			r.Turns[i].Run = 2
		}
	}
	for name, c := range byName(r.claims()) {
		if strings.Contains(name, "joined / nat") {
			t.Errorf("%+v", c)
		}
	}
	// With three runs of one row, its claim has an interval.
	r = invented(DefaultSetup(), true)
	for run, s := range map[int]float64{2: 30, 3: 20} {
		turn := r.Turns[4] // 4-nat
		turn.Run, turn.Jobs = run, slices.Clone(turn.Jobs)
		turn.Jobs[0].RunS = s
		r.Turns = append(r.Turns, turn)
	}
	if c := byName(r.claims())["TestDFSIO write, nat: time with 4 containers"]; c.Runs != 3 || c.Value != 25 || c.Low != 20 || c.High != 30 {
		t.Errorf("%+v", c)
	}
	if c := byName(r.claims())["TeraGen, joined: knee"]; c.Value != 4 || c.Unit != "containers" {
		t.Errorf("%+v", c)
	}
}

func TestKnownClaims(t *testing.T) {
	known := byName(KnownClaims())
	if len(known) != len(KnownClaims()) {
		t.Error("a name is listed twice")
	}
	for _, bends := range []bool{true, false} {
		for _, c := range invented(DefaultSetup(), bends).claims() {
			if k, ok := known[c.Name]; !ok || k.Unit != c.Unit || (k.Goal == nil) != (c.Goal == nil) {
				t.Errorf("%+v is not known: %+v", c, k)
			}
		}
	}
	if got := newResult(DefaultSetup(), nil).claims(); got != nil {
		t.Errorf("claims without a turn: %v", got)
	}
}

func TestReport(t *testing.T) {
	seen := map[chart.Colour]string{}
	for _, name := range SetUps {
		colour, ok := colours[name]
		if other := seen[colour]; !ok || other != "" {
			t.Errorf("%s has the colour of %q", name, other)
		}
		seen[colour] = name
	}
	r := invented(DefaultSetup(), true)
	r.Setup.BridgeFilter = false
	var page, table strings.Builder
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TestDFSIO write gains little from more than 4 containers; cause: none of these", "Figures 6 and 8: time", "p99", "at most 1.02", "at least 0.98"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if n := strings.Count(page.String(), "<svg"); n < len(columns) {
		t.Errorf("%d charts", n)
	}
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TeraSort, 256 MiB", "the paper, on a physical machine: the time falls with more containers, but not linearly", "linear up to 16 containers", "TeraSort, joined: the knee is at 4",
		"less than 25 % throughput", "not translated"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	// A measurement that has just begun has a table and a page, too.
	r.Turns = r.Turns[:1]
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil {
		t.Error(err)
	}
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	if err := invented(DefaultSetup(), true).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Setup    Setup
		Turns    []Turn
		Claims   []claims.Claim
		Findings []Finding
	}
	if err := json.Unmarshal([]byte(out.String()), &doc); err != nil || len(doc.Turns) != 10 || len(doc.Claims) == 0 || len(doc.Findings) != 8 || doc.Findings[0].Knee != 4 ||
		doc.Setup.Rate != 8*megabyte || doc.Turns[0].Jobs[3].Kind != hadoop.TeraSort {
		t.Errorf("%v: %+v", err, doc)
	}
}

func TestRows(t *testing.T) {
	s := DefaultSetup()
	s.Nodes = []int{1, 4}
	if got := s.Rows(); !slices.Equal(got, []string{"1-nat", "1-joined", "4-nat", "4-joined"}) {
		t.Errorf("%q", got)
	}
	if replication(1) != 1 || replication(2) != 2 || replication(32) != 2 {
		t.Error("replicas")
	}
}

func TestValidate(t *testing.T) {
	good := Request{RowsRequest: experiment.RowsRequest[Setup]{Setup: DefaultSetup(), TableRequest: experiment.TableRequest{Runs: 1}}}
	good.Setup.Machine.MemoryBytes = otherMemory + 8*nodeMemory
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Request){
		"no runs": func(q *Request) { q.Runs = 0 }, "no numbers": func(q *Request) { q.Setup.Nodes = nil },
		"none": func(q *Request) { q.Setup.Nodes = []int{0, 1} }, "a number twice": func(q *Request) { q.Setup.Nodes = []int{2, 2} },
		"no order": func(q *Request) { q.Setup.Nodes = []int{4, 2} }, "too little memory": func(q *Request) { q.Setup.Machine.MemoryBytes-- },
		"too many": func(q *Request) { q.Setup.Nodes, q.Setup.Machine.MemoryBytes = []int{maxNodes + 1}, 1<<40 },
		"slow":     func(q *Request) { q.Setup.Rate = minRate - 1 }, "fast": func(q *Request) { q.Setup.Rate = maxRate + 1 },
		"small": func(q *Request) { q.Setup.Bytes = minBytes - 1 }, "large": func(q *Request) { q.Setup.Bytes = maxBytes + 1 },
		"an unknown Hadoop": func(q *Request) { q.Setup.Hadoop = "0.1" },
	} {
		q := good
		if change(&q); q.Validate() == nil {
			t.Errorf("%s: no error", what)
		}
	}
	q := good
	q.Setup.Nodes, q.Setup.Machine.MemoryBytes = []int{1, maxNodes}, 1<<40
	q.Setup.Rate, q.Setup.Bytes = maxRate, maxBytes
	if err := q.Validate(); err != nil {
		t.Errorf("all at their upper bounds: %v", err)
	}
}

// The jobs move the same number of bytes with each number of containers, up to what a division leaves.
func TestSubmission(t *testing.T) {
	s := DefaultSetup()
	for _, n := range []int{1, 2, 6, 8, 32} {
		for _, w := range works {
			j := s.submission(w.kind, n)
			if got := moved(j, s); got > s.Bytes || got < s.Bytes-100 {
				t.Errorf("%s with %d containers moves %d bytes", w.kind, n, got)
			}
			if j.Maps != n || j.Queue != queue {
				t.Errorf("%+v", j)
			}
		}
	}
	if j := s.submission(hadoop.TeraSort, 4); j.Reduces != 4 || j.Input != rowsDir || j.Output != sortedDir || j.Settings["dfs.replication"] != "2" {
		t.Errorf("%+v", j)
	}
	if (Job{SwitchesPerSecond: 10}).SwitchesPerMB() != 0 || (Job{SwitchesPerSecond: 10, MBPerSecond: 4}).SwitchesPerMB() != 2.5 {
		t.Error("switches per MB")
	}
}

// Logs of a failed turn stay, with its name; those of others stay only if they are wanted.
func TestClear(t *testing.T) {
	dir := t.TempDir()
	logs, key := filepath.Join(dir, "hadoop", "logs"), experiment.RowTurn{Row: "2-nat", Run: 1}
	kept := filepath.Join(dir, "logs-2-nat-1", "nn.log")
	for _, c := range []struct{ failed, keep, remain bool }{{false, false, false}, {true, false, true}, {false, true, true}} {
		if err := os.MkdirAll(logs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(logs, "nn.log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var q Request
		q.KeepLogs = c.keep
		if err := q.clear(dir, key, c.failed); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(kept); (err == nil) != c.remain {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := os.Stat(logs); err == nil {
			t.Errorf("%+v: the next turn finds the logs of this one", c)
		}
	}
	var q Request
	if err := q.clear(t.TempDir(), key, true); err != nil {
		t.Errorf("a turn whose Hadoop was not started: %v", err)
	}
}

// The network of a turn, without Hadoop: round trips between two containers are measured, and joined in one set-up only.
func TestNetworkOfATurn(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run") // as in a measurement, all turns use one folder
	for _, setUp := range []string{NAT, Joined} {
		m := &machine{setup: DefaultSetup(), row: Row{2, setUp}}
		m.Stand, err = stand.Up(t.Context(), stand.Spec{Name: "containers", Dir: dir, Binary: own, AgentJar: own, Cache: dir, Machines: m.row.Nodes + 1, Prepare: m.prepare, Stop: m.stop})
		if err != nil {
			t.Fatal(err)
		}
		err := m.connect(t.Context(), []string{"198.18.0.1:1234"})
		if err == nil {
			err = m.probe.Begin(5 * time.Millisecond)
		}
		if err == nil {
			err = m.meter.start(20 * time.Millisecond)
		}
		if err != nil {
			t.Fatalf("%v, %v", err, m.Down())
		}
		m.reach(t)
		time.Sleep(300 * time.Millisecond) // the trips of this time are counted
		u, _, err := m.meter.end()
		if err != nil || !(u.Seconds > 0.2) {
			t.Errorf("%+v, %v", u, err)
		}
		trip, err := m.probe.End()
		if err != nil || trip.Trips < 2 {
			t.Errorf("%+v, %v", trip, err)
		}
		if joined := m.joinedBytes() > 0; joined != (setUp == Joined) {
			t.Errorf("%s: joined %v", setUp, joined)
		}
		group := m.group.Path
		if _, err := os.Stat(group); err != nil {
			t.Error(err)
		}
		if err := m.Down(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(group); err == nil {
			t.Errorf("%s is left", group)
		}
	}
}

// reach connects as Hadoop and this process do. The masters must see a node's own address, by which it registers. Nodes see
// the router's, if the kernel translates addresses on a bridge.
func (m *machine) reach(t *testing.T) {
	t.Helper()
	a, b := m.Network.Machines[0], m.Network.Machines[1]
	translated := b.Address
	if m.setup.BridgeFilter {
		translated = m.router.Address
	}
	for _, c := range []struct {
		what   string
		server *netns.Machine
		dial   func(context.Context, string) (net.Conn, error)
		from   netip.Addr // that the server sees; zero: any
	}{
		{"a node and a master", m.router, b.Dial, b.Address},
		{"a master and a node", a, m.router.Dial, m.router.Address},
		{"two nodes", a, b.Dial, translated},
		{"this process and a master", m.router, dialHere, netip.Addr{}},
		{"this process and a node", a, dialHere, netip.Addr{}},
	} {
		l, err := c.server.Listen(t.Context(), c.server.Address.String()+":0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		client, err := c.dial(ctx, l.Addr().String())
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if from := server.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); c.from.IsValid() && from != c.from {
			t.Errorf("%s: the server sees %v, want %v", c.what, from, c.from)
		}
		if _, err := client.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if n, err := server.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%s: %d bytes, %v", c.what, n, err)
		}
		for _, end := range []interface{ Close() error }{client, server, l} {
			end.Close()
		}
	}
}

func dialHere(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}
