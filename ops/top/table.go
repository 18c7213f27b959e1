// Package top shows the activity of a node's daemon, live, in a terminal, as text or as JSON.
//
// Problem: a job is slow, and one look at 80 columns must answer which application harms which.
// Choices: the first view has one line per application over all disks, with a word for its state,
// its share as a bar with a tick at its due share, and a sentence on top; devices and single flows
// are views of their own. Columns are dropped by priority as the terminal narrows. All figures come
// from one status document, so share, entitlement and rate are of the same window; the view adds
// only the shares of the last minute. The same code draws text and terminal.
//
// Names come from other processes: unprintable characters are not sent to the terminal.
package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"penstock/node/status"
	"penstock/ops/screen"
	"penstock/settings"
)

// Selection selects the parts of a document to draw; its filter applies to applications and
// devices.
type Selection = screen.Selection

// Columns are the columns by which flows can be sorted.
var Columns = []string{"share", "due", "rate", "backlog", "weight", "application", "device"}

// row is one flow on one device.
type row struct {
	device  string
	seconds float64 // length of the window
	status.Flow
}

func (r row) rate(bytes int64) float64 {
	if r.seconds <= 0 {
		return 0
	}
	return float64(bytes) / r.seconds
}

func (r row) bytesPerSecond() float64 { return r.rate(r.Window.Bytes.Read + r.Window.Bytes.Written) }

// rowsOf returns the flows to show, in order. Equal flows are in the order of their names, so that
// rows do not jump.
func rowsOf(doc *status.Document, s Selection) []row {
	var rows []row
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			f.Name = screen.Printable(f.Name)
			idle := !f.Window.Active && f.BacklogBytes == 0
			if s.HideIdle && idle || !strings.Contains(f.Name, s.Filter) && !strings.Contains(d.Name, s.Filter) {
				continue
			}
			rows = append(rows, row{d.Name, d.Window.Seconds, f})
		}
	}
	order := map[string]func(a, b row) int{
		"share":       func(a, b row) int { return cmp.Compare(b.Window.Share, a.Window.Share) },
		"due":         func(a, b row) int { return cmp.Compare(b.Window.Entitlement, a.Window.Entitlement) },
		"rate":        func(a, b row) int { return cmp.Compare(b.bytesPerSecond(), a.bytesPerSecond()) },
		"backlog":     func(a, b row) int { return cmp.Compare(b.BacklogBytes, a.BacklogBytes) },
		"weight":      func(a, b row) int { return cmp.Compare(b.Weight, a.Weight) },
		"application": func(a, b row) int { return strings.Compare(a.Name, b.Name) },
		"device":      func(a, b row) int { return strings.Compare(a.device, b.device) },
	}[s.Sort]
	slices.SortStableFunc(rows, func(a, b row) int {
		c := order(a, b)
		if s.Reverse {
			c = -c
		}
		return cmp.Or(c, strings.Compare(a.Name, b.Name), strings.Compare(a.device, b.device))
	})
	return rows
}

// headline returns the daemon's address and mode, and whether anything is governed.
func headline(doc *status.Document, address string) string {
	parts := []string{"penstock " + screen.Printable(address), "mode " + doc.Mode}
	if doc.KillSwitch.On {
		parts = append(parts, "KILL SWITCH ON")
	}
	if n := len(doc.Agents); n == 1 {
		parts = append(parts, "1 agent")
	} else {
		parts = append(parts, fmt.Sprintf("%d agents", n))
	}
	if !doc.Heartbeat.Alive {
		parts = append(parts, "NO HEARTBEAT")
	}
	return strings.Join(append(parts, doc.Time.Format(time.TimeOnly)), "  ")
}

// The columns that a narrow terminal drops, in this order.
var (
	deviceColumnsToDrop = []string{"ALGORITHM", "WRITTEN", "FOREIGN READ", "REFERENCE", "IN FLIGHT", "BACKLOG"}
	flowColumnsToDrop   = []string{"WOULD WAIT", "STREAMS", "LIMIT", "WAITS/S", "QUEUED", "BACKLOG"}
	othersToDrop        = []string{"PID", "OWNER"}
)

func deviceTable(doc *status.Document) *screen.Table {
	t := screen.NewTable("DEVICE|STATE|>ALGORITHM|>D|>IN FLIGHT|>BUSY|>LATENCY|>OTHERS|>REFERENCE|>BACKLOG|>FOREIGN READ|>WRITTEN")
	for _, d := range doc.Devices {
		state := deviceState(d)
		if !d.Answered {
			t.Add(d.Name, state, d.Algorithm)
			continue
		}
		foreign := func(bytes int64) string {
			if !d.Kernel.Counted || d.Window.Seconds == 0 {
				return "-"
			}
			return settings.Rate(float64(bytes) / d.Window.Seconds)
		}
		busy := "-"
		if d.Kernel.Counted {
			busy = percent(d.Window.Utilisation)
		}
		t.Add(d.Name, state, d.Algorithm, fmt.Sprintf("%d of %.0f", d.Depth, d.DepthMax), fmt.Sprint(d.Outstanding), busy,
			milliseconds(d.LatencyNS), percent(d.OthersPart), milliseconds(d.ReferenceNS), mebibytes(d.BacklogBytes),
			foreign(d.Window.Foreign.Read), foreign(d.Window.Foreign.Written))
	}
	return t
}

