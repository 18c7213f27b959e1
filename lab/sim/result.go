package sim

import (
	"fmt"
	"slices"
	"time"

	"penstock/lab/experiment/claims"
)

// Result is the result of a run. Times are in seconds.
type Result struct {
	Title        string        `json:"title"`
	Seed         uint64        `json:"seed"`
	Nodes        int           `json:"nodes"` // counts each virtual datanode
	Disks        int           `json:"disks"`
	Applications int           `json:"applications"`
	Windows      []Window      `json:"windows,omitempty"`
	Changes      []Change      `json:"changes,omitempty"`
	Spans        []Span        `json:"spans,omitempty"`
	Checks       []Check       `json:"checks,omitempty"`
	Shares       []Application `json:"shares,omitempty"`
	// Misplaced is the median over the judged windows, Worst the maximum.
	Misplaced float64   `json:"misplaced"`
	Worst     float64   `json:"worst"`
	Judged    int       `json:"judged_windows"`
	Jobs      []Job     `json:"jobs,omitempty"`
	Summaries []Summary `json:"summaries,omitempty"`
	Good      bool      `json:"good"` // whether the run meets the scenario's expectations
	Faults    []string  `json:"faults,omitempty"`
	Events    uint64    `json:"events"` // events of the simulation

	Claims []claims.Claim `json:"claims"`
}

// Window is a time span of the run.
type Window struct {
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	Misplaced float64 `json:"misplaced"` // fraction of the service, compared with the optimum for the placement at that time
	Judged    bool    `json:"judged"`
}

// Change is an event, or the start or stop of an application.
type Change struct {
	At   float64 `json:"at"`
	What string  `json:"what"`
	// Converged is the time from the change until shares are right again: to the end of the first
	// window from which on all windows, up to the next change, meet the scenario's expectation. It
	// is below 0 if there is no such window.
	Converged float64 `json:"converged"`
}

// Span is a part of the run that has its own expectation in the scenario.
type Span struct {
	Name      string  `json:"name"`
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	Misplaced float64 `json:"misplaced"` // the median of its windows
}

// Application contains an application's figures over the judged windows.
type Application struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	Nodes  int     `json:"nodes"`
	Due    float64 `json:"due"` // Due and Had are fractions of all service
	Had    float64 `json:"had"`
}

func (r *Result) expect(ok bool, format string, args ...any) {
	if !ok {
		r.Good = false
		r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
	}
}

// Play plays a scenario. progress, if not nil, receives the completed fraction, 0 to 1. If it
// returns an error, the run ends.
func (s *Scenario) Play(seed uint64, progress func(done float64) error) (*Result, error) {
	if progress == nil {
		progress = func(float64) error { return nil }
	}
	r, err := s.play(seed, progress)
	if err == nil {
		r.Claims = s.Claims(r)
	}
	return r, err
}

func (s *Scenario) play(seed uint64, progress func(done float64) error) (*Result, error) {
	if len(s.Jobs)+len(s.Traces) > 0 {
		return s.playJobs(seed, progress)
	}
	p, err := newPlay(s, seed)
	if err != nil {
		return nil, err
	}
	c := p.cluster
	r := &Result{Title: s.Title, Seed: seed, Nodes: len(c.places), Disks: c.disks, Applications: len(c.apps), Good: true}
	window, length := time.Duration(s.Window), time.Duration(s.Length)
	var judged []float64
	had, due := make([]float64, r.Applications), make([]float64, r.Applications)
	for from := time.Duration(0); from < length; from += window {
		to := min(from+window, length)
		if err := p.know(); err != nil { // must come before the events at the end of the window
			return nil, err
		}
		c.Run(to)
		p.watch()
		off, got, ideal := p.judge()
		w := Window{From: from.Seconds(), To: to.Seconds(), Misplaced: off, Judged: p.judges(from)}
		if got == nil {
			w.Judged = false // nothing was served
		}
		if w.Judged {
			judged = append(judged, off)
			for i := range had {
				had[i] += got[i]
				due[i] += ideal[i]
			}
		}
		r.Windows = append(r.Windows, w)
		if err := progress(float64(to) / float64(length)); err != nil {
			return nil, err
		}
	}
	r.Judged, r.Events = len(judged), c.seq
	if len(judged) > 0 {
		r.Misplaced, r.Worst = median(judged), slices.Max(judged)
		for i, a := range c.apps {
			r.Shares = append(r.Shares, Application{Name: a.Name, Weight: a.Weight, Nodes: len(p.on[i]),
				Due: due[i] / float64(len(judged)), Had: had[i] / float64(len(judged))})
		}
	}
	p.conclude(r)
	p.check(r)
	return r, nil
}

