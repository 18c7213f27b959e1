package sim

import (
	"fmt"
	"slices"
	"time"

	"penstock/core/slowdown"
)

// Job contains the run times of a job in seconds, by the way in which it was played. 0: it was not
// played in this way, or did not end within the scenario's length.
type Job struct {
	Name        string  `json:"name"`
	Kind        string  `json:"kind"` // the name of the scenario's entry
	Application string  `json:"application"`
	Submitted   float64 `json:"submitted"`
	Input       int64   `json:"input_bytes"`
	Shuffle     int64   `json:"shuffle_bytes"`
	Output      int64   `json:"output_bytes"`
	Maps        int     `json:"maps"`
	Reduces     int     `json:"reduces"`
	Alone       float64 `json:"alone,omitempty"`
	FIFO        float64 `json:"fifo,omitempty"`
	Local       float64 `json:"local,omitempty"`
	Coordinated float64 `json:"coordinated,omitempty"`
	Shortest    float64 `json:"shortest,omitempty"`
	Sized       float64 `json:"sized,omitempty"`
	Equal       float64 `json:"equal,omitempty"`
	Deadline    float64 `json:"deadline,omitempty"`
	// Due is the job's deadline; nil: it has none.
	Due *Deadline `json:"due,omitempty"`
	// The broker's estimates of the slowdown when the job ended. 0: equal was not played.
	Estimate      float64 `json:"coordinated_slowdown_estimate,omitempty"`
	EqualEstimate float64 `json:"equal_slowdown_estimate,omitempty"`
	// Rates are the bytes per second that its application moved between EqualSpec.From and To, by way.
	Rates map[string]float64 `json:"rates,omitempty"`
}

// Summary contains the results of the jobs of one kind, or of one size, played in one way.
type Summary struct {
	Way  string `json:"way"`
	Of   string `json:"of"`   // a kind, a size, or "average"
	All  int    `json:"all"`  // jobs
	Jobs int    `json:"jobs"` // jobs that ended; all other figures describe only these
	// Run times in seconds.
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Mean   float64 `json:"mean"`
	// Slowdowns are run times divided by the run times alone; 0 if the jobs were not played alone.
	// The slowdowns of "average" are means over the kinds.
	SlowdownMedian float64 `json:"slowdown_median,omitempty"`
	SlowdownP90    float64 `json:"slowdown_p90,omitempty"`
	SlowdownMean   float64 `json:"slowdown_mean,omitempty"`
}

// sizes are the ranges of job sizes in summaries. A job's size is the sum of its input, shuffle and
// output.
var sizes = []struct {
	below int64
	name  string
}{{100e6, "below 100 MB"}, {1e9, "100 MB to 1 GB"}, {10e9, "1 to 10 GB"}, {100e9, "10 to 100 GB"}, {1 << 62, "100 GB and more"}}

const average = "average"

// playJobs plays the jobs in all ways that the scenario requests.
func (s *Scenario) playJobs(seed uint64, progress func(float64) error) (*Result, error) {
	works, err := s.works(seed)
	if err != nil {
		return nil, err
	}
	apps, _ := applicationsOf(works)
	r := &Result{Title: s.Title, Seed: seed, Applications: len(s.Applications) + len(apps), Good: true}
	steps, step := 0, 0
	for _, way := range s.MapReduce.Play {
		if steps++; way == wayAlone {
			steps += len(works) - 1
		}
	}
	next := func(done float64) error { return progress(min(1, (float64(step)+done)/float64(steps))) }
	for _, way := range s.MapReduce.Play {
		if way != wayAlone {
			if err := s.playWay(way, works, seed, r, next); err != nil {
				return nil, err
			}
			step++
			continue
		}
		for i := range works {
			if works[i].background {
				continue
			}
			if err := s.playWay(way, works[i:i+1], seed, r, next); err != nil {
				return nil, err
			}
			step++
		}
	}
	r.jobs(works)
	r.summarise(s.MapReduce.Play)
	s.judgeJobs(r, works)
	return r, nil
}

