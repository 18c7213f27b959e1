// Package screen is the common part of the live views of a node and of the cluster: a headline, a
// few lines below it, and a table that is sorted, filtered and scrolled.
//
// The view's Draw makes the page from one document, so that a terminal, a pipe and a report have
// the same figures. A model (model.go) is a state that messages change and that can be drawn, so it
// can be tested without a terminal; the library is responsible for raw mode, resizing and restoring
// the terminal. Only one query or one tick is in progress at a time, so that a slow source does not
// get two queries at once. When the source no longer answers, the figures stay, marked as old: an
// operator who investigates a fault wants to see the state before it.
//
// Names come from other processes: unprintable characters are not sent to the terminal.
package screen

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Selection selects the parts of a document to draw, and their order.
type Selection struct {
	Sort     string // one of the view's columns
	Reverse  bool
	Filter   string // rows whose names contain it; empty: all
	HideIdle bool   // leave out rows without activity
	View     string // one of the view's names; empty: the first
}

// Check refuses an unknown column.
func (s Selection) Check(columns []string) error {
	if !slices.Contains(columns, s.Sort) {
		return fmt.Errorf("sort by %q: use one of %s", s.Sort, strings.Join(columns, ", "))
	}
	return nil
}

// Printable makes a name from another process safe for a terminal.
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

// NewTable returns a table with the given heads, separated by |. A head that begins with > marks a
// right-aligned column, as for numbers.
func NewTable(heads string) *Table {
	t := &Table{}
	for _, h := range strings.Split(heads, "|") {
		name, right := strings.CutPrefix(h, ">")
		t.heads, t.right = append(t.heads, name), append(t.right, right)
	}
	return t
}

// Add adds a row. Empty cells become "-"; missing cells stay empty.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.heads))
	for i, c := range cells {
		if row[i] = Printable(c); c == "" {
			row[i] = "-"
		}
	}
	t.cells = append(t.cells, row)
}

// Within drops the columns with the given heads, in that order, until the lines fit into width. If
// that is not enough, the first column's cells are shortened. It returns the table.
func (t *Table) Within(width int, drop ...string) *Table {
	for _, head := range drop {
		if t.width() <= width {
			return t
		}
		if i := slices.Index(t.heads, head); i >= 0 {
			t.heads, t.right = slices.Delete(t.heads, i, i+1), slices.Delete(t.right, i, i+1)
			for n := range t.cells {
				t.cells[n] = slices.Delete(t.cells[n], i, i+1)
			}
		}
	}
	const least = 12
	first := t.widths()[0]
	if over := t.width() - width; over > 0 {
		for n := range t.cells {
			t.cells[n][0] = Short(t.cells[n][0], max(least, first-over))
		}
	}
	return t
}

// width returns the length of the longest line.
func (t *Table) width() int {
	const gap = 2
	sum := -gap
	for _, w := range t.widths() {
		sum += w + gap
	}
	return sum
}

// widths returns the width of each column.
func (t *Table) widths() []int {
	widths := make([]int, len(t.heads))
	for _, cells := range append([][]string{t.heads}, t.cells...) {
		for i, c := range cells {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	return widths
}

// Lines returns the head and a line for each row.
func (t *Table) Lines() []string {
	widths := t.widths()
	all := append([][]string{t.heads}, t.cells...)
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

// Short returns a name shortened to width characters; width is at least 6. Short keeps the end of
// the name, because YARN's names differ there.
func Short(name string, width int) string {
	runes := []rune(name)
	if len(runes) <= width {
		return name
	}
	const begin = 4
	return string(runes[:begin]) + "…" + string(runes[len(runes)-width+begin+1:])
}

// Bar returns a bar for a share, 0 to 1, with a tick at the due share.
func Bar(share, due float64, width int) string {
	at := func(part float64) int { return min(width, max(0, int(part*float64(width)+0.5))) }
	filled, tick := at(share), min(width-1, at(due))
	var b strings.Builder
	for i := range width {
		switch {
		case i == tick && due > 0:
			b.WriteRune('|')
		case i < filled:
			b.WriteRune('█')
		default:
			b.WriteRune('·')
		}
	}
	return b.String()
}