// conclude compares the windows with the expectations.
func (p *play) conclude(r *Result) {
	e := p.scenario.Expect
	if e.Misplaced > 0 {
		r.expect(r.Judged > 0, "no window is judged: increase length, or reduce settle and recovery")
		if e.AtLeast {
			r.expect(r.Misplaced >= e.Misplaced, "%.4f of the service is misplaced, at least %.4f should be", r.Misplaced, e.Misplaced)
		} else {
			r.expect(r.Misplaced <= e.Misplaced, "%.4f of the service is misplaced, at most %.4f should be", r.Misplaced, e.Misplaced)
		}
	}
	for i, ch := range p.changed {
		next := time.Duration(p.scenario.Length)
		if i+1 < len(p.changed) {
			next = p.changed[i+1].at
		}
		if ch.at >= time.Duration(p.scenario.Length) {
			break
		}
		out := Change{At: ch.at.Seconds(), What: ch.what, Converged: converged(r.Windows, ch.at.Seconds(), next.Seconds(), e.Misplaced)}
		r.Changes = append(r.Changes, out)
		if limit := time.Duration(e.Converged).Seconds(); limit > 0 && next > ch.at {
			r.expect(out.Converged >= 0 && out.Converged <= limit+1e-9, "%s at %g s: shares are right again after %.3g s (below 0: never), at most %g s are expected", ch.what, out.At, out.Converged, limit)
		}
	}
	for _, sp := range e.Spans {
		var in []float64
		out := Span{Name: sp.Name, From: time.Duration(sp.From).Seconds(), To: time.Duration(sp.To).Seconds()}
		for _, w := range r.Windows {
			if w.From >= out.From && w.To <= out.To {
				in = append(in, w.Misplaced)
			}
		}
		out.Misplaced = median(in)
		r.Spans = append(r.Spans, out)
		r.expect(len(in) > 0, "span %s: no window is completely within it", sp.Name)
		r.expect(sp.Most == 0 || out.Misplaced <= sp.Most, "span %s: %.4f of the service is misplaced, at most %.4f should be", sp.Name, out.Misplaced, sp.Most)
		r.expect(out.Misplaced >= sp.Least, "span %s: %.4f of the service is misplaced, at least %.4f should be", sp.Name, out.Misplaced, sp.Least)
	}
}

// converged returns the time that shares take to be right again after a change. The change is at
// the time "at", and the following one at the time "next". Shares are right again when the
// misplaced fraction of every further window before next is no larger than "most". If this does not
// happen, converged returns -1.
func converged(windows []Window, at, next, most float64) float64 {
	took := -1.0
	for _, w := range windows {
		switch {
		case w.From < at || w.To > next:
		case w.Misplaced > most:
			took = -1
		case took < 0:
			took = w.To - at
		}
	}
	return took
}

// median returns the median, or 0 if there are no values. If their number is even, it returns the
// upper of the two middle values.
func median(of []float64) float64 { return quantile(of, 0.5) }

// quantile returns the smallest value v such that more than the given fraction of the values are at
// most v. It returns 0 if there are no values. For the median of an even number of values it
// returns the upper of the two middle values.
func quantile(of []float64, part float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
