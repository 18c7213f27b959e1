package shortest

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"penstock/lab/bench/together"
	"penstock/lab/contest"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/report"
)

// Goals.
const (
	leastGain    = 0.8  // gain achieved / gain predicted
	mostMakespan = 1.02 // against the best kernel scheduler
	mostWorse    = 1.05 // of any job, where the first gets everything
	// leastPredicted is the least predicted gain with which an achieved one is compared.
	leastPredicted = 0.01
	mostIdle       = 0.1 // start-up and clean-up of the smallest job alone, as a part of its completion
)

// Request is a measurement with the options of the command line.
type Request struct {
	Setup Setup
	together.Request
}

// Result has the finished runs.
type Result struct {
	Setup Setup
	together.Result
}

func newResult(s Setup, runs []together.Run) Result {
	return Result{Setup: s, Result: together.Result{Setup: s.Setup, Runs: runs}}
}

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	q.Request.Setup = q.Setup.Setup
	return q.Request.Validate()
}

// Perform performs the runs that the journal lacks. The jobs run alone first, and the predicted gains are
// printed before all other runs.
func Perform(ctx context.Context, q Request) (Result, error) {
	q.Request.Name, q.Request.Setup, q.First = "shortest-"+q.Setup.Workload, q.Setup.Setup, together.Alone(q.Setup.Setup)
	q.Known = func(done []together.Run) error {
		predictions, err := newResult(q.Setup, done).predict()
		for _, p := range predictions {
			q.Progress("predicted: %s", p)
		}
		return err
	}
	runs, err := together.Perform(ctx, q.Request)
	return newResult(q.Setup, runs), err
}

// best returns the native row with the least mean completion; "" if none was measured.
func (r Result) best() string { return r.Best(natives(), together.Run.Mean) }

// gains returns by which part each run's mean completion is less than the best kernel scheduler's.
func (r Result) gains(row string) (all []float64) {
	for _, ratio := range r.AgainstMedian(row, r.best(), together.Run.Mean) {
		all = append(all, 1-ratio)
	}
	return all
}

// worst returns, for each run of a row, the largest ratio of a job's completion to its completion under the best
// kernel scheduler.
func (r Result) worst(row string) (all []float64) {
	base := r.best()
	for _, run := range r.Of(row) {
		worst := math.NaN()
		for _, j := range run.Jobs {
			if ratio := j.CompletionS / r.Median(base, together.Completion(j.Name)); !(worst >= ratio) {
				worst = ratio
			}
		}
		if !math.IsNaN(worst) {
			all = append(all, worst)
		}
	}
	return all
}

// idle returns the part of the smallest job's completion alone in which it does no I/O.
func (r Result) idle() []float64 {
	return r.Values(together.AlonePrefix+r.Setup.Jobs[0].Name, func(r together.Run) float64 { return r.Jobs[0].IdleS / r.Jobs[0].CompletionS })
}

// overCap returns, for each run of a row with caps, the rate of the last job while the first one runs, divided by
// its cap.
func (r Result) overCap(row together.Row) []float64 {
	n := len(r.Setup.Jobs)
	most := row.Way.Caps.Parts(n)[n-1] * float64(r.Setup.Disk.BytesPerSecond*int64(r.Setup.Disk.DataNodes)) / contest.Megabyte
	return r.Values(row.Name, func(run together.Run) float64 { return run.WhileFirst()[n-1] / most })
}

const (
	generateSource = "disk contention, section V-C"
	mixSource      = "disk contention, section V-D"
)