func deviceState(d status.Device) string {
	switch {
	case !d.Answered:
		return "NO ANSWER"
	case d.Stuck:
		return "STUCK"
	case d.SlowFactor > 1:
		return fmt.Sprintf("SLOW x%.0f", d.SlowFactor)
	}
	return "ok"
}

func flowTable(rows []row) *screen.Table {
	t := screen.NewTable("APPLICATION|DEVICE|>WEIGHT|>LIMIT|>SHARE|>DUE|>READ|>WRITTEN|>BACKLOG|>STREAMS|>QUEUED|>WAITS/S|>WOULD WAIT")
	for _, r := range rows {
		weight, would := fmt.Sprint(r.Weight), "-"
		switch r.Mode {
		case "observe":
			would = fmt.Sprintf("%.2f s/s", r.rate(r.Window.WouldWaitNS)/1e9)
		case "off":
			weight += " off"
		}
		due := "-"
		if r.Window.Active {
			due = percent(r.Window.Entitlement)
		}
		limit := "-"
		if r.LimitBytes > 0 {
			limit = settings.Rate(float64(r.LimitBytes))
		}
		t.Add(r.Name, r.device, weight, limit, percent(r.Window.Share), due, settings.Rate(r.rate(r.Window.Bytes.Read)),
			settings.Rate(r.rate(r.Window.Bytes.Written)), mebibytes(r.BacklogBytes), fmt.Sprint(r.Streams), fmt.Sprint(r.Queued),
			fmt.Sprintf("%.1f", r.rate(r.Window.Waits)), would)
	}
	return t
}

// foreigners returns the processes and cgroups with foreign I/O in the window: at most n, sorted by
// bytes, the largest first.
func foreigners(doc *status.Document, n, width int) []string {
	type use struct {
		device string
		rate   [2]float64
		status.ForeignUser
	}
	var uses []use
	for _, d := range doc.Devices {
		for _, u := range d.ForeignUsers.Top {
			moved := [2]int64{u.Window.Read, u.Window.Written}
			if d.ForeignUsers.Seconds <= 0 || moved == [2]int64{} {
				continue
			}
			uses = append(uses, use{d.Name, [2]float64{float64(moved[0]) / d.ForeignUsers.Seconds, float64(moved[1]) / d.ForeignUsers.Seconds}, u})
		}
	}
	if len(uses) == 0 {
		return nil
	}
	slices.SortStableFunc(uses, func(a, b use) int { return cmp.Compare(b.rate[0]+b.rate[1], a.rate[0]+a.rate[1]) })
	t := screen.NewTable("FOREIGN USER|PID|DEVICE|OWNER|>READ|>WRITTEN")
	for _, u := range uses[:min(n, len(uses))] {
		pid := "kernel"
		if u.PID != 0 {
			pid = fmt.Sprint(u.PID)
		}
		owner := screen.Printable(cmp.Or(u.Owner.Short, u.Cgroup, "-"))
		t.Add(screen.Printable(u.Name), pid, u.device, shortened(owner), settings.Rate(u.rate[0]), settings.Rate(u.rate[1]))
	}
	return t.Within(width, othersToDrop...).Lines()
}

// shortened keeps the end of a path, which is more informative than its beginning.
func shortened(path string) string {
	const longest = 48
	runes := []rune(path)
	if len(runes) <= longest {
		return path
	}
	return "..." + string(runes[len(runes)-longest+3:])
}

// leftOff returns a line about flows that the document does not contain, or an empty string.
func leftOff(doc *status.Document) string {
	n := 0
	for _, d := range doc.Devices {
		n += d.FlowsLeftOff
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d flows with the least service are left off", n)
}

// noDevice explains an empty view.
const noDevice = "no device yet: an agent registers one with its data directories"

// maxForeigners is the number of foreign users, connections and containers that a text shows.
const maxForeigners = 10

// Text draws a document for a pipe or a file: the first view at a width, and below it devices,
// flows, the I/O of others and connections, at their full width.
func Text(doc *status.Document, address string, s Selection, h *History, width int) string {
	all := Applications(doc)
	lines := []string{headline(doc, address), Verdict(doc, all), ""}
	if len(doc.Devices) == 0 {
		lines = append(lines, noDevice, "")
	}
	lines = append(lines, applicationLines(selectedApplications(all, s), h, width)...)
	lines = append(append(lines, ""), deviceTable(doc).Lines()...)
	lines = append(append(lines, ""), flowTable(rowsOf(doc, s)).Lines()...)
	if more := leftOff(doc); more != "" {
		lines = append(lines, more)
	}
	if others := foreigners(doc, maxForeigners, math.MaxInt); len(others) > 0 {
		lines = append(append(lines, ""), others...)
	}
	if connections := connectionLines(doc, maxForeigners, math.MaxInt); len(connections) > 0 {
		lines = append(append(lines, "", connectionSummary(doc)), connections...)
	}
	if waits := waitLines(doc, maxForeigners, math.MaxInt); len(waits) > 0 {
		lines = append(append(append(lines, ""), waitSummary(doc)...), waits...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func percent(part float64) string  { return fmt.Sprintf("%.1f %%", 100*part) }
func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", settings.MiB(float64(bytes))) }

func milliseconds(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(ns)/1e6)
}
