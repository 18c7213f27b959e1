package sharedfs

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	for _, r := range rows() { // what a row needs, before another row takes its time
		if r.part != (part{}) && slices.Contains(q.Rows, r.String()) {
			if _, err := r.part.cpus(); err != nil {
				return Result{}, err
			}
		}
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

	leastService = 0.95 // throughput / floor
	mostQuanta   = 1    // p99 beyond that of floor
	mostOfDue    = 1    // the TeraSorts' makespan / what the weights allow
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
	return slices.Concat(all, r.rankClaims(), r.partClaims(), r.contests())
}

// contestFigure returns a function that returns a figure of a row with storage clients.
func contestFigure(of func(Contest) float64) func(Turn) (float64, bool) {
	return func(t Turn) (float64, bool) {
		if t.Contest == nil {
			return 0, false
		}
		return of(*t.Contest), true
	}
}

// against returns a function that compares a figure of a row with storage clients with that of another one.
func against(of func(Contest) float64, compare func(turn, base float64) float64) func(turn, base Turn) (float64, bool) {
	return func(turn, base Turn) (float64, bool) {
		a, ok1 := contestFigure(of)(turn)
		b, ok2 := contestFigure(of)(base)
		return compare(a, b), ok1 && ok2
	}
}

func throughput(c Contest) float64  { return c.Clients.MBs }
func p99(c Contest) float64         { return c.Clients.P99MS }
func probeP99(c Contest) float64    { return c.Clients.ProbeP99MS }
func makespan(c Contest) float64    { return c.Sorts.MakespanS }
func mean(c Contest) float64        { return c.Sorts.MeanS }
func quotient(a, b float64) float64 { return a / b }

// ofDue returns the TeraSorts' makespan divided by the one that the weights allow. On disks of their own, the TeraSorts have all of the
// disks' time. While storage clients are active, the TeraSorts have only the part that the storage share leaves. The allowed
// makespan is that of the row floor, divided by the TeraSorts' part of the time.
func (s Setup) ofDue(turn, base Turn) (float64, bool) {
	if turn.Contest == nil || base.Contest == nil {
		return 0, false
	}
	due := base.Contest.Sorts.MakespanS / (1 - s.Beside.Share*turn.Contest.Clients.Active)
	return turn.Contest.Sorts.MakespanS / due, true
}

