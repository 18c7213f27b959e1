package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"penstock/wire/cluster"
)

func view(apps int) *View {
	v := &View{Nodes: &cluster.ListNodesAnswer{Leader: "b", Nodes: []*cluster.NodeState{{Policy: 3, Rate: 1e9}, {Policy: 4, Rate: 5e8}}}, At: time.Unix(0, 0)}
	for i := range apps {
		v.Applications = append(v.Applications, &cluster.ApplicationState{Application: fmt.Sprintf("app-%02d", i), User: "u\x1b", Rate: uint64(i) * 1e8, Share: float64(i) / 100, Weight: 1})
	}
	return v
}

func press(m Model, keys ...tea.KeyPressMsg) Model {
	for _, k := range keys {
		next, _ := m.Update(k)
		m = next.(Model)
	}
	return m
}

func letter(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r, Text: string(r)} }

func TestClusterView(t *testing.T) {
	answers := []any{errors.New("nobody is there"), view(40)}
	m := NewModel(t.Context(), func(context.Context) (*View, error) {
		a := answers[0]
		answers = answers[1:]
		if v, ok := a.(*View); ok {
			return v, nil
		}
		return nil, a.(error)
	}, time.Second, Selection{Sort: "share"})
	next, _ := m.Update(tea.WindowSizeMsg{Width: 100, Height: 10})
	m = next.(Model)
	shows := func(what string, m Model, wants ...string) {
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
	next, _ = m.Update(m.ask())
	m = next.(Model)
	shows("no answer", m, "nobody is there")
	next, _ = m.Update(m.ask())
	m = next.(Model)
	shows("an answer", m, "2 nodes, 40 applications, 1.50 devices busy, policy 3 to 4", "app-39", "u?")
	shows("reversed", press(m, letter('r')), "app-00")
	shows("without idle ones", press(m, letter('r'), letter('i')), "app-01")
	shows("sorted by name", press(m, letter('S')), "app-00", "s sort: application")
	shows("scrolled", press(m, letter('j'), letter('j')), "app-37")
	shows("scrolled too far", press(press(m, letter('S')), slicesOf(letter('j'), 100)...), "app-39")
	filtered := press(m, letter('/'), letter('0'), letter('7'))
	shows("filter", filtered, "filter: 07_", "app-07")
	if text := filtered.View().Content; strings.Contains(text, "app-39") {
		t.Error(text)
	}
	shows("paused", press(m, letter('p')), "paused")
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
