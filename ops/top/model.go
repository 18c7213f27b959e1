package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"penstock/node/status"
	"penstock/ops/screen"
)

// Names of the views.
const (
	applicationsView = "applications"
	connectionsView  = "connections"
	devicesView      = "devices"
	flowsView        = "flows"
	waitsView        = "waits"
)

var help = []string{
	"",
	"SHARE        part of the disks' service in the last seconds; the bar shows it",
	"DUE          part that the weight gives; the tick in the bar",
	"LAST MINUTE  the share over time, the newest on the right",
	"",
	"starved       waits, and has less than half of its due",
	"waits         waits, and has less than its due",
	"over its due  has more than its due while another application waits",
	"at its limit  its limit holds it back",
	"held back     waits, and has its due",
	"uses spare    has more than its due, and nobody waits",
	"content       has what it wants",
	"idle          wants nothing",
	"",
	"a applications    d devices, I/O of others    f flows by device",
	"c connections     w waits of containers",
	"tab next view     s S sort                    r reverse            / filter",
	"i hide idle       p pause                     q quit",
}

// View returns the terminal's view of one daemon; source returns the daemon's status.
func View(source func(context.Context) (*status.Document, error), address string) screen.View[*status.Document] {
	history := &History{}
	return screen.View[*status.Document]{Title: "penstock " + screen.Printable(address), Asked: "the daemon", Columns: Columns, Source: source,
		Views: []screen.Key{{Key: "a", View: applicationsView}, {Key: "d", View: devicesView}, {Key: "f", View: flowsView}, {Key: "c", View: connectionsView}, {Key: "w", View: waitsView}},
		Help:  help,
		Take:  func(doc *status.Document) { history.Add(doc.Time, Applications(doc)) },
		Draw: func(doc *status.Document, s Selection, width, height int) screen.Page {
			return draw(doc, s, history, address, width, height)
		}}
}

func draw(doc *status.Document, s Selection, history *History, address string, width, height int) screen.Page {
	all := Applications(doc)
	p := screen.Page{Headline: headline(doc, address), Note: leftOff(doc)}
	if len(doc.Devices) == 0 {
		p.Note = noDevice
	}
	switch s.View {
	case devicesView:
		p.Above = append(devices(doc, width), "")
		lines := foreigners(doc, max(1, height), width)
		if len(lines) == 0 {
			lines = []string{"no I/O of others was seen"}
		}
		p.Head, p.Rows = lines[0], lines[1:]
	case connectionsView:
		p.Above = []string{connectionSummary(doc), ""}
		lines := connectionLines(doc, len(doc.Connections.Top), width)
		if len(lines) == 0 {
			lines = []string{"no connection was seen"}
		}
		p.Head, p.Rows = lines[0], lines[1:]
	case waitsView:
		p.Above = append(waitSummary(doc), "")
		lines := waitLines(doc, len(doc.Processes.Top), width)
		if len(lines) == 0 {
			lines = []string{"no process of an application, container or unit was seen"}
		}
		p.Head, p.Rows = lines[0], lines[1:]
	case flowsView:
		rows := rowsOf(doc, s)
		lines := flowTable(rows).Within(width, flowColumnsToDrop...).Lines()
		p.Head, p.Rows = lines[0], lines[1:]
		for i, r := range rows {
			if !r.Window.Active {
				p.Rows[i] = screen.Faint.Render(p.Rows[i])
			}
		}
	default:
		p.Above = verdictLines(doc, all)
		some := selectedApplications(all, s)
		lines := applicationLines(some, history, width)
		p.Head, p.Rows = lines[0], lines[1:]
		for i, a := range some {
			p.Rows[i] = styled(a.State, p.Rows[i])
		}
	}
	return p
}

// verdictLines returns the verdict and a line for each device that is not healthy.
func verdictLines(doc *status.Document, all []Application) []string {
	lines := []string{screen.Bold.Render(Verdict(doc, all))}
	for _, d := range doc.Devices {
		if state := deviceState(d); state != "ok" {
			lines = append(lines, screen.Alarm.Render(fmt.Sprintf("device %s: %s", d.Name, state)))
		}
	}
	return append(lines, "")
}

func styled(s State, line string) string {
	switch s {
	case Starved, Waiting:
		return screen.Alarm.Render(line)
	case Idle:
		return screen.Faint.Render(line)
	}
	return line
}

func devices(doc *status.Document, width int) []string {
	lines := deviceTable(doc).Within(width, deviceColumnsToDrop...).Lines()
	lines[0] = screen.Head.Render(lines[0])
	for i, d := range doc.Devices {
		if deviceState(d) != "ok" {
			lines[i+1] = screen.Alarm.Render(lines[i+1])
		}
	}
	return lines
}

// WriteJSON writes a document as one line.
func WriteJSON(w io.Writer, doc *status.Document) error { return json.NewEncoder(w).Encode(doc) }

// WriteText returns a function that writes a document as text of the given width, followed by an
// empty line.
func WriteText(address string, s Selection, width int) func(io.Writer, *status.Document) error {
	history := &History{}
	return func(w io.Writer, doc *status.Document) error {
		history.Add(doc.Time, Applications(doc))
		_, err := fmt.Fprintln(w, Text(doc, address, s, history, width))
		return err
	}
}
