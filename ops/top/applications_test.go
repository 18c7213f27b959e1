package top

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"penstock/node/status"
	"penstock/ops/screen"
)

var update = flag.Bool("update", false, "write the golden screens")

// moments are the documents of half a minute: a WordCount of weight 32 reads two disks; after ten
// seconds a TeraGen of weight 1 begins to write, in observe mode, so nothing holds it back.
func moments() (docs []*status.Document) {
	flow := func(name string, weight int, share, due float64, read, written, backlog int64, queued int) status.Flow {
		return status.Flow{Name: name, Weight: weight, Mode: "observe", Queued: queued, BacklogBytes: backlog, Streams: 2,
			Window: status.FlowWindow{Active: share > 0, Share: share, Entitlement: due, Bytes: status.Pair{Read: read, Written: written}, Waits: 12}}
	}
	disk := func(name string, flows ...status.Flow) status.Device {
		return status.Device{Name: name, Answered: true, Algorithm: "sfqd2", Depth: 2, DepthMax: 12, Kernel: status.Kernel{Counted: true}, SlowFactor: 1,
			LatencyNS: 240e6, ReferenceNS: 250e6, Outstanding: 2, Window: status.Window{Seconds: 5, Utilisation: 0.98}, Flows: flows}
	}
	const count, teragen = "application_1795310741618_0001", "application_1795310741618_0002"
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for second := range 31 {
		doc := &status.Document{Version: 1, Mode: "observe", Heartbeat: status.Heartbeat{Alive: true}, Agents: make([]status.Agent, 2),
			Time: start.Add(time.Duration(second) * time.Second)}
		for _, name := range []string{"sda", "sdb"} {
			if second < 10 {
				doc.Devices = append(doc.Devices, disk(name, flow(count, 32, 1, 1, 50*mb, 0, 0, 0), flow("clients", 1, 0, 0, 0, 0, 0, 0)))
				continue
			}
			doc.Devices = append(doc.Devices, disk(name, flow(count, 32, 0.3, 0.97, 15*mb, 0, 0, 2),
				flow(teragen, 1, 0.7, 0.03, 0, 40*mb, 30<<20, 4), flow("clients", 1, 0, 0, 0, 0, 0, 0)))
			d := &doc.Devices[len(doc.Devices)-1]
			d.BacklogBytes = 30 << 20
			d.ForeignUsers = status.ForeignUsers{Seconds: 5, Top: []status.ForeignUser{{Name: "fio", PID: 812, Cgroup: "/system.slice/fio.service", Owner: status.Owner{Kind: "unit", ID: "fio.service", Short: "fio.service"}, Window: status.Pair{Read: 2 * mb}}}}
		}
		doc.Connections = status.Connections{Seconds: 5, Ports: []uint16{9866}, Established: 3, Top: []status.Connection{
			{Server: "10.0.0.7:9866", Client: "10.0.0.7:41822", Flow: teragen, Direction: "write", Block: "blk_1073741866", Streaming: true, ReceivedRate: 16 * mb / 5, RTTNS: 61e3},
			{Server: "10.0.0.7:9866", Client: "10.0.0.8:50114", Flow: count, Direction: "read", Block: "blk_1073741831", Streaming: true, SentRate: 6 * mb / 5, RTTNS: 180e3},
			{Server: "10.0.0.7:9866", Client: "10.0.0.9:50230", RTTNS: 210e3},
		}}
		group := func(flow string, o status.Owner, processes int, read, written, disk, cpu float64) status.ProcessGroup {
			return status.ProcessGroup{Flow: flow, Owner: o, Processes: processes, Window: status.ProcessWindow{
				Bytes: status.Pair{Read: int64(5 * read * mb), Written: int64(5 * written * mb)}, BlockDelayNS: int64(5e9 * disk), RunDelayNS: int64(5e9 * cpu)}}
		}
		doc.Processes = status.Processes{Seconds: 5, BlockDelayCounted: true, Top: []status.ProcessGroup{
			group(teragen, status.Owner{Kind: "yarn", Short: teragen + " 000003"}, 2, 0, 0.1, 0.02, 0.31),
			group(count, status.Owner{Kind: "yarn", Short: count + " 000002"}, 2, 1.1, 0.4, 0.84, 0.12),
			group("", status.Owner{Kind: "unit", Short: "fio.service"}, 1, 0.4, 0, 0.95, 0)}}
		p99 := func(o status.Owner, read, write float64) status.OwnerLatency {
			return status.OwnerLatency{Owner: o, Window: status.LatencyWindow{Read: status.Latency{P99NS: int64(1e6 * read)}, Write: status.Latency{P99NS: int64(1e6 * write)}}}
		}
		groups := doc.Processes.Top
		doc.Devices[0].Latencies = status.Latencies{Seconds: 5, Top: []status.OwnerLatency{p99(groups[1].Owner, 212, 0), p99(groups[0].Owner, 0, 148)}}
		doc.Devices[1].Latencies = status.Latencies{Seconds: 5, Top: []status.OwnerLatency{p99(groups[1].Owner, 96, 240)}}
		docs = append(docs, doc)
	}
	return docs
}

