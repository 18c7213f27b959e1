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
	Nodes        int           `json:"nodes"` // each virtual datanode counts
	Disks        int           `json:"disks"`
	Applications int           `json:"applications"`
	Windows      []Window      `json:"windows,omitempty"`
	Changes      []Change      `json:"changes,omitempty"`
	Spans        []Span        `json:"spans,omitempty"`
	Shares       []Application `json:"shares,omitempty"`
	// Misplaced is the median over the judged windows, Worst the largest value.
	Misplaced float64   `json:"misplaced"`
	Worst     float64   `json:"worst"`
	Judged    int       `json:"judged_windows"`
	Jobs      []Job     `json:"jobs,omitempty"`
	Summaries []Summary `json:"summaries,omitempty"`
	Good      bool      `json:"good"` // whether the run meets the scenario's expectations
	Faults    []string  `json:"faults,omitempty"`
	Events    uint64    `json:"events"` // of the simulation

	Claims []claims.Claim `json:"claims"`
}

// Window is a part of the run.
type Window struct {
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	Misplaced float64 `json:"misplaced"` // part of the service, compared with the optimum for the placement at that time
	Judged    bool    `json:"judged"`
}

// Change is an event, or the start or stop of an application.
type Change struct {
	At   float64 `json:"at"`
	What string  `json:"what"`
	// Converged is the time from the change to the end of the first window after which, up to the
	// next change, all windows meet the scenario's expectation; below 0 if there is no such window.
	Converged float64 `json:"converged"`
}

// Span is a part of the run for which the scenario has expectations.
type Span struct {
	Name      string  `json:"name"`
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	Misplaced float64 `json:"misplaced"` // the median of its windows
}

// Application has an application's figures over the judged windows.
type Application struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	Nodes  int     `json:"nodes"`
	Due    float64 `json:"due"` // parts of all service
	Had    float64 `json:"had"`
}

func (r *Result) expect(ok bool, format string, args ...any) {
	if !ok {
		r.Good = false
		r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
	}
}

// Play plays a scenario. progress, if not nil, receives the progress, 0 to 1; its error ends the run.
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
		if err := p.know(); err != nil { // before events at the end of the window
			return nil, err
		}
		c.Run(to)
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
	return r, nil
}

// conclude compares the windows with the expectations.
func (p *play) conclude(r *Result) {
	e := p.scenario.Expect
	if e.Misplaced > 0 {
		r.expect(r.Judged > 0, "no window is judged: make the run longer, or settle and recovery shorter")
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
			r.expect(out.Converged >= 0 && out.Converged <= limit+1e-9, "%s at %g s: shares are right again after %.3g s (below 0: never), at most %g s should be", ch.what, out.At, out.Converged, limit)
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
		r.expect(len(in) > 0, "span %s: no window is wholly in it", sp.Name)
		r.expect(sp.Most == 0 || out.Misplaced <= sp.Most, "span %s: %.4f of the service is misplaced, at most %.4f should be", sp.Name, out.Misplaced, sp.Most)
		r.expect(out.Misplaced >= sp.Least, "span %s: %.4f of the service is misplaced, at least %.4f should be", sp.Name, out.Misplaced, sp.Least)
	}
}

// converged returns the time from a change until all further windows are at or below a bound.
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

// median returns the median: the upper of the two middle values if their number is even, 0 if there
// are none.
func median(of []float64) float64 { return quantile(of, 0.5) }

// quantile returns the smallest value that at least the given part of the values does not exceed;
// for the median of an even number, the upper of the two middle values; 0 if there are none.
func quantile(of []float64, part float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
