package isolation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/lab/experiment/counters"
	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/progress"
)

// position is an experiment's current turn and step. Progress lines show the turn and the step,
// with an estimate of the remaining time.
type position struct {
	mu      sync.Mutex // guards turn, begun and step, which the sampler reads while a job runs
	turn    Turn
	begun   time.Time
	step    string
	lengths map[turnKind][]float64 // seconds of finished turns
}

// turnKind distinguishes turns by their length: a turn is much shorter if the aggressor is killed
// after the window.
type turnKind struct {
	phase  string
	killed bool
}

// turnOverhead is the time of a turn in addition to the protected job and the work after it.
const turnOverhead = 20 * time.Second

func (q *Request) say(format string, args ...any) { q.Progress.Printf(format, args...) }

// label returns the plain name of a turn's phase, with the run's number if there are several runs.
func (x *Experiment) label(phase string, run int) string {
	var names []string
	for _, p := range x.Phases {
		names = append(names, p.Name)
	}
	phase = x.Setup.plainName(phase, names)
	if x.Runs > 1 {
		phase += fmt.Sprintf(" run %d", run)
	}
	return fmt.Sprintf("%-27s", phase)
}

// step prints the next step of a turn.
func (x *Experiment) step(t Turn, name string) {
	x.at.mu.Lock()
	defer x.at.mu.Unlock()
	if t != x.at.turn {
		x.at.turn, x.at.begun = t, time.Now()
	}
	x.at.step = name
	x.say("%s", x.state())
}

// state returns the current step with the estimated remaining time.
func (x *Experiment) state() string {
	return fmt.Sprintf("%s  %-20s %s left", x.label(x.at.turn.Phase.Name, x.at.turn.Run), x.at.step, x.remaining())
}

// throughput prints the live line with the device MB/s of the last seconds.
func (x *Experiment) throughput(samples counters.Samples) {
	if len(samples) < 2 {
		return
	}
	x.at.mu.Lock()
	defer x.at.mu.Unlock()
	x.Progress.Live(func() string {
		last := samples[len(samples)-1].At
		return fmt.Sprintf("%s  disks %5.1f MB/s", x.state(), samples.Total(last.Add(-2*time.Second), last).Total()/megabyte/2)
	})
}

// took records the length of a finished turn.
func (x *Experiment) took(r Run, seconds float64) {
	if x.at.lengths == nil {
		x.at.lengths = map[turnKind][]float64{}
	}
	k := turnKind{r.Phase, r.Killed}
	x.at.lengths[k] = append(x.at.lengths[k], seconds)
}

func (x *Experiment) finished(r Run) {
	x.took(r, time.Since(x.at.begun).Seconds())
	outputs := "outputs correct"
	if r.Killed {
		outputs = "its output correct, " + x.Setup.aggressor().title() + " killed"
	}
	x.say("%s  done: %s %.1f s, disks %.1f MB/s, %s", x.label(r.Phase, r.Number),
		x.Setup.measured(Phase{Unprotected: r.Protected == ""}), r.RuntimeS, r.DeviceMBps, outputs)
	for _, w := range r.Warnings {
		x.say("note: %s", w)
	}
}

// remaining estimates the time that the turns to do will take. The estimate for a turn is the
// median of the finished turns of the same kind. If there are none, it is the median of those
// finished turns that kill the aggressor, if this turn kills it, or that do not. If there are none
// of these either, it is the median of all finished turns. Before the first turn has finished, it
// follows from the disks' rate.
func (x *Experiment) remaining() string {
	var all []float64
	alike := map[bool][]float64{}
	for k, l := range x.at.lengths {
		all = append(all, l...)
		alike[k.killed] = append(alike[k.killed], l...)
	}
	rough := turnOverhead.Seconds()*2 + float64(x.Setup.Protected.InputBytes)/
		float64(max(1, x.Setup.Disk.BytesPerSecond*int64(x.Setup.Disk.DataNodes)))*2
	todo := x.missing(x.done)
	if x.at.turn.Phase == fullSpeed {
		todo = slices.Insert(todo, 0, x.at.turn)
	}
	sum, checked := 0.0, checkedIn(x.done)
	for _, t := range todo {
		k := turnKind{t.Phase.Name, x.kills(t.Phase, checked)}
		checked[t.Phase.Name] = true
		one := rough
		for _, known := range [][]float64{x.at.lengths[k], alike[k.killed], all} {
			if len(known) > 0 {
				one = figures.Median(known)
				break
			}
		}
		if t == x.at.turn {
			one = max(5, one-time.Since(x.at.begun).Seconds())
		}
		sum += one
	}
	return "about " + progress.Clock(time.Duration(sum*float64(time.Second)))
}
