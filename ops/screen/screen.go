// Package screen is what the live views of a node and of the cluster have in common: a
// headline, a few lines above, and a table that is sorted, filtered and scrolled.
//
// What is shown is made from one document by the view's Draw, so that a terminal, a
// pipe and a report have the same figures. A model (model.go) is a state that messages
// change and that can be drawn, which can be tested without a terminal; the library does
// raw mode, resizing and putting the terminal back. There is one question or one tick
// under way at a time, so that who is slow is not asked twice at once. When nobody
// answers any more the figures stay, marked as old: an operator who looks at a fault
// wants to see what was before it.
//
// Names come from other processes: what cannot be printed is not sent to the terminal.
package screen

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Selection says what of a document is drawn, and in which order.
type Selection struct {
	Sort     string // one of the view's columns
	Reverse  bool
	Filter   string // rows whose names contain it; empty: all
	HideIdle bool   // leave out rows in which nothing happens
	View     string // one of the view's names; empty: the first
}

// Check refuses an unknown column.
func (s Selection) Check(columns []string) error {
	if !slices.Contains(columns, s.Sort) {
		return fmt.Errorf("sort by %q: use one of %s", s.Sort, strings.Join(columns, ", "))
	}
	return nil
}

// Printable makes what other processes have named fit for a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// PrintableLines is Printable for text of several lines: breaks and tabs stay.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		fields := strings.Split(l, "\t")
		for j, f := range fields {
			fields[j] = Printable(f)
		}
		lines[i] = strings.Join(fields, "\t")
	}
	return strings.Join(lines, "\n")
}

// Table is columns of text.
type Table struct {
	heads []string
	right []bool
	cells [][]string
}

// NewTable makes a table with heads, | between them; those that begin with > are of
// columns that are set to the right, as numbers are.
func NewTable(heads string) *Table {
	t := &Table{}
	for _, h := range strings.Split(heads, "|") {
		name, right := strings.CutPrefix(h, ">")
		t.heads, t.right = append(t.heads, name), append(t.right, right)
	}
	return t
}

// Add adds a row. Empty cells become "-"; those that are missing stay empty.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.heads))
	for i, c := range cells {
		if row[i] = Printable(c); c == "" {
			row[i] = "-"
		}
	}
	t.cells = append(t.cells, row)
}

// Lines are the head and a line for each row.
func (t *Table) Lines() []string {
	widths := make([]int, len(t.heads))
	all := append([][]string{t.heads}, t.cells...)
	for _, cells := range all {
		for i, c := range cells {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	lines := make([]string, len(all))
	for n, cells := range all {
		var b strings.Builder
		for i, c := range cells {
			if i > 0 {
				b.WriteString("  ")
			}
			if t.right[i] {
				fmt.Fprintf(&b, "%*s", widths[i], c)
			} else {
				fmt.Fprintf(&b, "%-*s", widths[i], c)
			}
		}
		lines[n] = strings.TrimRight(b.String(), " ")
	}
	return lines
}