// playWay plays jobs in one way and records their run times.
func (s *Scenario) playWay(way string, works []*work, seed uint64, r *Result, progress func(float64) error) error {
	apps, of := applicationsOf(works)
	exchange := s.exchange()
	alone := way == wayAlone
	if way != wayCoordinated && way != wayShortest && way != waySized && way != wayEqual && way != wayDeadline {
		exchange.Period = 0
	}
	played := *s
	if alone {
		played.Applications, played.Events = nil, nil
	}
	if way == wayFIFO {
		played.Nodes = slices.Clone(s.Nodes)
		for i := range played.Nodes {
			played.Nodes[i].Algorithm, played.Nodes[i].Depth = "fifo", 1024
		}
	}
	for k, a := range played.Applications {
		for i := range a.Count {
			apps = append(apps, &App{Name: a.nameOf(i), Weight: a.Weight, kind: a.Name, guarantee: a.guarantee(k)})
		}
	}
	if way == wayDeadline {
		for i, w := range works {
			if w.deadline > 0 {
				of[i].guarantee = forDeadline(w.deadline, len(played.Applications)+i)
			}
		}
	}
	c := newCluster(seed, exchange, apps)
	if err := c.populate(&played); err != nil {
		return err
	}
	if err := c.flows(); err != nil {
		return err
	}
	var equal *equalizer
	length := time.Duration(s.Length)
	if e := s.Expect.Equal; e.To > 0 {
		length = time.Duration(e.To)
		c.measureRates(time.Duration(e.From), length, func(rates []float64) {
			for i, w := range works {
				w.setRate(way, rates[of[i].index])
				w.noteEstimate(equal, of[i], (*slowdown.App).Slowdown)
			}
		})
	}
	index := len(apps)
	for i := range slices.Backward(played.Applications) {
		a := played.Applications[i]
		index -= a.Count
		for n := range a.Count {
			for _, at := range c.draw(a.On, a.Spread) {
				c.feed(at, index+n, a.op(), window*s.MapReduce.Slots) // as many requests in flight as from that number of tasks
			}
		}
	}
	y := newYarn(c, s.MapReduce, seed)
	if way == wayEqual || way == wayCoordinated && slices.Contains(s.MapReduce.Play, wayEqual) {
		equal = newEqualizer(c, y, way == wayEqual)
	}
	for i, w := range works {
		at := w.at
		if alone {
			at = 0
		}
		y.add(w, of[i], at, seed, func(end time.Duration) {
			*w.took(way) = end - at
			w.noteEstimate(equal, of[i], (*slowdown.App).Overall)
		})
	}
	if way == wayDeadline {
		newDeadlines(c, y)
	}
	if way == wayShortest || way == waySized {
		newOrderer(c, y, s.MapReduce.slices(), way == waySized)
	}
	for _, ev := range played.Events {
		c.At(time.Duration(ev.At), func() {
			c.happen(ev)
			y.happen(ev)
		})
	}
	for c.Now() < length && y.wanted > 0 {
		c.Run(min(c.Now()+time.Second, length))
		if err := progress(float64(c.Now()) / float64(length)); err != nil {
			return err
		}
	}
	r.Nodes, r.Disks = len(c.places), c.disks
	r.Events += c.seq
	return nil
}

// flows returns an error if the flows would not fit in memory.
func (c *Cluster) flows() error {
	if len(c.places)*len(c.apps) > maxFlows {
		return fmt.Errorf("%d nodes with %d applications each are more than %d flows: give the jobs a common application", len(c.places), len(c.apps), maxFlows)
	}
	return nil
}

// happen performs the effects of an event on the tasks.
func (y *yarn) happen(ev EventSpec) {
	switch {
	case ev.Leave != nil:
		y.lost(y.cluster.places[*ev.Leave].node)
	case ev.Join != nil:
		y.spread()
	case ev.Application != "":
		for _, a := range y.cluster.apps {
			if a.kind == ev.Application {
				a.Weight = ev.Weight
			}
		}
		for _, n := range y.cluster.nodes {
			if !n.inForce {
				n.device.local()
			}
		}
	}
}

func (w *work) took(way string) *time.Duration {
	switch way {
	case wayAlone:
		return &w.alone
	case wayFIFO:
		return &w.fifo
	case wayLocal:
		return &w.local
	case wayShortest:
		return &w.shortest
	case waySized:
		return &w.sized
	case wayEqual:
		return &w.equal
	case wayDeadline:
		return &w.timely
	}
	return &w.coor
}

func (r *Result) jobs(works []*work) {
	for _, w := range works {
		if w.background {
			continue
		}
		r.Jobs = append(r.Jobs, Job{Name: w.name, Kind: w.kind, Application: w.application, Submitted: w.at.Seconds(),
			Input: w.input, Shuffle: w.shuffle, Output: w.output, Maps: w.maps, Reduces: w.reduces,
			Alone: w.alone.Seconds(), FIFO: w.fifo.Seconds(), Local: w.local.Seconds(), Coordinated: w.coor.Seconds(),
			Shortest: w.shortest.Seconds(), Sized: w.sized.Seconds(), Equal: w.equal.Seconds(), Deadline: w.timely.Seconds(), Due: w.deadlineOf(),
			Estimate: w.estimate[0], EqualEstimate: w.estimate[1], Rates: w.rates})
	}
}

// Took returns the job's run time in one way, in seconds.
func (j *Job) Took(way string) float64 {
	switch way {
	case wayAlone:
		return j.Alone
	case wayFIFO:
		return j.FIFO
	case wayLocal:
		return j.Local
	case wayShortest:
		return j.Shortest
	case waySized:
		return j.Sized
	case wayEqual:
		return j.Equal
	case wayDeadline:
		return j.Deadline
	}
	return j.Coordinated
}

