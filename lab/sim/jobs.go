package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"penstock/core/shortest"
	"penstock/settings"
)

// Bounds on jobs.
const (
	maxJobs  = 20_000
	maxTasks = 2_000_000 // total over all jobs
	maxScale = 1000      // largest factor for a trace's bytes
	reduceBy = 1 << 30   // bytes per reduce, unless the scenario sets the number of reduces
)

// The values of MapReduceSpec.Order.
const (
	orderFair = "fair"
	orderFIFO = "fifo"
)

// Ways in which other packages play jobs.
const (
	WayCoordinated = wayCoordinated
	WayShortest    = wayShortest
	WaySized       = waySized
)

// The ways in which jobs are played.
const (
	wayAlone       = "alone"       // each job alone on the cluster
	wayFIFO        = "fifo"        // requests go to the disk in order of arrival
	wayLocal       = "local"       // the scenario's scheduler, without coordination
	wayCoordinated = "coordinated" // as wayLocal, and with the broker's totals
	wayShortest    = "shortest"    // as wayCoordinated, with all jobs in one queue, the shortest first by progress
	waySized       = "sized"       // the same by stated sizes
	wayEqual       = "equal"       // as wayCoordinated, with all jobs in one queue that equals slowdowns
	wayDeadline    = "deadline"    // as wayCoordinated, and jobs with deadlines get the rates that they need
)

// ways are all ways.
var ways = []string{wayAlone, wayFIFO, wayLocal, wayCoordinated, wayShortest, waySized, wayEqual, wayDeadline}

// work is a job to play.
type work struct {
	name, kind               string
	application, queue       string
	weight                   float64
	at                       time.Duration
	input, shuffle, output   int64
	on                       []int
	spread                   float64
	maps, reduces, slots     int
	rate                     int64
	background               bool
	index                    int
	alone, fifo, local, coor time.Duration // run times; 0: not played, or not finished
	shortest, sized, equal   time.Duration
	estimate                 [2]float64 // slowdown at the end, in wayCoordinated and wayEqual
	rates                    map[string]float64
	deadline                 time.Duration // after the submission; 0: none
	timely                   time.Duration // run time in wayDeadline
	decided                  Deadline
}

