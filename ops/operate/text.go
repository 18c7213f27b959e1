package operate

import (
	"fmt"
	"io"
	"slices"
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

// Clock formats a time in Unix ms in the local zone, for people.
func Clock(unixMs int64) string { return time.UnixMilli(unixMs).Format("2006-01-02 15:04:05") }

// Deadline describes an application's deadline and what is decided about it; empty: it has none.
func Deadline(s *cluster.ApplicationState) string {
	if s.GetDeadlineState() == "" {
		return ""
	}
	text := s.GetDeadlineState()
	if s.GetDeadlineUnixMs() > 0 {
		text = Clock(s.GetDeadlineUnixMs()) + " " + text
	}
	if s.GetDeadlineReason() != "" {
		text += ": " + s.GetDeadlineReason()
	}
	return text
}

// Slowdown describes an application's estimated slowdown, and what a queue with a goal makes of it, in lines with their
// heads.
func Slowdown(s *cluster.ApplicationState) (lines [][2]string) {
	if s.GetSlowdown() > 0 {
		lines = append(lines, [2]string{"slowdown", fmt.Sprintf("about %.2f, and %.2f since its first stream or since the broker leads; it waits for disks for %s of the time", s.GetSlowdown(), s.GetSlowdownOverall(), Percent(s.GetWaits()))})
	}
	if s.GetFactor() > 0 {
		lines = append(lines, [2]string{"goal", fmt.Sprintf("performance %v among its queue; its weight is multiplied by %.2f", s.GetSlowdownGoal(), s.GetFactor())})
	}
	return lines
}

// ratio formats an estimated slowdown; empty: not known.
func ratio(slowdown float64) string {
	if slowdown == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", slowdown)
}

// barWidth is the width of the bar of a share, in characters.
const barWidth = 16

// applications returns the table of applications at work. Numbers come first: on a narrow terminal,
// the name of the queue can be cut off.
func applications(states []*cluster.ApplicationState) *screen.Table {
	heads := "APPLICATION|>SHARE|>DUE|>WEIGHT|>DEVICES|>NODES|SHARE, TICK: DUE|USER|QUEUE|>SLOWDOWN|>LIMIT|GROUP"
	// Only some applications have a progress, and few have a deadline.
	progress := slices.ContainsFunc(states, func(s *cluster.ApplicationState) bool { return s.GetProgress() > 0 })
	deadlines := slices.ContainsFunc(states, func(s *cluster.ApplicationState) bool { return s.GetDeadlineState() != "" })
	if progress {
		heads += "|>DONE|ENDS"
	}
	if deadlines {
		heads += "|DEADLINE"
	}
	t := screen.NewTable(heads)
	for _, s := range states {
		row := []string{s.GetApplication(), Percent(s.GetShare()), Percent(s.GetDue()), Weight(s.GetWeight()), Service(s.GetRate()), fmt.Sprint(s.GetNodes()),
			screen.Bar(s.GetShare(), s.GetDue(), barWidth), s.GetUser(), s.GetQueue(), ratio(s.GetSlowdown()), Rate(int64(s.GetLimit())), s.GetGroup()}
		if progress {
			done, ends := "", ""
			if s.GetProgress() > 0 {
				done = fmt.Sprintf("%.0f %%", 100*s.GetProgress())
			}
			if s.GetForecastEndUnixMs() > 0 {
				ends = Clock(s.GetForecastEndUnixMs())
			}
			row = append(row, done, ends)
		}
		if deadlines {
			row = append(row, Deadline(s))
		}
		t.Add(row...)
	}
	return t
}

// Applications writes the table of applications at work.
func Applications(w io.Writer, states []*cluster.ApplicationState) error {
	return write(w, applications(states))
}

// Nodes writes the table of nodes. now is the time of the answer.
func Nodes(w io.Writer, a *cluster.ListNodesAnswer, now time.Time) error {
	return Table(w, "NODE|>POLICY|MODE|CANARY|>HEARD|>APPLICATIONS|>DEVICES|VERSION", func(add func(...string)) {
		for _, n := range a.GetNodes() {
			policy := ""
			if n.GetPolicy() > 0 {
				policy = fmt.Sprint(n.GetPolicy())
			}
			canary := ""
			if n.GetCanary() {
				canary = "yes"
			}
			add(n.GetNode().GetName(), policy, Mode(n.GetMode()), canary, now.Sub(time.UnixMilli(n.GetHeardUnixMs())).Round(100*time.Millisecond).String()+" ago",
				fmt.Sprint(n.GetApplications()), Service(n.GetRate()), n.GetNode().GetVersion())
		}
	})
}

// Mode formats a mode that a node reports; empty if the node does not report it.
func Mode(m cluster.Mode) string {
	if m == cluster.Mode_MODE_UNKNOWN {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(m.String(), "MODE_"))
}

// CanaryNodes returns the number of nodes that have the canary's policy.
func CanaryNodes(a *cluster.ListNodesAnswer) (nodes int) {
	for _, n := range a.GetNodes() {
		if n.GetCanary() {
			nodes++
		}
	}
	return nodes
}

// NodesNote explains that the kill switch is on, or why nodes may be missing from the answer; it is empty if there is nothing to
// explain.
func NodesNote(a *cluster.ListNodesAnswer) string {
	switch {
	case a.GetOff():
		return "the cluster's kill switch is on: no node governs anything until `penstock policy kill-switch off`"
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
	return Table(w, "APPLICATION|QUEUE|USER|WEIGHT|DUE|LIMIT|RESERVE|FITS|LATENCY|BY", func(add func(...string)) {
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
			add(c.Application, c.Queue, c.User, change(Weight(c.Old.Weight), Weight(c.New.Weight)), change(c.Old.Share(), c.New.Share()),
				change(c.Old.Limits(), c.New.Limits()), change(c.Old.Reserves(), c.New.Reserves()), c.Fits, change(c.Old.Goal(), c.New.Goal()), change(c.Old.Why(), c.New.Why()))
		}
	})
}
