package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// The styles of lines.
var (
	Bold  = lipgloss.NewStyle().Bold(true)
	Head  = lipgloss.NewStyle().Reverse(true)
	Faint = lipgloss.NewStyle().Faint(true)
	Alarm = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("1"))
)

// View defines how documents are shown.
type View[D any] struct {
	Title   string   // the headline while there is no document
	Asked   string   // source of the documents, such as "the daemon"
	Columns []string // columns to sort by
	Source  func(context.Context) (D, error)
	// Views are the names of the views, each with a key; empty if there is only one view.
	Views []Key
	// Help is shown by the key ?.
	Help []string
	// Take, if not nil, is called once with each document.
	Take func(D)
	// Draw draws a document for a screen of that size.
	Draw func(d D, s Selection, width, height int) Page
}

// Key names a view and the key that shows it.
type Key struct{ Key, View string }

// Page is a document's lines.
type Page struct {
	Headline string
	Note     string   // about rows that are not shown; empty: none
	Above    []string // above the table; these do not scroll
	Head     string
	Rows     []string
}

// Model is a view on a terminal, a Model of the library bubbletea.
type Model[D any] struct {
	view      View[D]
	selection Selection
	interval  time.Duration
	ctx       context.Context

	doc     D
	has     bool      // there is a document
	at      time.Time // when it arrived
	err     error     // of the last attempt
	paused  bool
	editing bool // the filter is being edited
	helping bool // the help is shown
	width   int
	height  int
	offset  int // first row shown
}

// NewModel returns a model that queries the source at each interval. The end of ctx cancels queries
// in progress.
func NewModel[D any](ctx context.Context, v View[D], interval time.Duration, s Selection) Model[D] {
	return Model[D]{view: v, selection: s, interval: interval, ctx: ctx}
}

// Answer is a message with the result of a query.
type Answer[D any] struct {
	Doc D
	Err error
}

type tickMsg struct{}

func (m Model[D]) ask() tea.Msg {
	doc, err := m.view.Source(m.ctx)
	return Answer[D]{doc, err}
}

// Init implements tea.Model.
func (m Model[D]) Init() tea.Cmd { return m.ask }

// Update implements tea.Model.
func (m Model[D]) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	tick := tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case Answer[D]:
		if !m.paused {
			m.err = msg.Err
			if msg.Err == nil {
				m.doc, m.has, m.at = msg.Doc, true, time.Now()
				if m.view.Take != nil {
					m.view.Take(msg.Doc)
				}
			}
		}
		return m, tick
	case tickMsg:
		if m.paused {
			return m, tick
		}
		return m, m.ask
	case tea.KeyPressMsg:
		if m.editing {
			return m.edit(msg)
		}
		return m.key(msg)
	}
	return m, nil
}

// edit handles a key while the filter is edited.
func (m Model[D]) edit(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	const longest = 128 // the maximum length of a flow's name
	filter := []rune(m.selection.Filter)
	switch key.String() {
	case "ctrl+c":
		return m, tea.Quit
	case "enter":
		m.editing = false
	case "esc":
		m.editing, filter = false, nil
	case "backspace":
		filter = filter[:max(0, len(filter)-1)]
	default:
		filter = append(filter, []rune(key.Text)...)
	}
	m.selection.Filter, m.offset = string(filter[:min(len(filter), longest)]), 0
	return m, nil
}

func (m Model[D]) key(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	turn := func(by int) {
		n := len(m.view.Columns)
		m.selection.Sort = m.view.Columns[(slices.Index(m.view.Columns, m.selection.Sort)+by+n)%n]
	}
	page := m.page()
	room := m.room(page)
	m.helping = key.String() == "?" && !m.helping && len(m.view.Help) > 0
	for i, v := range m.view.Views {
		now := max(0, slices.IndexFunc(m.view.Views, func(k Key) bool { return k.View == m.selection.View }))
		if key.String() == v.Key || key.String() == "tab" && i == (now+1)%len(m.view.Views) {
			m.selection.View, m.offset = v.View, 0
			return m, nil
		}
	}
	switch key.String() {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "p", "space":
		m.paused = !m.paused
	case "/":
		m.editing = true
	case "esc":
		m.selection.Filter, m.offset = "", 0
	case "i":
		m.selection.HideIdle, m.offset = !m.selection.HideIdle, 0
	case "r":
		m.selection.Reverse = !m.selection.Reverse
	case "s", "right":
		turn(1)
	case "S", "left":
		turn(-1)
	case "down", "j":
		m.offset++
	case "up", "k":
		m.offset--
	case "pgdown":
		m.offset += room
	case "pgup":
		m.offset -= room
	case "home", "g":
		m.offset = 0
	case "end", "G":
		m.offset = len(page.Rows)
	}
	if m.has {
		m.offset = m.first(len(m.page().Rows), room)
	}
	return m, nil
}

