package sharedfs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/report"
)

// Request is one benchmark with the options of the command line.
type Request struct {
	experiment.RowsRequest[Setup]
}

// Perform performs the turns that the journal lacks. It returns the result of all finished turns, also after a failure
// or an interruption.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Validate(); err != nil {
		return Result{}, err
	}
	turns, err := experiment.Table[Setup, Turn]{
		TableRequest: q.TableRequest, Name: "sharedfs", Setup: q.Setup,
		Start: func(_ context.Context, dir string) (func(context.Context, experiment.RowTurn) (Turn, error), func() error, error) {
			// Each turn starts its machine, because the file system and the settings of NodeManagers change, and stops it.
			return func(ctx context.Context, k experiment.RowTurn) (Turn, error) { return q.turn(ctx, k, dir) }, func() error { return nil }, nil
		},
	}.Perform(ctx)
	return newResult(q.Setup, turns), err
}

// Result is the benchmark's result, in the form of --json.
type Result struct {
	experiment.TurnTable[Setup, Turn]
}

func newResult(s Setup, turns []Turn) Result {
	return Result{experiment.TurnTable[Setup, Turn]{Setup: s, Turns: turns}}
}

// job returns a function that returns a figure of the job of a size.
func job(size int, of func(Job) float64) func(Turn) (float64, bool) {
	return func(t Turn) (float64, bool) {
		for _, j := range t.Jobs {
			if j.SizeMiB == size {
				return of(j), true
			}
		}
		return 0, false
	}
}

// ratio returns a function that returns a figure of a row divided by that of another one.
func ratio(size int, of func(Job) float64) func(turn, base Turn) (float64, bool) {
	return func(turn, base Turn) (float64, bool) {
		a, ok1 := job(size, of)(turn)
		b, ok2 := job(size, of)(base)
		return a / b, ok1 && ok2 && b > 0
	}
}

func seconds(j Job) float64 { return j.RunS }
func written(j Job) float64 { return j.WrittenMB }
func network(j Job) float64 { return j.NetworkMB }
func local(j Job) float64   { return float64(j.LocalMaps) / float64(max(1, j.Maps)) }

// Goals.
const (
	mostTime    = 0.75 // in place / Hadoop's own shuffle on the same file system
	leastLocal  = 0.9
	paper       = "Efficient integration of Lustre and Hadoop/YARN"
	paperFaster = "Efficient integration of Lustre and Hadoop/YARN: 21 % faster"
)

// claims returns the published figures.
func (r Result) claims() (all []claims.Claim) {
	for _, fs := range fileSystems {
		stock, near := fs+"-stock-near", fs+"-shared-near"
		for _, size := range r.Setup.SizesMiB {
			name := fmt.Sprintf("%s, TeraSort of %d MiB, ", fs, size)
			all = claims.Add(all, r.runTimes(name, fs, ways, size)...)
			all = claims.Add(all,
				claims.Of(name+"in place: run time / with Hadoop's shuffle", "ratio", r.Pairs(near, stock, ratio(size, seconds))...).AtMost(mostTime).From(paperFaster))
			all = claims.Add(all, r.inPlace(name, near, stock, size)...)
			all = claims.Add(all, claims.Of(name+"with locality: local maps", "part", r.Values(near, job(size, local))...).AtLeast(leastLocal).From(paper))
			all = claims.Add(all, claims.Of(name+"with locality: bytes over the network / without", "ratio", r.Pairs(near, fs+"-shared-any", ratio(size, network))...).From(paper))
		}
	}
	return append(append(all, r.rankClaims()...), r.partClaims()...)
}

// runTimes returns the run time of each way on a file system.
func (r Result) runTimes(name, fs string, ways []way, size int) (all []claims.Claim) {
	for _, w := range ways {
		all = append(all, claims.Of(name+strings.TrimPrefix(w.name, rankPrefix)+": run time", "s", r.Values(fs+"-"+w.name, job(size, seconds))...).From(paper))
	}
	return all
}

// inPlace compares the bytes of the merge in place with those of Hadoop's own shuffle.
func (r Result) inPlace(name, near, stock string, size int) []claims.Claim {
	return []claims.Claim{
		claims.Of(name+"in place: bytes written to disks / with Hadoop's shuffle", "ratio", r.Pairs(near, stock, ratio(size, written))...).From(paper),
		claims.Of(name+"in place: bytes that NodeManagers sent", "MB", r.Values(near, job(size, func(j Job) float64 { return j.ShuffledMB }))...).AtMost(0).From(paper),
	}
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// columns are the figures of the table.
var columns = []struct {
	head string
	of   func(Job) float64
}{
	{"TIME s", seconds}, {"LOCAL MAPS", local}, {"CPU", func(j Job) float64 { return j.CPU }}, {"READ MB", func(j Job) float64 { return j.ReadMB }},
	{"WRITTEN MB", written}, {"NETWORK MB", network}, {"SHUFFLE MB", func(j Job) float64 { return j.ShuffledMB }},
	{"IN PLACE", func(j Job) float64 { return float64(j.InPlace) }}, {"FALLBACKS", func(j Job) float64 { return float64(j.Fallbacks) }},
	{"MEMORY MB", resident}, // 0 if it was not measured
}

// WriteTable writes the medians of all rows, in a table for each job and size.
func (r Result) WriteTable(w io.Writer) error {
	for _, size := range r.Setup.SizesMiB {
		if err := r.writeJobs(w, size, func(one row) bool { return !one.rank }); err != nil {
			return err
		}
	}
	return r.writeJobs(w, r.Setup.rankMiB(), func(one row) bool { return one.rank })
}

// writeJobs writes the medians of the jobs of a size in the rows that are chosen, or nothing if there are none.
func (r Result) writeJobs(w io.Writer, size int, chosen func(row) bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	begun := false
	for _, one := range rows() {
		name := one.String()
		n := len(r.Values(name, job(size, seconds)))
		if n == 0 || !chosen(one) {
			continue
		}
		if !begun {
			begun = true
			fmt.Fprintf(w, "%s of %d MiB on %d hosts with a disk of %.0f MB/s each; medians.\n", one.job(), size, r.Setup.Hosts, float64(r.Setup.Rate)/megabyte)
			fmt.Fprint(t, "ROW\tRUNS")
			for _, c := range columns {
				fmt.Fprint(t, "\t"+c.head)
			}
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "%s\t%d", name, n)
		for _, c := range columns {
			fmt.Fprintf(t, "\t%.4g", figures.Median(r.Values(name, job(size, c.of))))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: "MapReduce on a parallel file system", Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup, Charts: r.memoryChart(),
		About: "TeraSort and PageRank on real GlusterFS and MooseFS with modelled disks: with and without locality, with intermediate data on local disks or on the file system, and there with Hadoop's shuffle or merged in place. In some rows YARN has one or two CPUs, and less or more memory."}
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims of
// every measurement with the default set-up.
func KnownClaims() []claims.Claim {
	s := DefaultSetup()
	var turns []Turn
	for _, one := range rows() {
		t := Turn{Row: one.String(), Run: 1}
		for _, size := range one.sizes(s) {
			t.Jobs = append(t.Jobs, Job{SizeMiB: size, RunS: 1, Maps: 1, LocalMaps: 1, WrittenMB: 1, NetworkMB: 1, Memory: []MemorySample{{ResidentMB: 1}}})
		}
		turns = append(turns, t)
	}
	return newResult(s, turns).claims()
}
