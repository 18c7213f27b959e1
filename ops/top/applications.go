package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"penstock/node/device"
	"penstock/node/status"
	"penstock/ops/screen"
	"penstock/settings"
)

// State is an application's state, in one or two words.
type State string

// The states, the most urgent for an operator first.
const (
	Starved  State = "starved"      // waits, and has less than half of its due
	Waiting  State = "waits"        // waits, and has less than its due
	OverDue  State = "over its due" // has more than its due while another application waits
	AtLimit  State = "at its limit" // its limit holds it back
	HeldBack State = "held back"    // waits, and has its due
	Spare    State = "uses spare"   // has more than its due, because no other application wants it
	Content  State = "content"      // has what it wants
	Idle     State = "idle"         // wants nothing
)

const (
	starvedBelow = 0.5  // of its due
	lessThanDue  = 0.9  // of its due
	moreThanDue  = 1.1  // of its due
	moreAtLeast  = 0.02 // of the disks' service: the least excess that counts as more than the due
	limitReached = 0.9
)

// Application is a row of the first view: one application on all disks of the node.
type Application struct {
	Name    string
	Weight  int     // the largest on any disk
	Share   float64 // of the disks' service in the window, 0 to 1
	Due     float64 // its entitlement, 0 to 1
	Read    float64 // bytes a second
	Written float64
	Backlog int64 // bytes
	Limit   int64 // bytes a second on a disk; 0 for none
	Queued  int   // requests that wait
	Waits   float64
	State   State

	// limited reports whether the application has reached its limit on a disk. freeShare and
	// freeDue are its share and its due on the other disks.
	limited            bool
	freeShare, freeDue float64
	queuedWithoutLimit int
}

// Applications sums up the flows of each application on all disks, as if they were one disk with
// the sum of their busy times. Traffic over the network is left out.
func Applications(doc *status.Document) []Application {
	byName := map[string]*Application{}
	var order []string
	busy := 0.0
	for _, d := range doc.Devices {
		if d.Name == device.NetworkName || d.Window.Seconds <= 0 {
			continue
		}
		part := d.Window.Utilisation
		if !d.Kernel.Counted {
			part = 1
		}
		busy += part
		for _, f := range d.Flows {
			a := byName[f.Name]
			if a == nil {
				a = &Application{Name: screen.Printable(f.Name)}
				byName[f.Name] = a
				order = append(order, f.Name)
			}
			a.add(f, d.Window.Seconds, part)
		}
	}
	var all []Application
	for _, name := range order {
		a := byName[name]
		if busy > 0 {
			a.Share, a.Due = a.Share/busy, a.Due/busy
			a.freeShare, a.freeDue = a.freeShare/busy, a.freeDue/busy
		}
		all = append(all, *a)
	}
	judge(all)
	return all
}

// add adds a flow on a disk that was busy for a part of the window.
func (a *Application) add(f status.Flow, seconds, part float64) {
	a.Weight = max(a.Weight, f.Weight)
	share, due := part*f.Window.Share, 0.0
	if f.Window.Active {
		due = part * f.Window.Entitlement
	}
	a.Share += share
	a.Due += due
	a.Read += float64(f.Window.Bytes.Read) / seconds
	a.Written += float64(f.Window.Bytes.Written) / seconds
	a.Backlog += f.BacklogBytes
	a.Limit = max(a.Limit, f.LimitBytes)
	a.Queued += f.Queued
	a.Waits += float64(f.Window.Waits) / seconds
	if f.LimitBytes > 0 && float64(f.Window.Bytes.Read+f.Window.Bytes.Written)/seconds >= limitReached*float64(f.LimitBytes) {
		a.limited = true
		return
	}
	a.freeShare += share
	a.freeDue += due
	a.queuedWithoutLimit += f.Queued
}

// judge sets each application's state.
func judge(all []Application) {
	hurt := false
	for i := range all {
		a := &all[i]
		// A limit on one disk does not explain why the application waits for another disk.
		waits := a.queuedWithoutLimit > 0
		switch {
		case waits && a.freeShare < starvedBelow*a.freeDue:
			a.State, hurt = Starved, true
		case waits && a.freeShare < lessThanDue*a.freeDue:
			a.State, hurt = Waiting, true
		case a.limited:
			a.State = AtLimit
		case waits:
			a.State = HeldBack
		case a.Share > 0 || a.Backlog > 0:
			a.State = Content
		default:
			a.State = Idle
		}
	}
	for i := range all {
		a := &all[i]
		if a.State == AtLimit || a.Share <= moreThanDue*a.Due || a.Share < a.Due+moreAtLeast {
			continue
		}
		if a.State = Spare; hurt {
			a.State = OverDue
		}
	}
}

