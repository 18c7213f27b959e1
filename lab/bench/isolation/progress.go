package isolation

import (
	"fmt"
	"io"
	"sync"
	"time"

	"penstock/lab/experiment/figures"
)

// Progress prints a line for each step and, while a job runs, a line every few seconds, which
// it rewrites on a terminal. A nil Progress prints nothing.
type Progress struct {
	Out      io.Writer
	Terminal bool          // rewrite the live line
	Every    time.Duration // between live lines when not on a terminal; default 10 s
	// PlainName returns a phase's name in the lines; nil: as on the command line.
	PlainName func(phase string) string

	mu       sync.Mutex
	begun    time.Time
	setup    Setup
	todo     []Turn
	kinds    []turnKind             // of todo
	lengths  map[turnKind][]float64 // seconds of whole turns
	several  bool                   // runs of a phase
	ahead    int                    // turns to do that are not planned yet
	turn     Turn
	turnFrom time.Time
	name     string
	printed  time.Time
	live     bool
}

// begin starts the clock.
func (p *Progress) begin() {
	if p != nil {
		p.begun = time.Now()
	}
}

// elapsed is the time since begin.
func (p *Progress) elapsed() string {
	if p == nil {
		return ""
	}
	return clock(time.Since(p.begun))
}

// label is the phase of a turn, with the run's number if there are several.
func (p *Progress) label(phase string, run int) string {
	if p.PlainName != nil {
		phase = p.PlainName(phase)
	}
	if p.several {
		phase += fmt.Sprintf(" run %d", run)
	}
	return fmt.Sprintf("%-27s", phase)
}

// Printf writes a line of its own, above the live line.
func (p *Progress) Printf(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.Out, format+"\n", args...)
}

// turnKind distinguishes turns by how long they take: much shorter if the aggressor is killed
// after the window.
type turnKind struct {
	phase  string
	killed bool
}

// plan sets the turns to do and the finished runs.
func (p *Progress) plan(setup Setup, todo []Turn, had []Run, checkAll bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.setup, p.todo = setup, todo
	if p.lengths == nil {
		p.lengths = map[turnKind][]float64{}
	}
	checked := map[string]bool{}
	for _, r := range had {
		k := turnKind{r.Phase, r.Killed}
		p.lengths[k] = append(p.lengths[k], r.RuntimeS+r.AfterS+turnOverhead.Seconds())
		checked[r.Phase] = checked[r.Phase] || !r.Killed
	}
	p.kinds = nil
	for _, t := range todo {
		name := t.Phase.Name
		p.several = p.several || t.Run > 1
		p.kinds = append(p.kinds, turnKind{name, t.Phase.Against && !checkAll && checked[name]})
		checked[name] = true
	}
	p.mu.Unlock()
	if len(had) > 0 {
		p.Printf("%d runs are in the journal, %d to do", len(had), len(todo))
	}
}

func (p *Progress) step(t Turn, name string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t != p.turn {
		p.turn, p.turnFrom = t, time.Now()
	}
	p.name = name
	p.clear()
	fmt.Fprintf(p.Out, "%s  %s  %-20s %s left\n", p.elapsed(), p.label(t.Phase.Name, t.Run), name, p.remaining())
	p.printed = time.Now()
}

// throughput rewrites the live line with the last seconds' device MB/s.
func (p *Progress) throughput(samples []diskSample) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	every := p.Every
	switch {
	case p.Terminal:
		every = time.Second
	case every == 0:
		every = 10 * time.Second
	}
	if time.Since(p.printed) < every || len(samples) < 2 {
		return
	}
	p.printed = time.Now()
	last := samples[len(samples)-1]
	from := last.at.Add(-2 * time.Second)
	var mbps float64
	for _, name := range diskNames(samples) {
		mbps += grown(samples, from, last.at, name, both) / megabyte / 2
	}
	text := fmt.Sprintf("%s  %s  %-20s %s left  disks %5.1f MB/s", p.elapsed(), p.label(p.turn.Phase.Name, p.turn.Run), p.name, p.remaining(), mbps)
	if p.Terminal {
		fmt.Fprintf(p.Out, "\r\x1b[K%s", text)
		p.live = true
		return
	}
	fmt.Fprintln(p.Out, text)
}

func (p *Progress) finished(r Run) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := turnKind{r.Phase, r.Killed}
	p.lengths[k] = append(p.lengths[k], time.Since(p.turnFrom).Seconds())
	if len(p.todo) > 0 {
		p.todo, p.kinds = p.todo[1:], p.kinds[1:]
	}
	p.clear()
	outputs := "outputs correct"
	if r.Killed {
		outputs = "its output correct, " + p.setup.aggressor().title() + " killed"
	}
	fmt.Fprintf(p.Out, "%s  %s  done: %s %.1f s, disks %.1f MB/s, %s\n", p.elapsed(), p.label(r.Phase, r.Number),
		p.setup.measured(Phase{Unprotected: r.Protected == ""}), r.RuntimeS, r.DeviceMBps, outputs)
	for _, w := range r.Warnings {
		fmt.Fprintln(p.Out, "       note:", w)
	}
}

func (p *Progress) clear() {
	if p.live {
		fmt.Fprint(p.Out, "\r\x1b[K")
		p.live = false
	}
}

// turnOverhead is the time of a turn beside the protected job and the work after it.
const turnOverhead = 20 * time.Second

// remaining estimates the time for the turns to do: by turns of the same kind, else of other
// phases that check as much, else by any turns, else by the disks' rate.
func (p *Progress) remaining() string {
	var all []float64
	alike := map[bool][]float64{}
	for k, l := range p.lengths {
		all = append(all, l...)
		alike[k.killed] = append(alike[k.killed], l...)
	}
	rough := turnOverhead.Seconds()*2 + float64(p.setup.Protected.InputBytes)/
		float64(max(1, p.setup.Disk.BytesPerSecond*int64(p.setup.Disk.DataNodes)))*2
	sum := rough * float64(p.ahead)
	for i, t := range p.todo {
		k := p.kinds[i]
		one := rough
		for _, known := range [][]float64{p.lengths[k], alike[k.killed], all} {
			if len(known) > 0 {
				one = figures.Median(known)
				break
			}
		}
		if i == 0 && t == p.turn {
			one = max(5, one-time.Since(p.turnFrom).Seconds())
		}
		sum += one
	}
	return "about " + clock(time.Duration(sum*float64(time.Second)))
}

func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}