// claims returns the published figures.
func (r Result) claims() (all []claims.Claim) {
	name := fmt.Sprintf("%s, %ss, ", r.Setup.title(), r.Setup.Disk.KindName())
	source := generateSource
	if r.Setup.Workload == Mix {
		source = mixSource
	}
	of := func(row, what, unit string, values []float64) claims.Claim {
		return claims.Of(name+row+": "+what, unit, values...).From(source)
	}
	all = claims.Add(all, of(together.AlonePrefix+r.Setup.Jobs[0].Name, "start-up and clean-up / completion", "ratio", r.idle()).AtMost(mostIdle))
	best := r.best()
	if best == "" {
		return all
	}
	const kernel = " / the best kernel scheduler's"
	predictions, _ := r.predict() // without predictions, there are no claims about them
	for _, row := range r.Setup.Rows() {
		if strings.HasPrefix(row.Name, nativePrefix) {
			continue
		}
		mean := r.AgainstMedian(row.Name, best, together.Run.Mean)
		if len(mean) == 0 {
			continue
		}
		makespan := of(row.Name, "makespan"+kernel, "ratio", r.AgainstMedian(row.Name, best, together.Run.Makespan))
		worse := of(row.Name, "completion of the job that loses most"+kernel, "ratio", r.worst(row.Name))
		all = append(all, of(row.Name, "mean completion"+kernel, "ratio", mean))
		for _, p := range predictions {
			if p.Row != row.Name || p.Gain < leastPredicted {
				continue
			}
			var achieved []float64
			for _, gain := range r.gains(row.Name) {
				achieved = append(achieved, gain/p.Gain)
			}
			all = append(all, of(row.Name, "gain predicted", "%", []float64{100 * p.Gain}).From("the simulator, from the jobs alone"),
				of(row.Name, "gain achieved / gain predicted", "ratio", achieved).AtLeast(leastGain))
			makespan = makespan.AtMost(mostMakespan)
			if row.Name == shortestPrefix+text(everything) {
				worse = worse.AtMost(mostWorse)
			}
		}
		all = claims.Add(all, makespan, worse, of(row.Name, "the first job's part of the disks while it runs", "ratio", r.Values(row.Name, together.Run.FirstPart)))
		if len(row.Way.Caps.Percent) > 0 {
			all = claims.Add(all, of(row.Name, "rate of the last job while the first one runs / its cap", "ratio", r.overCap(row)).From("disk contention, Figure 3"))
		}
	}
	return all
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	predictions, _ := r.predict() // null as long as the jobs have not run alone
	return experiment.WriteJSON(w, struct {
		Setup       Setup          `json:"setup"`
		Predictions []Prediction   `json:"predictions"`
		Best        string         `json:"best_kernel_scheduler"`
		Runs        []together.Run `json:"runs"`
		Claims      []claims.Claim `json:"claims"`
		Builds      []string       `json:"builds"`
	}{r.Setup, predictions, r.best(), r.Runs, r.claims(), r.Builds()})
}

// WriteTable writes the completions of all rows, the predictions, and what was achieved.
func (r Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s on %d %s\n", r.Setup.title(), r.Setup.Disk.DataNodes, r.Setup.Disk)
	if err := r.WriteRows(w, r.Setup.rowNames()); err != nil {
		return err
	}
	best := r.best()
	if best == "" {
		return nil
	}
	fmt.Fprintf(w, "the kernel scheduler with the least mean completion: %s\n", strings.TrimPrefix(best, nativePrefix))
	predictions, err := r.predict()
	if err != nil {
		fmt.Fprintln(w, err)
	}
	for _, p := range predictions {
		fmt.Fprintf(w, "predicted: %s", p)
		if gains := r.gains(p.Row); len(gains) > 0 {
			c := claims.Of("", "", gains...)
			fmt.Fprintf(w, "; measured: %.0f %% less than %s (%.0f to %.0f)", 100*c.Value, best, 100*c.Low, 100*c.High)
		}
		fmt.Fprintln(w)
	}
	for _, row := range r.Setup.Rows() {
		runs := r.Of(row.Name)
		if len(runs) == 0 || row.Name == best {
			continue
		}
		fmt.Fprintf(w, "%s against %s:", row.Name, best)
		for _, j := range r.Setup.Jobs {
			fmt.Fprintf(w, " %s %.2f,", j.Name, r.Median(row.Name, together.Completion(j.Name))/r.Median(best, together.Completion(j.Name)))
		}
		fmt.Fprintf(w, " mean %.2f, makespan %.2f\n", r.Median(row.Name, together.Run.Mean)/r.Median(best, together.Run.Mean),
			r.Median(row.Name, together.Run.Makespan)/r.Median(best, together.Run.Makespan))
	}
	return nil
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	rows := together.RowNames(r.Setup.Rows())
	headline := r.Setup.title() + ": shortest job first"
	if o := r.Setup.orders()[0]; len(r.gains(o.row)) > 0 {
		headline = fmt.Sprintf("%s: mean completion %.0f %% less with the shortest job first", r.Setup.title(), 100*claims.Of("", "", r.gains(o.row)...).Value)
	}
	return report.Report{Headline: headline, Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup,
		Charts: r.Charts(r.Setup.rowNames(), "Throughput by job, from the disks' request log (disk contention, Figures 2, 3 and 5)", rows),
		About:  "Several jobs of a real Hadoop share modelled disks: natively under the kernel's schedulers, under Penstock with equal weights and with the shortest job first, and with the caps of cgroups that the disk contention paper uses. Each chart over time shows a typical run."}
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims of
// every measurement.
func KnownClaims(workload, kind string) ([]claims.Claim, error) {
	s, err := DefaultSetup(workload, kind)
	if err != nil {
		return nil, err
	}
	return invented(s).claims(), nil
}
