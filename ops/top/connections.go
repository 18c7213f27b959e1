package top

import (
	"cmp"
	"fmt"

	"penstock/node/status"
	"penstock/ops/screen"
	"penstock/settings"
)

// connectionColumnsToDrop are dropped by a narrow terminal, in this order.
var connectionColumnsToDrop = []string{"BLOCK", "DATANODE", "RTT"}

// connectionLines returns the connections between DataNodes and their clients, a head first; nil if
// there is none.
func connectionLines(doc *status.Document, n, width int) []string {
	top := doc.Connections.Top
	if len(top) == 0 {
		return nil
	}
	t := screen.NewTable("CLIENT|DATANODE|APPLICATION|DOES|BLOCK|>SENT|>RECEIVED|>RTT")
	for _, c := range top[:min(n, len(top))] {
		does := "idle"
		if c.Streaming {
			does = c.Direction + "s"
		}
		rate := func(r float64) string {
			if doc.Connections.Seconds == 0 {
				return "-"
			}
			return settings.Rate(r)
		}
		t.Add(c.Client, c.Server, screen.Printable(cmp.Or(c.Flow, "-")), does, screen.Printable(cmp.Or(c.Block, "-")),
			rate(c.SentRate), rate(c.ReceivedRate), milliseconds(c.RTTNS))
	}
	return t.Within(width, connectionColumnsToDrop...).Lines()
}

// connectionSummary returns the number of connections, and what is not known about them.
func connectionSummary(doc *status.Document) string {
	c := doc.Connections
	if c.Error != "" {
		return screen.Printable(c.Error)
	}
	s := fmt.Sprintf("%d connections to the DataNodes of this machine", c.Established)
	if c.AtBound {
		s = "more than " + s
	}
	if c.LeftOff > 0 {
		s += fmt.Sprintf("; the slowest %d are left off", c.LeftOff)
	}
	return s
}