// The screens are compared with files, which docs/reference/top.md shows.
func TestScreens(t *testing.T) {
	manual, err := os.ReadFile("../../docs/reference/top.md")
	if err != nil {
		t.Fatal(err)
	}
	small, large := tea.WindowSizeMsg{Width: 80, Height: 24}, tea.WindowSizeMsg{Width: 200, Height: 50}
	for name, at := range map[string]struct {
		size tea.WindowSizeMsg
		keys string
	}{"80x24": {small, ""}, "200x50": {large, ""}, "devices-80x24": {small, "d"}, "flows-80x24": {small, "f"}, "connections-80x24": {small, "c"}, "waits-80x24": {small, "w"}, "waits-200x50": {large, "w"}, "help-80x24": {small, "?"}} {
		size := at.size
		s := open(t, size.Width, size.Height)
		for _, doc := range moments() {
			s.send(screen.Answer[*status.Document]{Doc: doc})
		}
		for _, k := range at.keys {
			s.keys(string(k))
		}
		var got strings.Builder
		for line := range strings.Lines(ansi.Strip(s.view())) {
			// The file has one empty line in place of several.
			if line := strings.TrimRight(line, " \n") + "\n"; line != "\n" || !strings.HasSuffix(got.String(), "\n\n") {
				got.WriteString(line)
			}
			if w := ansi.StringWidth(line); w > size.Width {
				t.Errorf("%s: a line of %d columns", name, w)
			}
		}
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || got.String() != string(want) {
			t.Errorf("%s differs (%v); go test ./ops/top -update writes it:\n%s", file, err, got.String())
		}
		shown := ""
		for line := range strings.Lines(strings.TrimRight(string(want), "\n")) {
			shown += strings.TrimRight("    "+line, " \n") + "\n"
		}
		if !strings.Contains(string(manual), strings.TrimRight(shown, "\n")) {
			t.Errorf("docs/reference/top.md does not show %s", file)
		}
	}
}