func (m Model[D]) page() Page {
	if !m.has {
		return Page{Headline: m.view.Title}
	}
	return m.view.Draw(m.doc, m.selection, m.width, m.height)
}

// room returns the number of rows that fit on the screen.
func (m Model[D]) room(p Page) int {
	const around = 4 // headline, notice, head, help
	return max(1, m.height-around-len(p.Above))
}

// first returns the first row shown. It is limited so that the last rows fill the screen.
func (m Model[D]) first(rows, room int) int { return max(0, min(m.offset, rows-room)) }

// View implements tea.Model.
func (m Model[D]) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the screen's lines.
func (m Model[D]) lines() []string {
	page := m.page()
	room := m.room(page)
	first := m.first(len(page.Rows), room)
	last := min(len(page.Rows), first+room)
	lines := append([]string{Bold.Render(page.Headline)}, m.notice(page, first, last)...)
	if m.helping {
		lines = append(lines, m.view.Help...)
	} else if m.has {
		lines = append(lines, page.Above...)
		lines = append(lines, Head.Render(page.Head))
		lines = append(lines, page.Rows[first:last]...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-1))], m.help())
	fit := lipgloss.NewStyle().MaxWidth(m.width)
	for i := range lines {
		lines[i] = fit.Render(lines[i])
	}
	return lines
}

// notice returns the line under the headline: that the view is paused, an error, or which rows are
// not shown. Without figures there is room for the complete error. A paused view does not notice
// the end of an error, so "paused" comes first.
func (m Model[D]) notice(p Page, first, last int) []string {
	const goesOn = "paused: p goes on"
	paused := ""
	if m.paused {
		paused = goesOn + "; "
	}
	switch {
	case m.err != nil && !m.has:
		return strings.Split(Alarm.Width(m.width).Render(paused+Printable(m.err.Error())), "\n")
	case m.err != nil:
		return []string{Alarm.Render(paused + "figures of " + m.at.Format(time.TimeOnly) + ": " + Printable(m.err.Error()))}
	case m.paused:
		return []string{Alarm.Render(goesOn)}
	case !m.has:
		return []string{"asking " + m.view.Asked}
	}
	notes := []string{}
	if p.Note != "" {
		notes = append(notes, p.Note)
	}
	if n := len(p.Rows); last-first < n {
		notes = append(notes, fmt.Sprintf("%d to %d of %d, up and down scroll", first+1, last, n))
	} else if n == 0 && m.selection.Filter != "" {
		notes = append(notes, "nothing matches the filter")
	}
	return []string{Faint.Render(strings.Join(notes, "; "))}
}

func (m Model[D]) help() string {
	if m.editing {
		return "filter: " + Printable(m.selection.Filter) + "_  (enter keeps it, esc drops it)"
	}
	order := m.selection.Sort
	if m.selection.Reverse {
		order += " reversed"
	}
	filter, idle := "/ filter", "i hide idle"
	if m.selection.Filter != "" {
		filter = "/ filter: " + Printable(m.selection.Filter) + " (esc drops it)"
	}
	if m.selection.HideIdle {
		idle = "i show idle"
	}
	var keys []string
	for _, v := range m.view.Views {
		keys = append(keys, v.Key+" "+v.View)
	}
	if len(m.view.Help) > 0 {
		keys = append(keys, "? help")
	}
	keys = append(keys, "q quit", "s sort: "+order, filter, idle, "p pause", "r reverse")
	line := keys[0]
	for _, k := range keys[1:] { // a key that does not fit is left out; the help lists all keys
		if len([]rune(line))+2+len([]rune(k)) > m.width {
			break
		}
		line += "  " + k
	}
	return Faint.Render(line)
}
