package top

import (
	"cmp"
	"fmt"
	"strings"

	"penstock/node/status"
	"penstock/ops/screen"
	"penstock/settings"
)

// waitColumnsToDrop are dropped by a narrow terminal, in this order.
var waitColumnsToDrop = []string{"PROCESSES", "CONTAINER", "P99"}

// waitLines returns what the processes of applications, containers and units do and wait for, a
// head first; nil if there is none.
func waitLines(doc *status.Document, n, width int) []string {
	p := doc.Processes
	if len(p.Top) == 0 {
		return nil
	}
	slow := slowest(doc)
	t := screen.NewTable("OWNER|CONTAINER|>PROCESSES|>READ|>WRITTEN|>WAIT DISK|>WAIT CPU|>P99")
	for _, g := range p.Top[:min(n, len(p.Top))] {
		read, written, disk, cpu := "-", "-", "-", "-"
		if p.Seconds > 0 {
			read, written = settings.Rate(float64(g.Window.Bytes.Read)/p.Seconds), settings.Rate(float64(g.Window.Bytes.Written)/p.Seconds)
			cpu = threads(g.Window.RunDelayNS, p.Seconds)
			if p.BlockDelayCounted {
				disk = threads(g.Window.BlockDelayNS, p.Seconds)
			}
		}
		name, container := g.Flow, strings.TrimPrefix(g.Owner.Short, g.Flow+" ")
		if name == "" {
			name, container = g.Owner.Short, ""
		}
		t.Add(shortened(screen.Printable(name)), shortened(screen.Printable(cmp.Or(container, "-"))), fmt.Sprint(g.Processes), read, written, disk, cpu, milliseconds(slow[g.Owner]))
	}
	return t.Within(width, waitColumnsToDrop...).Lines()
}

// slowest returns, for each owner, the p99 latency of its requests in the window: that of the device and
// direction where it is the longest.
func slowest(doc *status.Document) map[status.Owner]int64 {
	slow := map[status.Owner]int64{}
	for _, d := range doc.Devices {
		for _, l := range d.Latencies.Top {
			slow[l.Owner] = max(slow[l.Owner], l.Window.Read.P99NS, l.Window.Write.P99NS)
		}
	}
	return slow
}

// threads returns the mean number of threads that waited.
func threads(ns int64, seconds float64) string { return fmt.Sprintf("%.2f", float64(ns)/1e9/seconds) }

// waitSummary says what the figures are, and what is missing.
func waitSummary(doc *status.Document) []string {
	p := doc.Processes
	lines := []string{"processes by container; waits are the mean number of waiting threads"}
	for _, note := range []string{p.Error, p.Note} {
		if note != "" {
			lines = append(lines, screen.Printable(note))
		}
	}
	if p.AtBound {
		lines = append(lines, "there are more processes or containers than can be watched: some are missing")
	}
	if p.LeftOff > 0 {
		lines = append(lines, fmt.Sprintf("%d with the fewest bytes are left off", p.LeftOff))
	}
	return lines
}
