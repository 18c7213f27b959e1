package shortest

import (
	"fmt"
	"math"
	"time"

	"penstock/core/shortest"
	"penstock/lab/bench/together"
	"penstock/lab/contest"
	"penstock/lab/experiment/figures"
	"penstock/lab/hadoop"
	"penstock/lab/sim"
	"penstock/settings"
)

// Prediction is what the simulator expects of an order of the jobs.
type Prediction struct {
	Row string `json:"row"`
	// EqualS and OrderedS are the mean completions with equal shares and in this order, in seconds.
	EqualS   float64 `json:"equal_s"`
	OrderedS float64 `json:"ordered_s"`
	Gain     float64 `json:"gain"` // 1 - OrderedS/EqualS
	// FluidGain is the gain if each job were a fluid that needs the disks for the time that it does I/O alone, in
	// the right order from the beginning.
	FluidGain float64 `json:"fluid_gain"`
}

func (p Prediction) String() string {
	return fmt.Sprintf("%s: mean completion %.1f s instead of %.1f s with equal shares, %.0f %% less (a fluid: %.0f %%)",
		p.Row, p.OrderedS, p.EqualS, 100*p.Gain, 100*p.FluidGain)
}

// measured is a job as it ran alone; medians.
type measured struct {
	together.Job
	seconds, idle float64
	moved         int64
}

// alone returns the jobs as they ran alone. It returns an error if one of them did not run.
func (r Result) alone() (all []measured, err error) {
	for _, j := range r.Setup.Jobs {
		row := together.AlonePrefix + j.Name
		m := measured{Job: j, seconds: r.Median(row, together.Completion(j.Name)),
			idle:  r.Median(row, func(r together.Run) float64 { return r.Jobs[0].IdleS }),
			moved: int64(r.Median(row, func(r together.Run) float64 { return float64(r.Jobs[0].Read + r.Jobs[0].Written) }))}
		if len(r.Of(row)) == 0 || m.moved == 0 || !(m.seconds > m.idle) {
			return nil, fmt.Errorf("the row %s has not been measured, or the disks' log has no bytes of it: no gain can be predicted", row)
		}
		all = append(all, m)
	}
	return all, nil
}

const (
	// simulated bounds the simulated time, and simulationSeed is the seed of its random values.
	simulated      = 2 * time.Hour
	simulationSeed = 1
)

// predict returns the predictions for all orders, from the runs of the jobs alone.
func (r Result) predict() ([]Prediction, error) {
	jobs, err := r.alone()
	if err != nil {
		return nil, err
	}
	var all []Prediction
	for _, o := range r.Setup.orders() {
		way := sim.WayShortest
		if o.sized {
			way = sim.WaySized
		}
		s, err := r.Setup.scenario(jobs, o.slices, way)
		if err != nil {
			return nil, err
		}
		played, err := s.Play(simulationSeed, nil)
		if err != nil {
			return nil, err
		}
		p := Prediction{Row: o.row, EqualS: played.Mean(sim.WayCoordinated), OrderedS: played.Mean(way)}
		if p.EqualS == 0 || p.OrderedS == 0 {
			return nil, fmt.Errorf("predict %s: the simulated jobs did not end within %v", o.row, simulated)
		}
		p.Gain = 1 - p.OrderedS/p.EqualS
		p.FluidGain = fluidGain(jobs, o.slices)
		all = append(all, p)
	}
	return all, nil
}

// scenario returns the jobs, with the volumes and the start-up time that were measured, as a scenario of the
// simulator. They are played with equal shares and in the given way. A job's shuffle is what it moved besides its input and output: written by maps and read by reduces.
// A job is no faster than it was alone, in the phase with the fewest tasks.
func (s Setup) scenario(jobs []measured, slices shortest.Slices, way string) (*sim.Scenario, error) {
	c := sim.Scenario{Title: s.title(), Length: settings.Duration(simulated)}
	node := sim.NodeSpec{Count: s.Disk.DataNodes, Disk: contest.HDD, Rate: settings.Bytes(s.Disk.BytesPerSecond), Quantum: settings.Bytes(s.Device.QuantumBytes)}
	if s.Disk.Kind == contest.SSD {
		node.Disk = contest.SSD
	}
	c.Nodes = []sim.NodeSpec{node}
	tasks := 0
	var idle []float64
	for _, j := range jobs {
		spec := sim.JobSpec{Name: j.Name, Queue: "batch"}
		moved := settings.Bytes(j.moved)
		switch input := settings.Bytes(j.Bytes); {
		case j.Kind == hadoop.TeraGen:
			spec.Maps, spec.Output = j.Maps, moved
		case j.Kind == hadoop.WordCount || moved < 2*input:
			spec.Input = min(input, moved)
			spec.Output = moved - spec.Input
		default:
			spec.Input, spec.Output = input, input
			if spec.Shuffle = (moved - 2*input) / 2; spec.Shuffle > 0 {
				spec.Reduces = j.Reduces
			}
		}
		fewest := max(1, j.Maps) // tasks of one of the job's phases
		if spec.Reduces > 0 {
			fewest = min(fewest, spec.Reduces)
		}
		spec.Rate = settings.Bytes(float64(j.moved) / (j.seconds - j.idle) / float64(fewest))
		c.Jobs = append(c.Jobs, spec)
		tasks += j.Maps + j.Reduces
		idle = append(idle, j.idle)
	}
	start := time.Duration(math.Max(0.001, figures.Median(idle)) * float64(time.Second))
	c.MapReduce = sim.MapReduceSpec{Slots: tasks, Block: settings.Bytes(blockOf(jobs)), Replication: 1, Start: settings.Duration(start),
		Slices: slices.Percent, Floor: slices.Floor, Play: []string{sim.WayCoordinated, way}}
	c.Exchange = sim.ExchangeSpec{DelayMin: settings.Duration(time.Millisecond), DelayMax: settings.Duration(20 * time.Millisecond)}
	return sim.New(c)
}

// blockOf returns the largest size of an input file, which is one block.
func blockOf(jobs []measured) int64 {
	most := int64(contest.MiB)
	for _, j := range jobs {
		if j.Kind != hadoop.TeraGen {
			most = max(most, j.Bytes/int64(j.Maps))
		}
	}
	return most
}

// fluidGain returns the gain of an order for fluids. The jobs are in the order of their sizes.
func fluidGain(jobs []measured, s shortest.Slices) float64 {
	equal := func(n int) []float64 {
		parts := make([]float64, n)
		for i := range parts {
			parts[i] = 1 / float64(n)
		}
		return parts
	}
	return 1 - fluidMean(jobs, s.Parts)/fluidMean(jobs, equal)
}

// fluidMean returns the mean completion in seconds of jobs that each need the disks for the time in which they do
// I/O alone. parts returns the part of the disks for each of n jobs.
func fluidMean(jobs []measured, parts func(n int) []float64) float64 {
	var left []float64
	for _, j := range jobs {
		left = append(left, j.seconds-j.idle)
	}
	now, sum := 0.0, 0.0
	for len(left) > 0 {
		p := parts(len(left))
		next := math.Inf(1)
		for i := range left {
			next = min(next, left[i]/p[i])
		}
		now += next
		var rest []float64
		for i := range left {
			if l := left[i] - next*p[i]; l > 1e-9 {
				rest = append(rest, l)
			} else {
				sum += now
			}
		}
		left = rest
	}
	return sum / float64(len(jobs))
}
