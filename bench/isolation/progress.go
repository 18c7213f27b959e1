package isolation

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress tells a waiting person what happens: one line a step, and while a
// job runs one line every few seconds, rewritten in place on a terminal. A nil
// Progress is silent.
type Progress struct {
	Out      io.Writer
	Terminal bool          // rewrite the live line
	Every    time.Duration // between live lines when not on a terminal; default 10 s

	mu       sync.Mutex
	begun    time.Time
	setup    Setup
	todo     []Turn
	lengths  map[string][]float64 // seconds of whole turns, by phase
	turn     Turn
	turnFrom time.Time
	name     string
	said     time.Time
	live     bool
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

func (p *Progress) plan(setup Setup, todo []Turn, had []Run) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.begun, p.setup, p.todo = time.Now(), setup, todo
	p.lengths = map[string][]float64{}
	for _, r := range had {
		p.lengths[r.Phase] = append(p.lengths[r.Phase], r.RuntimeS+r.AfterS+turnOverhead.Seconds())
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
	fmt.Fprintf(p.Out, "%s  %-18s run %d  %-22s %s left\n", clock(time.Since(p.begun)), t.Phase.Name, t.Run, name, p.remaining())
	p.said = time.Now()
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
	if time.Since(p.said) < every || len(samples) < 2 {
		return
	}
	p.said = time.Now()
	last := samples[len(samples)-1]
	from := last.at.Add(-2 * time.Second)
	var mbps float64
	for _, name := range diskNames(samples) {
		mbps += grown(samples, from, last.at, name, both) / megabyte / 2
	}
	text := fmt.Sprintf("%s  %-18s run %d  %-22s %s left  disks %5.1f MB/s", clock(time.Since(p.begun)),
		p.turn.Phase.Name, p.turn.Run, p.name, p.remaining(), mbps)
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
	p.lengths[r.Phase] = append(p.lengths[r.Phase], time.Since(p.turnFrom).Seconds())
	if len(p.todo) > 0 {
		p.todo = p.todo[1:]
	}
	p.clear()
	fmt.Fprintf(p.Out, "%s  %-18s run %d  done: wordcount %.1f s, disks %.1f MB/s, outputs right\n",
		clock(time.Since(p.begun)), r.Phase, r.Number, r.RuntimeS, r.DeviceMBps)
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

// turnOverhead is what a turn takes beside WordCount and the work after it.
const turnOverhead = 20 * time.Second

// remaining is how long the turns to do should take, from the same phase's runs
// where there are any, else from the other phases', else from the disk's rate.
func (p *Progress) remaining() string {
	var all []float64
	for _, l := range p.lengths {
		all = append(all, l...)
	}
	guess := turnOverhead.Seconds()*2 + float64(p.setup.Protected.InputBytes)/
		float64(max(1, p.setup.Disk.BytesPerSecond*int64(p.setup.Disk.DataNodes)))*2
	if len(all) > 0 {
		guess = median(all)
	}
	var sum float64
	for i, t := range p.todo {
		one := guess
		if l := p.lengths[t.Phase.Name]; len(l) > 0 {
			one = median(l)
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