func (s *Scenario) checkJobs(check func(bool, string, ...any), nodes int) {
	m := &s.MapReduce
	m.Slots, m.Block = cmp.Or(m.Slots, 8), cmp.Or(m.Block, settings.Bytes(128<<20))
	m.Replication, m.Order = cmp.Or(m.Replication, 3), cmp.Or(m.Order, orderFair)
	m.Start = cmp.Or(m.Start, settings.Duration(time.Second))
	check(m.Slots > 0 && m.Slots <= 256, "mapreduce: slots %d: use 1 to 256", m.Slots)
	check(m.Block >= 1<<20 && m.Block <= 1<<30, "mapreduce: block %d: use 1MiB to 1GiB", m.Block)
	check(m.Replication > 0 && m.Replication <= 10, "mapreduce: replication %d: use 1 to 10", m.Replication)
	check(time.Duration(m.Start) <= time.Minute, "mapreduce: start %v: use at most 1m", time.Duration(m.Start))
	check(m.Order == orderFair || m.Order == orderFIFO, "mapreduce: order %q: use fair or fifo", m.Order)
	if len(m.Play) == 0 {
		m.Play = []string{wayAlone, wayFIFO, wayLocal, wayCoordinated}
	}
	for _, w := range m.Play {
		check(slices.Contains(ways, w), "mapreduce: play %q: use alone, fifo, local, coordinated, shortest, sized, equal or deadline", w)
	}
	if len(m.Slices) == 0 {
		m.Slices = shortest.Default().Percent
	}
	m.Floor = cmp.Or(m.Floor, shortest.Default().Floor)
	if err := m.slices().Validate(); err != nil {
		check(false, "mapreduce: %v", err)
	}
	jobs := 0
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Count, j.Weight = cmp.Or(j.Count, 1), cmp.Or(j.Weight, 1)
		jobs += max(0, min(j.Count, maxJobs))
		check(j.Name != "", "jobs[%d]: give a name", i)
		check(j.Count > 0 && j.Count <= maxJobs, "jobs[%d]: count %d: use 1 to %d", i, j.Count, maxJobs)
		check(j.Weight >= 0.001 && j.Weight <= 1000, "jobs[%d]: weight %v: use 0.001 to 1000", i, j.Weight)
		check(max(j.Input, j.Shuffle, j.Output) <= maxTraceBytes, "jobs[%d]: input, shuffle and output: use at most %d bytes each", i, int64(maxTraceBytes))
		check(j.Maps >= 0 && j.Maps <= maxTasks && (j.Maps == 0) != (j.Input == 0), "jobs[%d]: give either input, or maps for a job without input", i)
		check(j.Input > 0 || j.Shuffle == 0, "jobs[%d]: shuffle without input: give input too", i)
		check(j.Reduces >= 0 && j.Reduces <= maxTasks, "jobs[%d]: reduces %d: use 0 to %d", i, j.Reduces, maxTasks)
		check(j.Slots >= 0, "jobs[%d]: slots %d: use 0 or more", i, j.Slots)
		check(j.Rate == 0 || j.Rate >= 1<<10, "jobs[%d]: rate %d: use at least 1KiB", i, j.Rate)
		check(j.Spread >= 0 && j.Spread <= 1 && (j.Spread == 0 || j.On == nil), "jobs[%d]: give either on, or spread from 0 to 1", i)
		check(time.Duration(j.At) <= maxLength && time.Duration(j.Every) <= maxLength, "jobs[%d]: at and every: use at most %v", i, maxLength)
		for _, n := range j.On {
			check(n >= 0 && n < nodes, "jobs[%d]: on: there is no node %d: the scenario has %d, numbered from 0", i, n, nodes)
		}
	}
	for i := range s.Traces {
		t := &s.Traces[i]
		t.Weight, t.Bytes, t.Time = cmp.Or(t.Weight, 1), cmp.Or(t.Bytes, 1), cmp.Or(t.Time, 1)
		check(t.Name != "", "traces[%d]: give a name", i)
		check(t.Weight >= 0.001 && t.Weight <= 1000, "traces[%d]: weight %v: use 0.001 to 1000", i, t.Weight)
		check(t.Jobs >= 0 && t.Jobs <= maxJobs, "traces[%d]: jobs %d: use 0 to %d", i, t.Jobs, maxJobs)
		check(t.Bytes > 0 && t.Bytes <= maxScale && t.Time > 0 && t.Time <= 1000, "traces[%d]: bytes and time: use more than 0 and at most 1000", i)
		check(t.Machines >= 0 && t.Machines <= MaxNodes, "traces[%d]: machines %d: use 0 to %d", i, t.Machines, MaxNodes)
		check(s.scale(t) <= maxScale, "traces[%d]: bytes scaled from %[3]d machines to %[2]d are over %[4]d times the trace's: use smaller bytes or more machines", i, s.machines(), t.Machines, maxScale)
		check(t.Least >= 0 && t.Least <= 1<<40, "traces[%d]: least %d: use at most 1TiB", i, t.Least)
		check(t.Slots >= 0, "traces[%d]: slots %d: use 0 or more", i, t.Slots)
		check(t.Rate == 0 || t.Rate >= 1<<10, "traces[%d]: rate %d: use at least 1KiB", i, t.Rate)
	}
	s.checkDeadlines(check)
	check(jobs <= maxJobs, "the scenario has %d jobs: use at most %d", jobs, maxJobs)
	if len(s.Jobs)+len(s.Traces) > 0 {
		check(s.Expect.Misplaced == 0 && len(s.Expect.Spans) == 0, "expect: misplaced and spans do not apply to jobs, which are judged by their slowdowns: use better")
		check(len(s.Jobs) == 0 || slices.ContainsFunc(s.Jobs, func(j JobSpec) bool { return !j.Background }) || len(s.Traces) > 0, "jobs: all are background jobs, so none is measured: let at least one be a foreground job")
	}
}

// Trace replaces the file of every trace of the scenario.
func (s *Scenario) Trace(file string) error {
	if len(s.Traces) == 0 {
		return fmt.Errorf("the scenario has no entry in traces whose file %s could replace", file)
	}
	for i := range s.Traces {
		s.Traces[i].File = file
	}
	s.dir = ""
	return nil
}

// draw returns t.Jobs successive jobs of a trace, or all jobs if t.Jobs is 0 or the trace has no
// more. The first job is drawn at random among those for which all t.Jobs jobs are submitted within
// the given time. So a trace of a day fits into a run of an hour.
func (t *TraceSpec) draw(jobs []TraceJob, r *rand.Rand, within time.Duration) ([]TraceJob, error) {
	if t.Jobs == 0 || t.Jobs >= len(jobs) {
		return jobs, nil
	}
	var firsts []int
	least := time.Duration(math.MaxInt64)
	for i := range len(jobs) - t.Jobs + 1 {
		length := time.Duration(float64(jobs[i+t.Jobs-1].Submitted-jobs[i].Submitted) * t.Time)
		least = min(least, length)
		if length <= within {
			firsts = append(firsts, i)
		}
	}
	if len(firsts) == 0 {
		return nil, fmt.Errorf("the submissions of %d successive jobs take at least %v, and half of the run's length is %v: use fewer jobs, a longer run or a smaller time", t.Jobs, least, within)
	}
	first := firsts[r.IntN(len(firsts))]
	return jobs[first : first+t.Jobs], nil
}

