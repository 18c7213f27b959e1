package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"penstock/node/status"
	"penstock/ops/screen"
)

const mb = 1 << 20

func sample() *status.Document {
	flow := func(name string, weight int, share, due float64, read, written, backlog int64) status.Flow {
		return status.Flow{Name: name, Weight: weight, Mode: "enforce", Streams: 2, Queued: 1, BacklogBytes: backlog,
			Window: status.FlowWindow{Active: share > 0, Share: share, Entitlement: due, Bytes: status.Pair{Read: read, Written: written}, Waits: 10}}
	}
	scanner := flow("scanner", 1, 0, 0, 0, 0, 0)
	scanner.LimitBytes, scanner.Queued = 5*mb, 0
	return &status.Document{
		Version: 1, Mode: "enforce", Heartbeat: status.Heartbeat{Alive: true}, Agents: make([]status.Agent, 1),
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Devices: []status.Device{
			{Name: "sdb", Answered: true, Algorithm: "sfqd2", Depth: 3, DepthMax: 12, Outstanding: 2, LatencyNS: 212e6, OthersPart: 0.125, ReferenceNS: 248e6,
				BacklogBytes: 12 << 20, Kernel: status.Kernel{Counted: true},
				Window: status.Window{Seconds: 5, Utilisation: 0.97, Foreign: status.Pair{Written: mb}},
				Flows: []status.Flow{
					flow("application_1_0001", 32, 0.75, 0.9697, 50*mb, 0, 0),
					flow("application_1_0002", 1, 0.25, 0.0303, 0, 20*mb, 12<<20),
					scanner,
				}},
			{Name: "sdc", Algorithm: "sfqd2"},
		},
	}
}

func TestText(t *testing.T) {
	const want = `penstock host:1  mode enforce  1 agent  03:04:05
appl…on_1_0002 takes 25 %, due 3 %; appl…on_1_0001 waits with 75 %, due 97 %

APPLICATION        STATE        SHARE, | DUE     SHARE   DUE  MiB/S  LAST MINUTE
application_1_0001 waits        ████████████···|  75 %  97 %   10.0
application_1_0002 over its due |███············  25 %   3 %    4.0
scanner            idle         ················   0 %   0 %    0.0

DEVICE  STATE      ALGORITHM        D  IN FLIGHT    BUSY   LATENCY  OTHERS  REFERENCE   BACKLOG  FOREIGN READ    WRITTEN
sdb     ok             sfqd2  3 of 12          2  97.0 %  212.0 ms  12.5 %   248.0 ms  12.0 MiB     0.0 MiB/s  0.2 MiB/s
sdc     NO ANSWER      sfqd2

APPLICATION         DEVICE  WEIGHT      LIMIT   SHARE     DUE        READ    WRITTEN   BACKLOG  STREAMS  QUEUED  WAITS/S  WOULD WAIT
application_1_0001  sdb         32          -  75.0 %  97.0 %  10.0 MiB/s  0.0 MiB/s   0.0 MiB        2       1      2.0           -
application_1_0002  sdb          1          -  25.0 %   3.0 %   0.0 MiB/s  4.0 MiB/s  12.0 MiB        2       1      2.0           -
scanner             sdb          1  5.0 MiB/s   0.0 %       -   0.0 MiB/s  0.0 MiB/s   0.0 MiB        2       0      2.0           -
`
	if got := Text(sample(), "host:1", Selection{Sort: "share"}, nil, 80); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		s    Selection
		want string
	}{
		{Selection{Sort: "share"}, "application_1_0001 application_1_0002 scanner"},
		{Selection{Sort: "share", Reverse: true}, "scanner application_1_0002 application_1_0001"},
		{Selection{Sort: "backlog"}, "application_1_0002 application_1_0001 scanner"},
		{Selection{Sort: "weight", Reverse: true}, "application_1_0002 scanner application_1_0001"},
		{Selection{Sort: "share", HideIdle: true}, "application_1_0001 application_1_0002"},
		{Selection{Sort: "share", Filter: "0002"}, "application_1_0002"},
		{Selection{Sort: "application", Filter: "sdb"}, "application_1_0001 application_1_0002 scanner"},
		{Selection{Sort: "share", Filter: "nobody"}, ""},
	} {
		var names []string
		for _, r := range rowsOf(sample(), c.s) {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.s, got, c.want)
		}
	}
	for _, column := range Columns {
		rowsOf(sample(), Selection{Sort: column}) // every column has an order
	}
	if (Selection{Sort: "size"}).Check(Columns) == nil {
		t.Error("an unknown column is taken")
	}
}