func TestStates(t *testing.T) {
	type flow struct {
		share, due     float64
		queued         int
		limit, written int64
		backlog        int64
	}
	for name, c := range map[string]struct {
		flows   []flow
		want    []State
		verdict string
	}{
		"alone":         {[]flow{{1, 1, 0, 0, 5 * mb, 0}}, []State{Content}, "nobody is hurt"},
		"as due":        {[]flow{{0.75, 0.75, 3, 0, 0, 0}, {0.25, 0.25, 2, 0, 0, 0}}, []State{HeldBack, HeldBack}, "nobody is hurt"},
		"starved":       {[]flow{{0.3, 0.97, 1, 0, 0, 0}, {0.7, 0.03, 4, 0, 0, 0}}, []State{Starved, OverDue}, "b takes 70 %, due 3 %; a waits with 30 %, due 97 %"},
		"waits":         {[]flow{{0.6, 0.75, 1, 0, 0, 0}, {0.4, 0.25, 1, 0, 0, 0}}, []State{Waiting, OverDue}, "b takes 40 %"},
		"spare":         {[]flow{{0.3, 0.97, 0, 0, 0, 0}, {0.7, 0.03, 4, 0, 0, 0}}, []State{Content, Spare}, "nobody is hurt"},
		"at its limit":  {[]flow{{0.1, 0.5, 1, mb, 5 * mb, 0}, {0.9, 0.5, 1, 0, 0, 0}}, []State{AtLimit, Spare}, "nobody is hurt"},
		"idle":          {[]flow{{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, mb}}, []State{Idle, Content}, "nobody is hurt"},
		"just past due": {[]flow{{0.505, 0.49, 0, 0, 0, 0}, {0.2, 0.51, 1, 0, 0, 0}}, []State{Content, Starved}, "b waits: it has 20 % and is due 51 %"},
	} {
		d := status.Device{Name: "sda", Answered: true, Kernel: status.Kernel{Counted: true}, Window: status.Window{Seconds: 5, Utilisation: 1}}
		for i, f := range c.flows {
			d.Flows = append(d.Flows, status.Flow{Name: string(rune('a' + i)), Queued: f.queued, LimitBytes: f.limit, BacklogBytes: f.backlog,
				Window: status.FlowWindow{Active: f.share > 0, Share: f.share, Entitlement: f.due, Bytes: status.Pair{Written: f.written}}})
		}
		d.Flows[0].Window.Active = c.flows[0].share > 0
		doc := &status.Document{Devices: []status.Device{d, {Name: "network", Window: status.Window{Seconds: 5},
			Flows: []status.Flow{{Name: "a", Queued: 9, Window: status.FlowWindow{Active: true, Share: 1, Entitlement: 1}}}}}}
		all := Applications(doc)
		for i, want := range c.want {
			if all[i].State != want {
				t.Errorf("%s: %s is %q, want %q", name, all[i].Name, all[i].State, want)
			}
		}
		if got := Verdict(doc, all); !strings.HasPrefix(got, c.verdict) {
			t.Errorf("%s: %q, want %q", name, got, c.verdict)
		}
	}
}

func TestOthersThatTakeADisk(t *testing.T) {
	doc := moments()[30]
	doc.Devices[0].OthersPart = 0.6
	doc.Devices[0].ForeignUsers.Top = []status.ForeignUser{{Name: "fio"}}
	if got := Verdict(doc, Applications(doc)); got != "fio (not governed) takes 60 % of sda's time" {
		t.Error(got)
	}
}

func TestTwoDisksCountByTheirBusyTime(t *testing.T) {
	doc := moments()[30]
	doc.Devices[1].Window.Utilisation = 0.49 // half of the other's
	doc.Devices[1].Flows[0].Window.Share, doc.Devices[1].Flows[1].Window.Share = 0.9, 0.1
	if all := Applications(doc); all[0].Share < 0.499 || all[0].Share > 0.501 {
		t.Errorf("0.3 of a disk and 0.9 of one that is half as busy are %v, not 0.5", all[0].Share)
	}
}

func TestBarAndNames(t *testing.T) {
	for _, c := range []struct {
		share, due float64
		want       string
	}{{0, 0, "··········"}, {1, 0, "██████████"}, {0.5, 0.8, "█████···|·"}, {0.8, 0.5, "█████|██··"}, {0.2, 1, "██·······|"}, {7, -1, "██████████"}} {
		if got := screen.Bar(c.share, c.due, 10); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.share, c.due, got, c.want)
		}
	}
	if got := screen.Short("application_1795310741618_0001", 18); got != "appl…0741618_0001" && len([]rune(got)) != 18 {
		t.Error(got)
	}
	if got := screen.Short("clients", 18); got != "clients" {
		t.Error(got)
	}
}

func TestSparklineKeepsAMinute(t *testing.T) {
	h := &History{}
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for second := range 200 {
		share := 0.0
		if second >= 169 {
			share = 1
		}
		h.Add(start.Add(time.Duration(second)*time.Second), []Application{{Name: "a", Share: share}})
	}
	if got := h.Sparkline("a", 12); got != "      ██████" {
		t.Errorf("%q", got)
	}
	if len(h.moments) > 62 {
		t.Errorf("%d moments kept", len(h.moments))
	}
	h.Add(start, nil) // out of order
	if got := h.Sparkline("b", 12); strings.TrimSpace(got) != "" {
		t.Errorf("%q", got)
	}
}