// scale returns the factor for a trace's bytes.
func (s *Scenario) scale(t *TraceSpec) float64 {
	if t.Machines <= 0 {
		return t.Bytes
	}
	return t.Bytes * float64(s.machines()) / float64(t.Machines)
}

// machines returns the number of physical machines.
func (s *Scenario) machines() int {
	all := 0
	for _, n := range s.Nodes {
		all += n.Count
	}
	return all
}

// withinLength returns an error if jobs are submitted after the end of the run. Such jobs cannot
// end, regardless of the disks. Background jobs are not checked.
func (s *Scenario) withinLength(works []*work) error {
	waited, late, last := 0, 0, time.Duration(0)
	for _, w := range works {
		if !w.background {
			waited++
		}
		if !w.background && w.at >= time.Duration(s.Length) {
			late, last = late+1, max(last, w.at)
		}
	}
	if late > 0 {
		return fmt.Errorf("%d of %d jobs are submitted after the run's length of %v, the last one at %v: make the run longer, make the trace's time smaller, or set the trace's jobs",
			late, waited, time.Duration(s.Length), last)
	}
	return nil
}

// works returns the jobs of a run.
func (s *Scenario) works(seed uint64) ([]*work, error) {
	var all []*work
	for _, j := range s.Jobs {
		for i := range j.Count {
			name := j.Name
			if j.Count > 1 {
				name = fmt.Sprintf("%s-%d", j.Name, i+1)
			}
			all = append(all, &work{name: name, kind: j.Name, application: cmp.Or(j.Application, name), queue: j.Queue, weight: j.Weight,
				at: time.Duration(j.At) + time.Duration(i)*time.Duration(j.Every), input: int64(j.Input), shuffle: int64(j.Shuffle),
				output: int64(j.Output), on: j.On, spread: j.Spread, maps: j.Maps, reduces: j.Reduces, slots: j.Slots,
				rate: int64(j.Rate), background: j.Background, deadline: time.Duration(j.Deadline)})
		}
	}
	for n, t := range s.Traces {
		file := t.File
		if file == "" {
			return nil, fmt.Errorf("traces[%d]: no file is given: set file here, or use --trace", n)
		}
		if !filepath.IsAbs(file) {
			file = filepath.Join(s.dir, file)
		}
		jobs, err := LoadTrace(file)
		if err != nil {
			return nil, fmt.Errorf("traces[%d]: %w", n, err)
		}
		if jobs, err = t.draw(jobs, rand.New(rand.NewPCG(seed, uint64(1000+n))), time.Duration(s.Length)/2); err != nil {
			return nil, fmt.Errorf("traces[%d]: %w", n, err)
		}
		first := jobs[0].Submitted
		scale := s.scale(&t)
		for _, j := range jobs {
			scaled := func(v int64) int64 { return int64(float64(v) * scale) }
			w := &work{name: t.Name + "/" + j.Name, kind: t.Name, weight: t.Weight,
				at: time.Duration(float64(j.Submitted-first) * t.Time), input: scaled(j.Input), shuffle: scaled(j.Shuffle),
				output: scaled(j.Output), slots: t.Slots, queue: t.Queue, rate: int64(t.Rate)}
			w.application = cmp.Or(t.Application, w.name)
			if t.Least > 0 {
				w.input, w.shuffle, w.output = max(w.input, int64(t.Least)), max(w.shuffle, 1<<10), max(w.output, 1<<10)
			}
			if w.input == 0 {
				w.maps, w.shuffle = int(1+max(0, w.output-1)/reduceBy), 0
			}
			all = append(all, w)
		}
	}
	if err := s.withinLength(all); err != nil {
		return nil, err
	}
	if len(all) > maxJobs {
		return nil, fmt.Errorf("the scenario has %d jobs, at most %d are possible: set the traces' jobs", len(all), maxJobs)
	}
	tasks, names := int64(0), map[string]bool{}
	for i, w := range all {
		w.index = i
		if names[w.name] {
			return nil, fmt.Errorf("two jobs have the name %q: rename one", w.name)
		}
		names[w.name] = true
		if w.input > 0 {
			w.maps = int(min((w.input+int64(s.MapReduce.Block)-1)/int64(s.MapReduce.Block), maxTasks+1))
		}
		if w.reduces == 0 && w.shuffle > 0 {
			w.reduces = int(min(1+(max(w.shuffle, w.output)-1)/reduceBy, maxTasks+1))
		}
		tasks += int64(w.maps) + int64(w.reduces)
	}
	if tasks > maxTasks {
		return nil, fmt.Errorf("the jobs have %d tasks, at most %d are possible: use smaller bytes or fewer jobs for the traces", tasks, maxTasks)
	}
	return all, nil
}
