package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/ops/screen"
	"penstock/wire/cluster"
)

// View is the state of the whole cluster at one moment.
type View struct {
	Nodes        *cluster.ListNodesAnswer
	Applications []*cluster.ApplicationState
	At           time.Time
}

// Look returns a view.
func (c *Client) Look(ctx context.Context) (*View, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	apps, err := c.Applications(ctx, "")
	return &View{nodes, apps, time.Now()}, err
}

// Columns are the columns by which applications can be sorted.
var Columns = []string{"share", "due", "weight", "nodes", "slowdown", "application"}

// Selection is the part of a view to draw. Its filter applies to applications' ids, queues and users.
type Selection = screen.Selection

// chosen returns the selected applications in order.
func chosen(v *View, s Selection) []*cluster.ApplicationState {
	var some []*cluster.ApplicationState
	for _, a := range v.Applications {
		idle := s.HideIdle && a.GetRate() == 0
		if !idle && (strings.Contains(a.GetApplication(), s.Filter) || strings.Contains(a.GetQueue(), s.Filter) || strings.Contains(a.GetUser(), s.Filter)) {
			some = append(some, a)
		}
	}
	order := map[string]func(a, b *cluster.ApplicationState) int{
		"share":       func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetShare(), a.GetShare()) },
		"due":         func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetDue(), a.GetDue()) },
		"weight":      func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetWeight(), a.GetWeight()) },
		"nodes":       func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetNodes(), a.GetNodes()) },
		"slowdown":    func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetSlowdown(), a.GetSlowdown()) },
		"application": func(a, b *cluster.ApplicationState) int { return cmp.Compare(a.GetApplication(), b.GetApplication()) },
	}[s.Sort]
	slices.SortStableFunc(some, func(a, b *cluster.ApplicationState) int {
		c := order(a, b)
		if s.Reverse {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.GetApplication(), b.GetApplication()))
	})
	return some
}

// headline describes the size of the cluster, and the oldest and newest policy in force at a node.
func (v *View) headline() string {
	rate, low, high := uint64(0), uint64(0), uint64(0)
	for i, n := range v.Nodes.GetNodes() {
		rate += n.GetRate()
		if i == 0 || n.GetPolicy() < low {
			low = n.GetPolicy()
		}
		high = max(high, n.GetPolicy())
	}
	policy := fmt.Sprintf("policy %d", high)
	switch {
	case high == 0:
		policy = "no policy"
	case low != high:
		policy = fmt.Sprintf("policy %d to %d", low, high)
	}
	return strings.Join([]string{"broker " + Printable(v.Nodes.GetLeader()), v.At.Format(time.TimeOnly), Counted(len(v.Nodes.GetNodes()), "node"), Counted(len(v.Applications), "application"),
		Service(rate) + " devices busy", policy}, "  ")
}

// note explains why nodes or applications may be missing from the view. It returns an empty string
// if none are missing.
func (v *View) note() string {
	if note := NodesNote(v.Nodes); note != "" || len(v.Applications) > 0 {
		return note
	}
	return "no application is at work"
}

// Text formats a view for a pipe or a file.
func (v *View) Text(s Selection) string {
	lines := []string{v.headline()}
	if note := v.note(); note != "" {
		lines = append(lines, note)
	}
	return strings.Join(append(lines, applications(chosen(v, s)).Lines()...), "\n") + "\n"
}

// Live returns the terminal's view of the cluster. source reads the state.
func Live(source func(context.Context) (*View, error)) screen.View[*View] {
	return screen.View[*View]{Title: "penstock cluster", Asked: "the broker", Columns: Columns, Source: source,
		Draw: func(v *View, s Selection, _, _ int) screen.Page {
			some := chosen(v, s)
			lines := applications(some).Lines()
			p := screen.Page{Headline: v.headline(), Note: v.note(), Head: lines[0], Rows: lines[1:]}
			for i, a := range some {
				if a.GetRate() == 0 {
					p.Rows[i] = screen.Faint.Render(p.Rows[i])
				}
			}
			return p
		}}
}
