package operate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"penstock/ops/screen"
	"penstock/wire/cluster"
)

// Printable makes what other processes have named fit for a terminal.
func Printable(s string) string { return screen.Printable(s) }

// Table writes rows under heads, as screen.NewTable has them.
func Table(w io.Writer, heads string, rows func(add func(cells ...string))) error {
	t := screen.NewTable(heads)
	rows(t.Add)
	return write(w, t)
}

func write(w io.Writer, t *screen.Table) error {
	_, err := fmt.Fprintln(w, strings.Join(t.Lines(), "\n"))
	return err
}

// Counted is a number of things.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Percent, Weight, Rate and Service write numbers for people.
func Percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

// Weight writes a weight among all at work.
func Weight(w float64) string { return fmt.Sprintf("%.4g", w) }

// Rate writes bytes a second; none for 0.
func Rate(bytesPerSecond int64) string {
	if bytesPerSecond == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f MiB/s", float64(bytesPerSecond)/(1<<20))
}

// Service writes a rate of service, in devices that are busy with it.
func Service(ns uint64) string { return fmt.Sprintf("%.2f", float64(ns)/1e9) }

// applications are those at work. Figures come first: on a narrow terminal the queue's
// name is what can be missed.
func applications(states []*cluster.ApplicationState) *screen.Table {
	t := screen.NewTable("APPLICATION|>SHARE|>DUE|>WEIGHT|>DEVICES|>NODES|USER|QUEUE|>LIMIT|GROUP")
	for _, s := range states {
		t.Add(s.GetApplication(), Percent(s.GetShare()), Percent(s.GetDue()), Weight(s.GetWeight()), Service(s.GetRate()), fmt.Sprint(s.GetNodes()),
			s.GetUser(), s.GetQueue(), Rate(int64(s.GetLimit())), s.GetGroup())
	}
	return t
}

// Applications writes applications at work.
func Applications(w io.Writer, states []*cluster.ApplicationState) error {
	return write(w, applications(states))
}

// Nodes writes the nodes, seen at a time.
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

// NodesNote says why nodes may be missing, or is empty.
func NodesNote(a *cluster.ListNodesAnswer) string {
	switch {
	case a.GetSettling():
		return "the broker leads since lately: not all nodes may have come to it yet"
	case len(a.GetNodes()) == 0:
		return "no node reports to this broker: nodes have its address in their settings, under broker"
	}
	return ""
}

// Changes writes what applications would have, the old beside the new.
func Changes(w io.Writer, changes []Change) error {
	return Table(w, "APPLICATION|QUEUE|USER|WEIGHT|DUE|LIMIT|BY", func(add func(...string)) {
		both := func(old, new string) string {
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
			add(c.Application, c.Queue, c.User, both(Weight(c.Old.Weight), Weight(c.New.Weight)), both(Percent(c.Old.Due), Percent(c.New.Due)),
				both(Rate(c.Old.Limit), Rate(c.New.Limit)), both(c.Old.Why(), c.New.Why()))
		}
	})
}