// Verdict returns a sentence about which application harms which.
func Verdict(doc *status.Document, all []Application) string {
	var victim, aggressor *Application
	for i := range all {
		a := &all[i]
		if (a.State == Starved || a.State == Waiting) && (victim == nil || a.Due-a.Share > victim.Due-victim.Share) {
			victim = a
		}
		if a.State == OverDue && (aggressor == nil || a.Share-a.Due > aggressor.Share-aggressor.Due) {
			aggressor = a
		}
	}
	const much = 0.25 // of a disk's busy time
	for _, d := range doc.Devices {
		if d.OthersPart >= much && (victim != nil || d.OthersPart >= 0.5) {
			who := "I/O of others"
			if top := d.ForeignUsers.Top; len(top) > 0 {
				who = screen.Printable(top[0].Name) + " (not governed)"
			}
			return fmt.Sprintf("%s takes %s of %s's time", who, whole(d.OthersPart), d.Name)
		}
	}
	switch {
	case victim == nil && len(all) == 0:
		return "no application is active"
	case victim == nil:
		return "nobody is hurt"
	case aggressor == nil:
		return fmt.Sprintf("%s waits: it has %s and is due %s", screen.Short(victim.Name, nameInSentence), whole(victim.Share), whole(victim.Due))
	}
	return fmt.Sprintf("%s takes %s, due %s; %s waits with %s, due %s", screen.Short(aggressor.Name, nameInSentence),
		whole(aggressor.Share), whole(aggressor.Due), screen.Short(victim.Name, nameInSentence), whole(victim.Share), whole(victim.Due))
}

func whole(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// selectedApplications returns the applications to show, in order.
func selectedApplications(all []Application, s Selection) []Application {
	all = slices.DeleteFunc(slices.Clone(all), func(a Application) bool {
		return s.HideIdle && a.State == Idle || !strings.Contains(a.Name, s.Filter)
	})
	by := map[string]func(a, b Application) int{
		"due":         func(a, b Application) int { return cmp.Compare(b.Due, a.Due) },
		"rate":        func(a, b Application) int { return cmp.Compare(b.Read+b.Written, a.Read+a.Written) },
		"backlog":     func(a, b Application) int { return cmp.Compare(b.Backlog, a.Backlog) },
		"weight":      func(a, b Application) int { return cmp.Compare(b.Weight, a.Weight) },
		"application": func(a, b Application) int { return strings.Compare(a.Name, b.Name) },
	}[s.Sort]
	if by == nil { // share; the other columns are of single flows
		by = func(a, b Application) int { return cmp.Compare(b.Share, a.Share) }
	}
	slices.SortStableFunc(all, func(a, b Application) int {
		c := by(a, b)
		if s.Reverse {
			c = -c
		}
		return cmp.Or(c, strings.Compare(a.Name, b.Name))
	})
	return all
}

// The widths of columns.
const (
	nameLeast, nameMost = 18, 36
	barLeast, barMost   = 12, 40
	minuteWidth         = 12
	nameInSentence      = 14 // so that the sentence fits into 80 columns
)

// column is a column of the first view. Columns are shown in their order as long as there is room.
type column struct {
	head  string
	width int
	cell  func(Application) string
}

func columns(h *History) []column {
	return []column{
		{"SHARE", 5, func(a Application) string { return whole(a.Share) }},
		{"DUE", 5, func(a Application) string { return whole(a.Due) }},
		{"MiB/S", 6, func(a Application) string { return fmt.Sprintf("%.1f", settings.MiB(a.Read+a.Written)) }},
		{"LAST MINUTE", minuteWidth, func(a Application) string { return h.Sparkline(a.Name, minuteWidth) }},
		{"READ", 6, func(a Application) string { return fmt.Sprintf("%.1f", settings.MiB(a.Read)) }},
		{"WRITTEN", 7, func(a Application) string { return fmt.Sprintf("%.1f", settings.MiB(a.Written)) }},
		{"BACKLOG", 9, func(a Application) string { return mebibytes(a.Backlog) }},
		{"WEIGHT", 6, func(a Application) string { return fmt.Sprint(a.Weight) }},
		{"LIMIT", 10, func(a Application) string {
			if a.Limit == 0 {
				return "-"
			}
			return settings.Rate(float64(a.Limit))
		}},
		{"WAITS/S", 7, func(a Application) string { return fmt.Sprintf("%.1f", a.Waits) }},
	}
}

const stateWidth = len(OverDue)

// applicationLines draws the first view; its first line is the head. Name, state and bar are always
// shown. The remaining width goes first to as many more columns as fit, and then to longer names
// and a wider bar.
func applicationLines(all []Application, h *History, width int) []string {
	name, bar := nameLeast, barLeast
	left := width - name - bar - stateWidth - 2
	var shown []column
	for _, c := range columns(h) {
		if left < c.width+1 {
			break
		}
		left -= c.width + 1
		shown = append(shown, c)
	}
	longest := 0
	for _, a := range all {
		longest = max(longest, len([]rune(a.Name)))
	}
	more := max(0, min(left, min(longest, nameMost)-name))
	name, left = name+more, left-more
	bar = min(barMost, bar+max(0, left))
	head := fmt.Sprintf("%-*s %-*s %-*s", name, "APPLICATION", stateWidth, "STATE", bar, "SHARE, | DUE")
	for _, c := range shown {
		head += fmt.Sprintf(" %*s", c.width, c.head)
	}
	lines := []string{strings.TrimRight(head, " ")}
	for _, a := range all {
		line := fmt.Sprintf("%-*s %-*s %s", name, screen.Short(a.Name, name), stateWidth, a.State, screen.Bar(a.Share, a.Due, bar))
		for _, c := range shown {
			line += fmt.Sprintf(" %*s", c.width, c.cell(a))
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
