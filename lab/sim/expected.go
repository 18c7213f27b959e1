package sim

import (
	"fmt"
	"slices"
	"time"

	"penstock/core/reserve"
	"penstock/settings"
)

// CheckSpec is an expectation of each application of one entry.
type CheckSpec struct {
	Application string `yaml:"application"`
	// From and To bound the time that is judged. Default: all but Settle.
	From settings.Duration `yaml:"from"`
	To   settings.Duration `yaml:"to"`
	// Node restricts Least, Most and State to one node.
	Node *int `yaml:"node"`
	// Least and Most bound the bytes per second that the disks move for the application, in windows of the length Window (default
	// and unit: the scenario's window), in at least the fraction Part of the windows; default 1. Windows that begin up to
	// Recovery (default 0) after a change do not count, nor do those with a change in them if Recovery is set.
	Least  settings.Bytes    `yaml:"least"`
	Most   settings.Bytes    `yaml:"most"`
	Window settings.Duration `yaml:"window"`
	// Step is the time from the beginning of one window to that of the next; default: Window.
	Step     settings.Duration `yaml:"step"`
	Part     float64           `yaml:"part"`
	Recovery settings.Duration `yaml:"recovery"`
	// State is the verdict of the admission about the guaranteed rate, at the end of each of the scenario's windows: unused, admitted,
	// queued or reduced. It is the broker's verdict about a total reserve, and otherwise that of the device of Node.
	State string `yaml:"state"`
	// P99 is the longest 99th percentile of the times of small reads.
	P99 settings.Duration `yaml:"p99"`
}

// Check is the result of a CheckSpec for one application.
type Check struct {
	Application string  `json:"application"`
	From        float64 `json:"from"`
	To          float64 `json:"to"`
	Node        *int    `json:"node,omitempty"`
	// Lowest and Highest are the smallest and the largest rates in a window, in bytes per second, and Kept is the part of the
	// windows whose rates are within the bounds.
	Windows int     `json:"windows,omitempty"`
	Lowest  float64 `json:"lowest,omitempty"`
	Highest float64 `json:"highest,omitempty"`
	Kept    float64 `json:"kept,omitempty"`
	// States are the verdicts in their order, without repetitions.
	States []string `json:"states,omitempty"`
	Reads  int      `json:"reads,omitempty"`
	P99    float64  `json:"p99,omitempty"` // seconds
}

// watched is an application with an expectation, and what has been observed at the end of each window.
type watched struct {
	spec   *CheckSpec
	app    int
	moved  []int64
	states []string
}

// states are the values of CheckSpec.State.
var states = []string{reserve.Unused.String(), reserve.Admitted.String(), reserve.Queued.String(), reserve.Reduced.String()}

func (s *Scenario) checkExpected(check func(bool, string, ...any), nodes int) {
	for i := range s.Expect.Applications {
		c := &s.Expect.Applications[i]
		k := slices.IndexFunc(s.Applications, func(a ApplicationSpec) bool { return a.Name == c.Application })
		if check(k >= 0, "expect: applications[%d]: the scenario has no application %q", i, c.Application); k < 0 {
			continue
		}
		a := &s.Applications[k]
		if c.From == 0 {
			c.From = s.Settle
		}
		if c.To == 0 {
			c.To = s.Length
		}
		if c.Window == 0 {
			c.Window = s.Window
		}
		if c.Step == 0 {
			c.Step = c.Window
		}
		if c.Part == 0 {
			c.Part = 1
		}
		check(c.From < c.To && c.To <= s.Length, "expect: applications[%d]: from must be before to, and to within the length", i)
		check(s.Window > 0 && c.Window >= s.Window && c.Window%max(1, s.Window) == 0, "expect: applications[%d]: window %v: use a multiple of the scenario's window of %v", i, time.Duration(c.Window), time.Duration(s.Window))
		check(c.Step > 0 && c.Step <= c.Window && c.Step%max(1, s.Window) == 0, "expect: applications[%d]: step %v: use a multiple of the scenario's window of %v, up to window", i, time.Duration(c.Step), time.Duration(s.Window))
		check(c.Part > 0 && c.Part <= 1, "expect: applications[%d]: part %v: use above 0, up to 1", i, c.Part)
		check(c.Node == nil || *c.Node >= 0 && *c.Node < nodes, "expect: applications[%d]: there is no such node", i)
		check(c.State == "" || slices.Contains(states, c.State), "expect: applications[%d]: state %q: use unused, admitted, queued or reduced", i, c.State)
		check(c.State == "" || a.TotalReserve > 0 || c.Node != nil, "expect: applications[%d]: state: each device has its own verdict: give node", i)
		check(c.State == "" || a.TotalReserve > 0 || reserve.Rate(a.Reserve) != (reserve.Rate{}), "expect: applications[%d]: state: %q has no guaranteed rate", i, c.Application)
		check(c.State == "" || a.TotalReserve == 0 || !s.Exchange.Off, "expect: applications[%d]: state: without a broker nobody decides about a total reserve: remove exchange.off", i)
		check(c.P99 == 0 || a.Size > 0, "expect: applications[%d]: p99: %q makes no small reads: give it a size", i, c.Application)
		check(c.Least > 0 || c.Most > 0 || c.State != "" || c.P99 > 0, "expect: applications[%d]: give least, most, state or p99", i)
		check(c.Least >= 0 && c.Most >= 0 && (c.Most == 0 || c.Least <= c.Most), "expect: applications[%d]: least is above most", i)
	}
	for i, a := range s.Applications {
		check(a.Size == 0 && a.Move == 0 || len(s.Jobs)+len(s.Traces) == 0, "applications[%d]: size and move do not apply to a scenario with jobs", i)
	}
	check(len(s.Expect.Applications) == 0 || len(s.Jobs)+len(s.Traces) == 0, "expect: applications do not apply to a scenario with jobs")
}