// summarise makes the summaries of the jobs, by way, and by kind or size.
func (r *Result) summarise(ways []string) {
	var kinds []string
	for _, j := range r.Jobs {
		if !slices.Contains(kinds, j.Kind) {
			kinds = append(kinds, j.Kind)
		}
	}
	for _, way := range ways {
		var means, medians, p90s []float64
		add := func(of string, in func(*Job) bool) {
			s := summary(way, of, r.Jobs, in)
			if s.All > 0 {
				r.Summaries = append(r.Summaries, s)
			}
		}
		for _, kind := range kinds {
			add(kind, func(j *Job) bool { return j.Kind == kind })
			if s := summary(way, kind, r.Jobs, func(j *Job) bool { return j.Kind == kind }); s.Jobs > 0 {
				means, medians, p90s = append(means, s.SlowdownMean), append(medians, s.SlowdownMedian), append(p90s, s.SlowdownP90)
			}
		}
		if len(r.Jobs) > len(kinds) {
			least := int64(-1)
			for _, size := range sizes {
				from := least
				least = size.below
				add(size.name, func(j *Job) bool {
					b := j.Input + j.Shuffle + j.Output
					return b >= from && b < size.below
				})
			}
		}
		all := summary(way, average, r.Jobs, func(*Job) bool { return true })
		all.SlowdownMean, all.SlowdownMedian, all.SlowdownP90 = mean(means), mean(medians), mean(p90s)
		r.Summaries = append(r.Summaries, all)
	}
}

func summary(way, of string, jobs []Job, in func(*Job) bool) Summary {
	var times, slow []float64
	all := 0
	for i := range jobs {
		j := &jobs[i]
		if !in(j) {
			continue
		}
		all++
		t := j.Took(way)
		if t == 0 {
			continue
		}
		times = append(times, t)
		if j.Alone > 0 {
			slow = append(slow, t/j.Alone)
		}
	}
	return Summary{Way: way, Of: of, All: all, Jobs: len(times), Median: median(times), P90: quantile(times, 0.9), Mean: mean(times),
		SlowdownMedian: median(slow), SlowdownP90: quantile(slow, 0.9), SlowdownMean: mean(slow)}
}

func mean(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return sum / float64(len(of))
}

// Ended returns the number of jobs that ended when they were played in one way.
func (r *Result) Ended(way string) (ended int) {
	for i := range r.Jobs {
		if r.Jobs[i].Took(way) > 0 {
			ended++
		}
	}
	return ended
}

// Mean returns the mean run time of the jobs in one way in seconds, or 0 if they were not played in this way.
func (r *Result) Mean(way string) float64 {
	for _, s := range r.Summaries {
		if s.Way == way && s.Of == average {
			return s.Mean
		}
	}
	return 0
}

// Average returns the average slowdown in one way, or 0 if the jobs were not played in this way.
func (r *Result) Average(way string) float64 {
	for _, s := range r.Summaries {
		if s.Way == way && s.Of == average {
			return s.SlowdownMean
		}
	}
	return 0
}

// judgeJobs compares the slowdowns with the expectations.
func (s *Scenario) judgeJobs(r *Result, works []*work) {
	for _, way := range s.MapReduce.Play {
		late := 0
		for _, w := range works {
			if !w.background && *w.took(way) == 0 {
				late++
			}
		}
		r.expect(late == 0 || s.Expect.Equal.To > 0, "%s: %d of %d jobs have not ended within %v, so its figures do not include them: make the run longer, or the jobs smaller", way, late, len(r.Jobs), time.Duration(s.Length))
	}
	s.judgeEqual(r)
	s.judgeDeadlines(r)
	b, got := s.Expect.Better, r.Average(wayCoordinated)
	for _, one := range []struct {
		way  string
		gain float64
	}{{wayShortest, b.Shortest}, {waySized, b.Sized}} {
		if one.gain == 0 {
			continue
		}
		mean, equal := r.Mean(one.way), r.Mean(wayCoordinated)
		r.expect(mean > 0 && mean <= equal*(1-one.gain), "the mean run time is %.1f s in the way %s and %.1f s coordinated: it should be lower by at least %.0f %%", mean, one.way, equal, 100*one.gain)
	}
	for _, than := range []struct {
		way  string
		most float64
	}{{wayLocal, b.Local}, {wayFIFO, b.FIFO}} {
		if than.most == 0 {
			continue
		}
		other := r.Average(than.way)
		r.expect(got > 0 && other > 0, "the average slowdowns coordinated and %s cannot be compared, because one is unknown: let play include alone, coordinated and %s", than.way, than.way)
		r.expect(got <= other-than.most, "the average slowdown is %.3f coordinated and %.3f %s: coordinated should be lower by at least %g", got, other, than.way, than.most)
	}
}

// Times returns the run times, in seconds, of the jobs that ended in one way, shortest first.
func Times(jobs []Job, way string) (times []float64) {
	for i := range jobs {
		if t := jobs[i].Took(way); t > 0 {
			times = append(times, t)
		}
	}
	slices.Sort(times)
	return times
}
