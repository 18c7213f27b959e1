package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"penstock/node/status"
)

// Source gives the daemon's status.
type Source func(context.Context) (*status.Document, error)

// Model is the terminal's view, in the library's sense: a state that messages
// change and that can be drawn.
type Model struct {
	address   string
	interval  time.Duration
	selection Selection
	ctx       context.Context
	source    Source

	doc     *status.Document
	err     error // of the last attempt
	paused  bool
	editing bool // the filter
	width   int
	height  int
	offset  int // first flow shown
}

// NewModel makes the view of one daemon. Ending ctx ends questions under way.
func NewModel(ctx context.Context, source Source, address string, interval time.Duration, s Selection) Model {
	return Model{address: address, interval: interval, selection: s, ctx: ctx, source: source}
}

type (
	answerMsg struct {
		doc *status.Document
		err error
	}
	tickMsg struct{}
)

var (
	bold  = lipgloss.NewStyle().Bold(true)
	head  = lipgloss.NewStyle().Reverse(true)
	faint = lipgloss.NewStyle().Faint(true)
	alarm = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("1"))
)

func (m Model) ask() tea.Msg {
	doc, err := m.source(m.ctx)
	return answerMsg{doc, err}
}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return m.ask }

// Update implements tea.Model. There is one question or one tick under way at a
// time, so that a slow daemon is not asked twice at once.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case answerMsg:
		if !m.paused {
			m.err = msg.err
			if msg.err == nil {
				m.doc = msg.doc
			}
		}
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
	case tickMsg:
		if m.paused {
			return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
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

// edit takes a key while the filter is typed.
func (m Model) edit(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	const longest = 128 // as a flow's name
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

func (m Model) key(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	page := max(1, m.room())
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
		m.turn(1)
	case "S", "left":
		m.turn(-1)
	case "down", "j":
		m.scroll(1)
	case "up", "k":
		m.scroll(-1)
	case "pgdown":
		m.scroll(page)
	case "pgup":
		m.scroll(-page)
	case "home", "g":
		m.offset = 0
	}
	return m, nil
}

func (m *Model) turn(by int) {
	n := len(Columns)
	m.selection.Sort = Columns[(slices.Index(Columns, m.selection.Sort)+by+n)%n]
}

func (m *Model) scroll(by int) {
	if m.doc != nil {
		m.offset = max(0, min(m.offset+by, len(m.selection.rows(m.doc))-1))
	}
}

// room is how many flows fit on the screen.
func (m Model) room() int {
	const around = 6 // two headlines, two heads, an empty line, the help
	if m.doc == nil {
		return 0
	}
	return m.height - around - len(m.doc.Devices) - len(m.others())
}

// View implements tea.Model.
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines are the screen's.
func (m Model) lines() []string {
	lines := []string{}
	if m.doc == nil {
		lines = append(lines, bold.Render("penstock "+printable(m.address)))
	} else {
		lines = append(lines, bold.Render(headline(m.doc, m.address)))
	}
	lines = append(lines, m.notice())
	if m.doc != nil {
		lines = append(lines, m.devices()...)
		lines = append(lines, m.others()...)
		lines = append(lines, "")
		lines = append(lines, m.flows()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = lines[:max(0, min(len(lines), m.height-1))]
	lines = append(lines, m.help())
	fit := lipgloss.NewStyle().MaxWidth(m.width)
	for i := range lines {
		lines[i] = fit.Render(lines[i])
	}
	return lines
}

// notice is the line under the headline: what is wrong, or what is not shown.
func (m Model) notice() string {
	switch {
	case m.err != nil && m.doc != nil:
		return alarm.Render("old figures: " + printable(m.err.Error()))
	case m.err != nil:
		return alarm.Render(printable(m.err.Error()))
	case m.doc == nil:
		return "asking the daemon"
	case m.paused:
		return alarm.Render("paused: p goes on")
	case len(m.doc.Devices) == 0:
		return "no device yet: one is known once an agent has registered a data directory on it"
	}
	return faint.Render(leftOff(m.doc))
}

func (m Model) devices() []string {
	lines := deviceTable(m.doc).lines()
	lines[0] = head.Render(lines[0])
	for i, d := range m.doc.Devices {
		if deviceState(d) != "ok" {
			lines[i+1] = alarm.Render(lines[i+1])
		}
	}
	return lines
}

// others are the largest foreign users, under an empty line, if the screen has room
// for them beside some flows.
func (m Model) others() []string {
	const few, leave = 5, 16
	n := min(few, m.height-leave-len(m.doc.Devices))
	if n <= 0 {
		return nil
	}
	lines := foreigners(m.doc, n)
	if len(lines) == 0 {
		return nil
	}
	lines[0] = head.Render(lines[0])
	return append([]string{""}, lines...)
}

func (m Model) flows() []string {
	rows := m.selection.rows(m.doc)
	first := max(0, min(m.offset, len(rows)-1))
	last := min(len(rows), first+max(1, m.room()))
	lines := flowTable(rows[first:last]).lines()
	lines[0] = head.Render(lines[0])
	for i, r := range rows[first:last] {
		if !r.Window.Active {
			lines[i+1] = faint.Render(lines[i+1])
		}
	}
	return lines
}

func (m Model) help() string {
	if m.editing {
		return "filter: " + m.selection.Filter + "_  (enter keeps it, esc drops it)"
	}
	order := m.selection.Sort
	if m.selection.Reverse {
		order += " reversed"
	}
	parts := []string{"q quit", "p pause", "s sort: " + order, "r reverse", "/ filter"}
	if m.selection.Filter != "" {
		parts[4] += fmt.Sprintf(": %s (esc drops it)", m.selection.Filter)
	}
	if m.selection.HideIdle {
		parts = append(parts, "i show idle")
	} else {
		parts = append(parts, "i hide idle")
	}
	if n := len(m.rowsOrNone()); n > max(1, m.room()) {
		parts = append(parts, fmt.Sprintf("up down: %d to %d of %d", m.offset+1, min(n, m.offset+max(1, m.room())), n))
	}
	return faint.Render(strings.Join(parts, "  "))
}

func (m Model) rowsOrNone() []row {
	if m.doc == nil {
		return nil
	}
	return m.selection.rows(m.doc)
}

// Run shows the view on the terminal until the reader quits or ctx ends, which
// gives ctx's error. The terminal is put back in either case.
func Run(ctx context.Context, m tea.Model, options ...tea.ProgramOption) error {
	options = append(options, tea.WithContext(ctx), tea.WithoutSignalHandler())
	_, err := tea.NewProgram(m, options...).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
