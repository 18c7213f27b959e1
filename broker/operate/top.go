package operate

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"penstock/wire/cluster"
)

// View is one look at the whole cluster.
type View struct {
	Nodes        *cluster.ListNodesAnswer
	Applications []*cluster.ApplicationState
	At           time.Time
}

// Look asks for one.
func (c *Client) Look(ctx context.Context) (*View, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	apps, err := c.Applications(ctx, "")
	return &View{nodes, apps, time.Now()}, err
}

// Columns are what applications can be sorted by in the cluster's view.
var Columns = []string{"share", "due", "weight", "nodes", "application"}

// Selection says what of a view is drawn, and in which order.
type Selection struct {
	Sort     string // one of Columns
	Reverse  bool
	Filter   string // applications whose id, queue or user contains it; empty: all
	HideIdle bool   // leave out who gets nothing
}

// Check refuses an unknown column.
func (s Selection) Check() error {
	if !slices.Contains(Columns, s.Sort) {
		return fmt.Errorf("sort by %q: use one of %s", s.Sort, strings.Join(Columns, ", "))
	}
	return nil
}

func (s Selection) of(v *View) []*cluster.ApplicationState {
	var some []*cluster.ApplicationState
	for _, a := range v.Applications {
		idle := s.HideIdle && a.GetRate() == 0
		if !idle && (strings.Contains(a.GetApplication(), s.Filter) || strings.Contains(a.GetQueue(), s.Filter) || strings.Contains(a.GetUser(), s.Filter)) {
			some = append(some, a)
		}
	}
	order := map[string]func(a, b *cluster.ApplicationState) int{
		"share":       func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetShare(), a.GetShare()) },
		"due":         func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetDue(), a.GetDue()) },
		"weight":      func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetWeight(), a.GetWeight()) },
		"nodes":       func(a, b *cluster.ApplicationState) int { return cmp.Compare(b.GetNodes(), a.GetNodes()) },
		"application": func(a, b *cluster.ApplicationState) int { return cmp.Compare(a.GetApplication(), b.GetApplication()) },
	}[s.Sort]
	slices.SortStableFunc(some, func(a, b *cluster.ApplicationState) int {
		c := order(a, b)
		if s.Reverse {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.GetApplication(), b.GetApplication()))
	})
	return some
}

// headline says how large the cluster is and which policy holds, from its oldest to its
// newest version at a node.
func (v *View) headline() string {
	rate, low, high := uint64(0), uint64(0), uint64(0)
	for i, n := range v.Nodes.GetNodes() {
		rate += n.GetRate()
		if i == 0 || n.GetPolicy() < low {
			low = n.GetPolicy()
		}
		high = max(high, n.GetPolicy())
	}
	policy := fmt.Sprint(high)
	if low != high {
		policy = fmt.Sprintf("%d to %d", low, high)
	}
	return fmt.Sprintf("penstock cluster, broker %s: %d nodes, %d applications, %s devices busy, policy %s", Printable(v.Nodes.GetLeader()),
		len(v.Nodes.GetNodes()), len(v.Applications), Service(rate), policy)
}

// lines are the headline, the head and a line for each application.
func (s Selection) lines(v *View) []string {
	var b bytes.Buffer
	fmt.Fprintln(&b, v.headline())
	if err := Applications(&b, s.of(v)); err != nil {
		fmt.Fprintln(&b, err)
	}
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// Text draws a view for a pipe or a file.
func (s Selection) Text(v *View) string { return strings.Join(s.lines(v), "\n") + "\n" }

// Model is the terminal's view, a state that messages change and that can be drawn.
type Model struct {
	selection Selection
	interval  time.Duration
	ctx       context.Context
	source    func(context.Context) (*View, error)

	view    *View
	err     error
	paused  bool
	editing bool
	width   int
	height  int
	offset  int
}

// NewModel makes the view. Ending ctx ends questions under way.
func NewModel(ctx context.Context, source func(context.Context) (*View, error), interval time.Duration, s Selection) Model {
	return Model{selection: s, interval: interval, ctx: ctx, source: source}
}

type (
	answerMsg struct {
		view *View
		err  error
	}
	tickMsg struct{}
)

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return m.ask }

func (m Model) ask() tea.Msg {
	v, err := m.source(m.ctx)
	return answerMsg{v, err}
}

func (m Model) tick() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update implements tea.Model. There is one question or one tick under way at a time.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case answerMsg:
		if m.err = msg.err; msg.err == nil && !m.paused {
			m.view = msg.view
		}
		return m, m.tick()
	case tickMsg:
		if m.paused {
			return m, m.tick()
		}
		return m, m.ask
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	return m, nil
}

func (m Model) key(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := key.String()
	if m.editing {
		const longest = 128
		filter := []rune(m.selection.Filter)
		switch name {
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
	turn := func(by int) {
		n := len(Columns)
		m.selection.Sort = Columns[(slices.Index(Columns, m.selection.Sort)+by+n)%n]
	}
	switch name {
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
		m.offset += max(1, m.height-around)
	case "pgup":
		m.offset -= max(1, m.height-around)
	case "home", "g":
		m.offset = 0
	}
	rows := 0
	if m.view != nil {
		rows = len(m.selection.of(m.view))
	}
	m.offset = max(0, min(m.offset, rows-1))
	return m, nil
}

// around is how many lines there are beside the applications.
const around = 4

// View implements tea.Model.
func (m Model) View() tea.View {
	alarm, faint := lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("1")), lipgloss.NewStyle().Faint(true)
	notice := ""
	switch {
	case m.err != nil:
		notice = alarm.Render("old figures: " + Printable(m.err.Error()))
	case m.paused:
		notice = alarm.Render("paused: p goes on")
	case m.view == nil:
		notice = "asking the broker"
	}
	lines := []string{notice}
	if m.view != nil {
		all := m.selection.lines(m.view)
		first := min(2+m.offset, len(all))
		last := min(len(all), first+max(1, m.height-around))
		lines = append([]string{lipgloss.NewStyle().Bold(true).Render(all[0]), notice, lipgloss.NewStyle().Reverse(true).Render(all[1])}, all[first:last]...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	help := "q quit  p pause  s sort: " + m.selection.Sort + "  r reverse  i idle  / filter"
	if m.editing {
		help = "filter: " + Printable(m.selection.Filter) + "_  (enter keeps it, esc drops it)"
	} else if m.selection.Filter != "" {
		help += ": " + Printable(m.selection.Filter) + " (esc drops it)"
	}
	lines = append(lines[:max(0, min(len(lines), m.height-1))], faint.Render(help))
	fit := lipgloss.NewStyle().MaxWidth(m.width)
	for i := range lines {
		lines[i] = fit.Render(lines[i])
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}
