package operate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"penstock/ops/screen"
	"penstock/wire/cluster"
)

func view(apps int) *View {
	v := &View{Nodes: &cluster.ListNodesAnswer{Leader: "b", Nodes: []*cluster.NodeState{{Policy: 3, Rate: 1e9}, {Policy: 4, Rate: 5e8}}}, At: time.Unix(0, 0)}
	for i := range apps {
		v.Applications = append(v.Applications, &cluster.ApplicationState{Application: fmt.Sprintf("app-%02d", i), User: "u\x1b", Rate: uint64(i) * 1e8, Share: float64(i) / 100, Weight: 1})
	}
	return v
}

func press(m tea.Model, keys ...tea.KeyPressMsg) tea.Model {
	for _, k := range keys {
		m, _ = m.Update(k)
	}
	return m
}

func letter(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r, Text: string(r)} }

func TestClusterView(t *testing.T) {
	var m tea.Model = screen.NewModel(t.Context(), Live(nil), time.Second, Selection{Sort: "share"})
	send := func(msg tea.Msg) { m, _ = m.Update(msg) }
	send(tea.WindowSizeMsg{Width: 80, Height: 10})
	shows := func(what string, m tea.Model, wants ...string) {
		t.Helper()
		text := m.View().Content
		if lines := strings.Count(text, "\n") + 1; lines != 10 {
			t.Errorf("%s: %d lines on a screen of 10", what, lines)
		}
		for _, w := range wants {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q is not in\n%s", what, w, text)
			}
		}
	}
	shows("at first", m, "asking the broker")
	// While there are no figures, the complete error is shown.
	send(screen.Answer[*View]{Err: errors.New("nobody is there: " + strings.Repeat("so it is ", 12) + "at last")})
	shows("no answer", m, "nobody is there", "at last")
	send(screen.Answer[*View]{Doc: &View{Nodes: &cluster.ListNodesAnswer{}, At: time.Unix(0, 0)}})
	shows("an empty cluster", m, "no policy", "no node reports")
	send(screen.Answer[*View]{Doc: view(40)})
	shows("an answer", m, "2 nodes  40 applications  1.50 devices busy  policy 3 to 4", "1 to 6 of 40", "39.0 %", "u?")
	shows("reversed", press(m, letter('r')), "app-00", "share reversed")
	shows("without idle ones", press(m, letter('r'), letter('i')), "app-01", "i show idle")
	shows("sorted by name", press(m, letter('S')), "app-00", "s sort: application")
	shows("scrolled", press(m, letter('j'), letter('j')), "app-37", "3 to 8 of 40")
	shows("scrolled too far", press(press(m, letter('S')), slicesOf(letter('j'), 100)...), "app-34", "app-39")
	shows("at the end", press(m, letter('G')), "app-00", "35 to 40 of 40")
	filtered := press(m, letter('/'), letter('0'), letter('7'))
	shows("filter", filtered, "filter: 07_", "app-07")
	if text := filtered.View().Content; strings.Contains(text, "app-39") {
		t.Error(text)
	}
	shows("a filter for nobody", press(filtered, letter('x')), "nothing matches the filter")
	shows("paused", press(m, letter('p')), "paused")
	send(screen.Answer[*View]{Err: errors.New("nobody is there")})
	shows("gone", m, ": nobody is there", "figures of ", "app-39")
}

// A queue with a long name does not push figures off a narrow screen.
func TestFiguresComeFirst(t *testing.T) {
	v := view(0)
	v.Applications = []*cluster.ApplicationState{{Application: "application_1700000000000_0001", Queue: "root." + strings.Repeat("long.", 20), User: "u", Share: 1, Due: 0.125, Weight: 1e6, Rate: 123e9, Nodes: 1000}}
	head, row := applications(v.Applications).Lines()[0], applications(v.Applications).Lines()[1]
	for _, figure := range []string{"SHARE", "DUE", "WEIGHT", "DEVICES", "NODES"} {
		if at := strings.Index(head, figure); at < 0 || at+len(figure) > 80 {
			t.Errorf("%s ends at column %d", figure, at+len(figure))
		}
	}
	for _, figure := range []string{"100.0 %", "12.5 %", "1e+06", "123.00", "1000"} {
		if at := strings.Index(row, figure); at < 0 || at+len(figure) > 80 {
			t.Errorf("%s ends at column %d of %s", figure, at+len(figure), row)
		}
	}
}

func slicesOf(k tea.KeyPressMsg, n int) (all []tea.KeyPressMsg) {
	for range n {
		all = append(all, k)
	}
	return all
}

func TestStatedFacts(t *testing.T) {
	f, err := ParseFacts([]string{"user=a,queue=root.x,tag=b", "bandwidth=50,tag=k=v,name=n,type=SPARK,flow=clients"})
	if err != nil || f.User != "a" || f.Queue != "root.x" || f.Name != "n" || f.Type != "SPARK" || f.Flow != "clients" || f.Bandwidth != 50 || strings.Join(f.Tags, " ") != "b k=v" {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []string{"", "user", "size=3", "bandwidth=-1", "bandwidth=x", "user=a,"} {
		if _, err := ParseFacts([]string{bad}); err == nil {
			t.Errorf("%q: taken", bad)
		}
	}
}
