package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"penstock/node/status"
	"penstock/ops/screen"
)

// View is the terminal's view of one daemon, whose status source gives.
func View(source func(context.Context) (*status.Document, error), address string) screen.View[*status.Document] {
	return screen.View[*status.Document]{Title: "penstock " + screen.Printable(address), Asked: "the daemon", Columns: Columns, Source: source,
		Draw: func(doc *status.Document, s Selection, height int) screen.Page {
			p := screen.Page{Headline: headline(doc, address), Note: leftOff(doc), Above: devices(doc)}
			if len(doc.Devices) == 0 {
				p.Note = "no device yet: one is known once an agent has registered a data directory on it"
			}
			p.Above = append(append(p.Above, others(doc, height)...), "")
			rows := rowsOf(doc, s)
			lines := flowTable(rows).Lines()
			p.Head, p.Rows = lines[0], lines[1:]
			for i, r := range rows {
				if !r.Window.Active {
					p.Rows[i] = screen.Faint.Render(p.Rows[i])
				}
			}
			return p
		}}
}

func devices(doc *status.Document) []string {
	lines := deviceTable(doc).Lines()
	lines[0] = screen.Head.Render(lines[0])
	for i, d := range doc.Devices {
		if deviceState(d) != "ok" {
			lines[i+1] = screen.Alarm.Render(lines[i+1])
		}
	}
	return lines
}

// others are the largest foreign users, under an empty line, if the screen has room
// for them beside some flows.
func others(doc *status.Document, height int) []string {
	const few, leave = 5, 16
	n := min(few, height-leave-len(doc.Devices))
	if n <= 0 {
		return nil
	}
	lines := foreigners(doc, n)
	if len(lines) == 0 {
		return nil
	}
	lines[0] = screen.Head.Render(lines[0])
	return append([]string{""}, lines...)
}

// WriteJSON writes a document as one line.
func WriteJSON(w io.Writer, doc *status.Document) error { return json.NewEncoder(w).Encode(doc) }

// WriteText gives a writer of documents as text, an empty line after each.
func WriteText(address string, s Selection) func(io.Writer, *status.Document) error {
	return func(w io.Writer, doc *status.Document) error {
		_, err := fmt.Fprintln(w, Text(doc, address, s))
		return err
	}
}
