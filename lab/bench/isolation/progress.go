package isolation

import (
	"fmt"
	"sync"
	"time"

	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/progress"
)

// Progress prints a line for each step of a run and, while a job runs, the disks' throughput. A nil
// Progress prints nothing.
type Progress struct {
	*progress.Log
	// PlainName returns a phase's name in the lines; nil: as on the command line.
	PlainName func(phase string) string

	mu       sync.Mutex
	setup    Setup
	todo     []Turn
	kinds    []turnKind             // of todo
	lengths  map[turnKind][]float64 // seconds of whole turns
	several  bool                   // runs of a phase
	ahead    int                    // turns to do that are not planned yet
	turn     Turn
	turnFrom time.Time
	name     string
}

// Printf prints a line.
func (p *Progress) Printf(format string, args ...any) {
	if p != nil {
		p.Log.Printf(format, args...)
	}
}

// elapsed is the time since the first line.
func (p *Progress) elapsed() string {
	if p == nil {
		return ""
	}
	return progress.Clock(p.Elapsed())
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
	p.Printf("%s", p.state())
}

// state is the present step with the estimated rest of the time.
func (p *Progress) state() string {
	return fmt.Sprintf("%s  %-20s %s left", p.label(p.turn.Phase.Name, p.turn.Run), p.name, p.remaining())
}

// throughput prints the live line with the device MB/s of the last seconds.
func (p *Progress) throughput(samples []diskSample) {
	if p == nil || len(samples) < 2 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Live(func() string {
		last := samples[len(samples)-1]
		from := last.at.Add(-2 * time.Second)
		var mbps float64
		for _, name := range diskNames(samples) {
			mbps += grown(samples, from, last.at, name, both) / megabyte / 2
		}
		return fmt.Sprintf("%s  disks %5.1f MB/s", p.state(), mbps)
	})
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
	outputs := "outputs correct"
	if r.Killed {
		outputs = "its output correct, " + p.setup.aggressor().title() + " killed"
	}
	p.Printf("%s  done: %s %.1f s, disks %.1f MB/s, %s", p.label(r.Phase, r.Number),
		p.setup.measured(Phase{Unprotected: r.Protected == ""}), r.RuntimeS, r.DeviceMBps, outputs)
	for _, w := range r.Warnings {
		p.Printf("note: %s", w)
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
	return "about " + progress.Clock(time.Duration(sum*float64(time.Second)))
}