// contests returns the published figures of the rows with storage clients.
func (r Result) contests() (all []claims.Claim) {
	b := r.Setup.Beside
	name := fmt.Sprintf("%s, storage clients beside %d TeraSorts of %d MiB, %d at once, share %v, turns of %d KiB, ", Gluster, b.Sorts, b.SortMiB, b.AtOnce, b.Share, b.Turn>>10)
	quanta := func(turn, base float64) float64 { return (turn - base) / (r.Setup.quantumTime().Seconds() * 1e3) }
	of := func(between, figure, unit string, of func(Contest) float64) claims.Claim {
		return claims.Of(name+between+": "+figure, unit, r.Values(besideRow(between), contestFigure(of))...).From(paper)
	}
	toFloor := func(between, figure, unit string, of func(turn, base Turn) (float64, bool)) claims.Claim {
		return claims.Of(name+between+": "+figure, unit, r.Pairs(besideRow(between), besideRow(floor), of)...).From(paper)
	}
	all = claims.Add(all, of(floor, "throughput", "MB/s", throughput), of(floor, "p99 of a transfer", "ms", p99), of(floor, "p99 of 4 KiB", "ms", probeP99))
	for _, between := range besides {
		all = claims.Add(all, of(between, "makespan of the TeraSorts", "s", makespan))
	}
	for _, between := range []string{native, segregated} {
		goal := func(c claims.Claim, with claims.Claim) claims.Claim {
			if between == segregated && c.Runs > 0 {
				return with
			}
			return c
		}
		faster := toFloor(between, "throughput / floor", "ratio", against(throughput, quotient))
		later := toFloor(between, "p99 of a transfer beyond that of floor", "quanta", against(p99, quanta))
		probe := toFloor(between, "p99 of 4 KiB beyond that of floor", "quanta", against(probeP99, quanta))
		all = claims.Add(all, goal(faster, faster.AtLeast(leastService)), goal(later, later.AtMost(mostQuanta)), goal(probe, probe.AtMost(mostQuanta)),
			toFloor(between, "mean time of the TeraSorts / floor", "ratio", against(mean, quotient)))
	}
	if due := toFloor(segregated, "makespan of the TeraSorts / what the weights allow", "ratio", r.Setup.ofDue); due.Runs > 0 {
		all = append(all, due.AtMost(mostOfDue))
	}
	return all
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

// column is a figure of a table, of a Job or of a Contest.
type column[T any] struct {
	head string
	of   func(T) float64
}

// columns are the figures of the tables of jobs.
var columns = []column[Job]{
	{"TIME s", seconds}, {"LOCAL MAPS", local}, {"CPU", func(j Job) float64 { return j.CPU }}, {"READ MB", func(j Job) float64 { return j.ReadMB }},
	{"WRITTEN MB", written}, {"NETWORK MB", network}, {"SHUFFLE MB", func(j Job) float64 { return j.ShuffledMB }},
	{"IN PLACE", func(j Job) float64 { return float64(j.InPlace) }}, {"FALLBACKS", func(j Job) float64 { return float64(j.Fallbacks) }},
	{"MEMORY MB", resident}, // 0 if it was not measured
}

// WriteTable writes the medians of all rows, in a table for each job and size.
func (r Result) WriteTable(w io.Writer) error {
	for _, size := range r.Setup.SizesMiB {
		if err := r.writeJobs(w, teraSort, size); err != nil {
			return err
		}
	}
	if err := r.writeJobs(w, pageRank, r.Setup.rankMiB()); err != nil {
		return err
	}
	return r.writeContests(w)
}

// writeJobs writes the medians of the rows with a job, for one size of its input.
func (r Result) writeJobs(w io.Writer, name string, size int) error {
	var names []string
	for _, one := range rows() {
		if one.job() == name {
			names = append(names, one.String())
		}
	}
	title := fmt.Sprintf("%s of %d MiB on %d hosts with a disk of %.0f MB/s each; medians.", name, size, r.Setup.Hosts, float64(r.Setup.Rate)/megabyte)
	return writeMedians(w, r, title, names, columns, func(of func(Job) float64) func(Turn) (float64, bool) { return job(size, of) })
}

// contestColumns are the figures of the table of the rows with storage clients.
var contestColumns = []column[Contest]{
	{"MB/s", throughput}, {"WRITE", func(c Contest) float64 { return c.Clients.WriteMBs }}, {"READ", func(c Contest) float64 { return c.Clients.ReadMBs }},
	{"P50 ms", func(c Contest) float64 { return c.Clients.P50MS }}, {"P99 ms", p99}, {"4 KiB P50", func(c Contest) float64 { return c.Clients.ProbeP50MS }},
	{"4 KiB P99", probeP99}, {"ACTIVE", func(c Contest) float64 { return c.Clients.Active }},
	{"SORTS s", makespan}, {"MEAN s", mean}, {"AT ONCE", func(c Contest) float64 { return float64(c.Sorts.AtOnce) }},
	{"CPU", func(c Contest) float64 { return c.CPU }}, {"SERVICE DISKS", func(c Contest) float64 { return c.Service.Busy }},
	{"OTHER DISKS", func(c Contest) float64 { return c.Other.Busy }},
}

// writeContests writes the medians of the rows with storage clients.
func (r Result) writeContests(w io.Writer) error {
	var names []string
	for _, between := range besides {
		names = append(names, besideRow(between))
	}
	title := fmt.Sprintf("Storage clients beside %d TeraSorts of %d MiB on %d hosts with disks of %.0f MB/s; medians. A quantum takes %.0f ms.",
		r.Setup.Beside.Sorts, r.Setup.Beside.SortMiB, r.Setup.Hosts, float64(r.Setup.Rate)/megabyte, r.Setup.quantumTime().Seconds()*1e3)
	return writeMedians(w, r, title, names, contestColumns, contestFigure)
}

// writeMedians writes a title and the medians of some rows, or nothing if none of them has been measured. The function figure
// returns how a column's figure is found in a turn.
func writeMedians[T any](w io.Writer, r Result, title string, rows []string, columns []column[T], figure func(of func(T) float64) func(Turn) (float64, bool)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	begun := false
	for _, name := range rows {
		n := len(r.Values(name, figure(columns[0].of)))
		if n == 0 {
			continue
		}
		if !begun {
			begun = true
			fmt.Fprintln(w, title)
			fmt.Fprint(t, "ROW\tRUNS")
			for _, c := range columns {
				fmt.Fprint(t, "\t"+c.head)
			}
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "%s\t%d", name, n)
		for _, c := range columns {
			fmt.Fprintf(t, "\t%.4g", figures.Median(r.Values(name, figure(c.of))))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: "MapReduce on a parallel file system", Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup, Charts: r.memoryChart(),
		About: "TeraSort and PageRank on real GlusterFS and MooseFS with modelled disks: with and without locality, with intermediate data on local disks or on the file system, and there with Hadoop's shuffle or merged in place. " +
			"In some rows YARN has one or two CPUs, and less or more memory. " +
			"Storage clients beside many TeraSorts: on other disks, on the same disks, and with turns at the servers' disks."}
}

// ManySorts is the number of TeraSorts of the large measurement.
const ManySorts = 50

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims of
// every measurement with the default set-up, and with ManySorts.
func KnownClaims() []claims.Claim {
	s := DefaultSetup()
	var turns []Turn
	for _, one := range rows() {
		t := Turn{Row: one.String(), Run: 1}
		if one.beside != "" {
			t.Contest = &Contest{Clients: Clients{MBs: 1}, Sorts: Sorts{MakespanS: 1, MeanS: 1}}
			turns = append(turns, t)
			continue
		}
		for _, size := range one.sizes(s) {
			t.Jobs = append(t.Jobs, Job{SizeMiB: size, RunS: 1, Maps: 1, LocalMaps: 1, WrittenMB: 1, NetworkMB: 1, Memory: []MemorySample{{ResidentMB: 1}}})
		}
		turns = append(turns, t)
	}
	all := newResult(s, turns).claims()
	s.Beside.Sorts = ManySorts
	return append(all, newResult(s, turns).contests()...)
}