// watchAll prepares the expectations of applications.
func (p *play) watchAll() {
	for i := range p.scenario.Expect.Applications {
		spec := &p.scenario.Expect.Applications[i]
		for app, a := range p.cluster.apps {
			if a.kind == spec.Application {
				p.watched = append(p.watched, watched{spec: spec, app: app})
			}
		}
	}
}

// watch records what the expectations of applications need at the end of a window.
func (p *play) watch() {
	for i := range p.watched {
		w := &p.watched[i]
		a := p.cluster.apps[w.app]
		moved := a.read + a.written
		if n := w.spec.Node; n != nil {
			moved = 0
			if f := p.cluster.places[*n].device.flows[w.app]; f != nil {
				moved = f.moved
			}
		}
		w.moved = append(w.moved, moved)
		if w.spec.State != "" {
			w.states = append(w.states, p.stateOf(w).String())
		}
	}
}

// stateOf returns the present verdict about an application's guaranteed rate.
func (p *play) stateOf(w *watched) reserve.State {
	c := p.cluster
	if c.apps[w.app].guarantee.total.Reserve > 0 {
		return c.broker.rates[w.app].Verdict.State
	}
	d := c.places[*w.spec.Node].device
	for _, f := range d.arbiter.Snapshot(d.clock()).Flows {
		if f.Name == c.apps[w.app].Name {
			return f.Reserve.Verdict.State
		}
	}
	return reserve.Unused
}

// check compares the applications with their expectations.
func (p *play) check(r *Result) {
	window := time.Duration(p.scenario.Window)
	for i := range p.watched {
		w := &p.watched[i]
		s, name := w.spec, p.cluster.apps[w.app].Name
		out := Check{Application: name, From: time.Duration(s.From).Seconds(), To: time.Duration(s.To).Seconds(), Node: s.Node}
		where := name
		if s.Node != nil {
			where = fmt.Sprintf("%s at node %d", name, *s.Node)
		}
		if s.Least > 0 || s.Most > 0 {
			kept := 0
			for from := time.Duration(s.From); from+time.Duration(s.Window) <= time.Duration(s.To); from += time.Duration(s.Step) {
				if s.Recovery > 0 && p.near(from, from+time.Duration(s.Window), time.Duration(s.Recovery)) {
					continue
				}
				rate := w.rate(from, from+time.Duration(s.Window), window)
				if out.Windows++; out.Windows == 1 {
					out.Lowest = rate
				}
				out.Lowest, out.Highest = min(out.Lowest, rate), max(out.Highest, rate)
				if rate >= float64(s.Least) && (s.Most == 0 || rate <= float64(s.Most)) {
					kept++
				}
			}
			r.expect(out.Windows > 0, "%s: no window is judged: make the time longer, or recovery shorter", where)
			if out.Windows > 0 {
				out.Kept = float64(kept) / float64(out.Windows)
				r.expect(out.Kept >= s.Part, "%s: %.1f %% of %d windows have a rate within the bounds, %.1f to %.1f MB/s (seen: %.1f to %.1f); at least %.1f %% are expected",
					where, 100*out.Kept, out.Windows, float64(s.Least)/1e6, float64(s.Most)/1e6, out.Lowest/1e6, out.Highest/1e6, 100*s.Part)
			}
		}
		if s.State != "" {
			for k, state := range w.states {
				at := time.Duration(k+1) * window
				if at < time.Duration(s.From) || at > time.Duration(s.To) {
					continue
				}
				if n := len(out.States); n == 0 || out.States[n-1] != state {
					out.States = append(out.States, state)
				}
			}
			r.expect(slices.Equal(out.States, []string{s.State}), "%s, %g s to %g s: the guaranteed rate is %v, %s is expected", where, out.From, out.To, out.States, s.State)
		}
		if s.P99 > 0 {
			var took []float64
			for _, read := range p.cluster.apps[w.app].reads {
				if read.at >= time.Duration(s.From) && read.at < time.Duration(s.To) {
					took = append(took, read.took.Seconds())
				}
			}
			out.Reads, out.P99 = len(took), quantile(took, 0.99)
			r.expect(out.Reads >= 100, "%s: %d small reads: at least 100 are needed", where, out.Reads)
			r.expect(out.P99 <= time.Duration(s.P99).Seconds(), "%s: the 99th percentile of the small reads is %.1f ms, at most %.1f ms are expected", where, 1000*out.P99, time.Duration(s.P99).Seconds()*1000)
		}
		r.Checks = append(r.Checks, out)
	}
}

// rate returns the application's bytes per second between two moments, which are multiples of the window.
func (w *watched) rate(from, to, window time.Duration) float64 {
	at := func(t time.Duration) float64 {
		if k := int(t/window) - 1; k >= 0 {
			return float64(w.moved[min(k, len(w.moved)-1)])
		}
		return 0
	}
	return (at(to) - at(from)) / (to - from).Seconds()
}

// near reports whether a change is within a time, or up to recovery before it.
func (p *play) near(from, to, recovery time.Duration) bool {
	return slices.ContainsFunc(p.changed, func(ch change) bool { return to > ch.at && from < ch.at+recovery })
}