func TestNamesCannotReachTheTerminal(t *testing.T) {
	doc := sample()
	doc.Devices[0].Flows[0].Name = "a\x1b[2Jb\nc"
	if got := Text(doc, "x", Selection{Sort: "share"}, nil, 80); strings.Contains(got, "\x1b") || !strings.Contains(got, "a?[2Jb?c") {
		t.Errorf("%q", got)
	}
}

// fake is a model under test: no terminal, no time.
type fake struct {
	t     *testing.T
	model tea.Model
	cmd   tea.Cmd
}

func open(t *testing.T, width, height int) *fake {
	s := &fake{t: t, model: screen.NewModel(context.Background(), View(nil, "host:1"), time.Second, Selection{Sort: "share"})}
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

func (s *fake) send(msg tea.Msg) { s.model, s.cmd = s.model.Update(msg) }

func (s *fake) keys(keys ...string) {
	named := map[string]rune{"esc": tea.KeyEsc, "enter": tea.KeyEnter, "down": tea.KeyDown, "backspace": tea.KeyBackspace, "pgdown": tea.KeyPgDown}
	for _, k := range keys {
		if code, ok := named[k]; ok {
			s.send(tea.KeyPressMsg{Code: code})
		} else if k == "ctrl+c" {
			s.send(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
		} else {
			s.send(tea.KeyPressMsg{Code: []rune(k)[0], Text: k})
		}
	}
}

func (s *fake) view() string { return s.model.View().Content }

func (s *fake) shows(want bool, texts ...string) {
	s.t.Helper()
	view := s.view()
	for _, text := range texts {
		if strings.Contains(view, text) != want {
			s.t.Errorf("%q shown: %v\n%s", text, !want, view)
		}
	}
}

func TestModel(t *testing.T) {
	s := open(t, 140, 24)
	s.shows(true, "asking the daemon")
	s.send(screen.Answer[*status.Document]{Doc: sample()})
	s.shows(true, "mode enforce", "97 %", "application_1_0002", "NO ANSWER", "q quit", "s sort: share", "over its due")
	if got := strings.Count(s.view(), "\n"); got != 23 {
		t.Errorf("%d lines of 24", got+1)
	}
	s.keys("/", "0", "0", "x", "backspace", "0", "2")
	s.shows(true, "filter: 0002_")
	s.shows(false, "application_1_0001")
	s.keys("enter")
	s.shows(true, "/ filter: 0002 (esc drops it)")
	s.keys("esc")
	s.shows(true, "application_1_0001")
	s.keys("i")
	s.shows(false, "scanner")
	s.keys("d")
	s.shows(true, "REFERENCE", "212.0 ms", "no I/O of others")
	s.keys("f")
	s.shows(true, "WOULD WAIT", "sdb")
	s.keys("?")
	s.shows(true, "the tick in the bar")
	s.keys("?", "a")
	s.shows(false, "the tick in the bar", "REFERENCE")
	s.keys("i", "s", "s", "r")
	s.shows(true, "sort: rate reversed", "scanner")

	// Paused: new documents are ignored; the clock continues.
	s.keys("p")
	other := sample()
	other.Mode = "observe"
	s.send(screen.Answer[*status.Document]{Doc: other})
	s.shows(true, "paused", "mode enforce")
	s.keys("p")
	s.send(screen.Answer[*status.Document]{Doc: other})
	s.shows(true, "mode observe")

	// The daemon stops: the figures stay, marked as old.
	s.send(screen.Answer[*status.Document]{Err: errors.New("no daemon answers")})
	s.shows(true, ": no daemon answers", "application_1_0001")
	for _, key := range []string{"q", "ctrl+c"} {
		s.keys(key)
		if s.cmd == nil || s.cmd() != (tea.QuitMsg{}) {
			t.Errorf("%s does not quit", key)
		}
	}
}

func TestModelScrollsAndFits(t *testing.T) {
	doc := sample()
	doc.Devices = doc.Devices[:1]
	doc.Devices[0].Flows = nil
	for i := range 100 {
		doc.Devices[0].Flows = append(doc.Devices[0].Flows, status.Flow{Name: fmt.Sprintf("flow%03d", i)})
	}
	s := open(t, 40, 12)
	s.send(screen.Answer[*status.Document]{Doc: doc})
	s.shows(true, "flow000", "flow005")
	s.shows(false, "flow006")
	s.keys("down", "pgdown")
	s.shows(true, "flow007")
	s.shows(false, "flow006")
	for range 40 {
		s.keys("pgdown")
	}
	s.shows(true, "flow099")
	for _, line := range strings.Split(s.view(), "\n") {
		if lipgloss.Width(line) > 40 {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	for height := range 14 { // whatever the window's size, nothing breaks
		s.send(tea.WindowSizeMsg{Width: height, Height: height})
		if got := strings.Count(s.view(), "\n"); got > max(0, height-1) {
			t.Errorf("height %d: %d lines", height, got+1)
		}
	}
}
