package operate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"penstock/ops/screen"
	"penstock/settings"
	"penstock/wire/cluster"
)

// Printable returns a string from another process in a form that is safe for a terminal.
func Printable(s string) string { return screen.Printable(s) }

// Table writes rows below heads, in the format of screen.NewTable.
func Table(w io.Writer, heads string, rows func(add func(cells ...string))) error {
	t := screen.NewTable(heads)
	rows(t.Add)
	return write(w, t)
}

func write(w io.Writer, t *screen.Table) error {
	_, err := fmt.Fprintln(w, strings.Join(t.Lines(), "\n"))
	return err
}

// Counted returns a number with a noun, such as "2 nodes".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Percent formats a part as a percentage.
func Percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

// Weight formats a weight among all applications at work.
func Weight(w float64) string { return fmt.Sprintf("%.4g", w) }

// Rate formats bytes per second; empty for 0.
func Rate(bytesPerSecond int64) string {
	if bytesPerSecond == 0 {
		return ""
	}
	return settings.Rate(float64(bytesPerSecond))
}

// Service formats a rate of service as a number of busy devices.
func Service(ns uint64) string { return fmt.Sprintf("%.2f", float64(ns)/1e9) }

// Rank describes an application's place in an ordered queue; empty for others.
func Rank(s *cluster.ApplicationState) string {
	if s.GetRank() == 0 {
		return ""
	}
	return fmt.Sprintf("%d, with %s of its queue; about %.1f GiB remain, with an error of %.0f %%", s.GetRank(), Percent(s.GetSlice()), float64(s.GetRemainingBytes())/(1<<30), 100*s.GetRemainingError())
}

// barWidth is the width of the bar of a share, in characters.
const barWidth = 16

// applications returns the table of applications at work. Numbers come first: on a narrow terminal,
// the name of the queue can be cut off.
func applications(states []*cluster.ApplicationState) *screen.Table {
	t := screen.NewTable("APPLICATION|>SHARE|>DUE|>WEIGHT|>DEVICES|>NODES|SHARE, TICK: DUE|USER|QUEUE|>LIMIT|GROUP")
	for _, s := range states {
		t.Add(s.GetApplication(), Percent(s.GetShare()), Percent(s.GetDue()), Weight(s.GetWeight()), Service(s.GetRate()), fmt.Sprint(s.GetNodes()),
			screen.Bar(s.GetShare(), s.GetDue(), barWidth), s.GetUser(), s.GetQueue(), Rate(int64(s.GetLimit())), s.GetGroup())
	}
	return t
}

// Applications writes the table of applications at work.
func Applications(w io.Writer, states []*cluster.ApplicationState) error {
	return write(w, applications(states))
}

// Nodes writes the table of nodes. now is the time of the answer.
func Nodes(w io.Writer, a *cluster.ListNodesAnswer, now time.Time) error {
	return Table(w, "NODE|>POLICY|>HEARD|>APPLICATIONS|>DEVICES|VERSION", func(add func(...string)) {
		for _, n := range a.GetNodes() {
			policy := ""
			if n.GetPolicy() > 0 {
				policy = fmt.Sprint(n.GetPolicy())
			}
			add(n.GetNode().GetName(), policy, now.Sub(time.UnixMilli(n.GetHeardUnixMs())).Round(100*time.Millisecond).String()+" ago",
				fmt.Sprint(n.GetApplications()), Service(n.GetRate()), n.GetNode().GetVersion())
		}
	})
}

// NodesNote explains why nodes may be missing from the answer; empty if none are missing.
func NodesNote(a *cluster.ListNodesAnswer) string {
	switch {
	case a.GetSettling():
		return "the broker began to lead a moment ago: some nodes may not have reported yet"
	case len(a.GetNodes()) == 0:
		return "no node reports to this broker: set its address in the nodes' settings, under broker"
	}
	return ""
}

// Changes writes a table of what applications get under the old and the new policy, in the form
// "old > new".
func Changes(w io.Writer, changes []Change) error {
	return Table(w, "APPLICATION|QUEUE|USER|WEIGHT|DUE|LIMIT|RESERVE|LATENCY|BY", func(add func(...string)) {
		change := func(old, new string) string {
			if old == "" {
				old = "-"
			}
			if new == "" {
				new = "-"
			}
			if old == new {
				return new
			}
			return old + " > " + new
		}
		for _, c := range changes {
			add(c.Application, c.Queue, c.User, change(Weight(c.Old.Weight), Weight(c.New.Weight)), change(Percent(c.Old.Due), Percent(c.New.Due)),
				change(c.Old.Limits(), c.New.Limits()), change(c.Old.Reserves(), c.New.Reserves()), change(c.Old.Goal(), c.New.Goal()), change(c.Old.Why(), c.New.Why()))
		}
	})
}
