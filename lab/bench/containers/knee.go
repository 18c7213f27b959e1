package containers

import (
	"fmt"
	"math"
	"strings"
)

const (
	// leastGain is the gain of throughput that a doubling of the containers must have before the knee.
	leastGain = 0.25
	// A sign applies if its figure reaches this part (of the CPUs, of the disks) or grows by this factor.
	saturated = 0.9
	grown     = 1.5
)

// point has the figures of a number of containers. They are medians over the runs.
type point struct {
	Nodes, Replication int
	MBPerSecond        float64
	CPU, Disks         float64 // parts, 0 to 1
	RunDelayUS         float64 // of a dispatch
	SwitchesPerMB      float64
	TripP50US          float64
	TripP99US          float64
	TripMeanUS         float64
	TripDelayUS        float64 // delay in the run queue of both ends, of a trip
}

// network returns the part of the mean round trip that is not delay in the run queue.
func (p point) network() float64 { return max(0, p.TripMeanUS-p.TripDelayUS) }

// gain returns what a doubling of the containers adds to the throughput between two points, as a part of it: 1 means
// that the throughput doubles, 0 that it stays.
func gain(from, to point) float64 {
	return math.Pow(to.MBPerSecond/from.MBPerSecond, 1/math.Log2(float64(to.Nodes)/float64(from.Nodes))) - 1
}

// comparable returns the points with as many replicas as the last one has. More replicas make writes slower, whatever
// the number of containers.
func comparable(points []point) []point {
	for i, p := range points {
		if p.Replication == points[len(points)-1].Replication {
			return points[i:]
		}
	}
	return nil
}

// knee returns the index of the knee: the point with the smallest number of containers from which on every step to the
// next number adds less than leastGain per doubling. ok is false if the last step adds more, or if there are fewer
// than two points. The points have ascending numbers and the same replication.
func knee(points []point) (at int, ok bool) {
	at = len(points) - 1
	for at > 0 && gain(points[at-1], points[at]) < leastGain {
		at--
	}
	return at, len(points) > 1 && at < len(points)-1
}

// Cause is why more containers do not help.
type Cause string

// Causes, in the order in which they are examined: a sign is often the consequence of an earlier one. A CPU without idle
// time makes threads wait in the run queue, and a round trip contains this delay.
const (
	CauseCPU      Cause = "CPU"
	CauseDisks    Cause = "disks"
	CauseNetwork  Cause = "network"
	CauseSwitches Cause = "context switches"
	CauseQueue    Cause = "run queue"
	CauseNone     Cause = "none of these"
)

// Sign is a figure that may show a cause.
type Sign struct {
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	From    float64 `json:"from"` // with the fewest comparable containers
	To      float64 `json:"to"`   // with the next number after the knee
	Applies bool    `json:"applies"`
	Cause   Cause   `json:"cause"` // that it shows
}

func (s Sign) String() string {
	text := fmt.Sprintf("%s %.4g to %.4g", s.Name, s.From, s.To)
	if s.Unit != "" {
		text += " " + s.Unit
	}
	if s.Applies {
		text += " (applies)"
	}
	return text
}

// signs compares the figures before the knee and after it.
func signs(before, after point) []Sign {
	part := func(name string, cause Cause, of func(point) float64) Sign {
		return Sign{name, "", of(before), of(after), of(after) >= saturated, cause}
	}
	growth := func(name, unit string, cause Cause, of func(point) float64) Sign {
		return Sign{name, unit, of(before), of(after), of(before) > 0 && of(after) >= grown*of(before), cause}
	}
	return []Sign{
		part("busy part of the CPUs", CauseCPU, func(p point) float64 { return p.CPU }),
		part("busy part of the disks", CauseDisks, func(p point) float64 { return p.Disks }),
		growth("mean round trip without delay in the run queue", "us", CauseNetwork, point.network),
		growth("context switches per MB", "", CauseSwitches, func(p point) float64 { return p.SwitchesPerMB }),
		growth("delay in the run queue per dispatch", "us", CauseQueue, func(p point) float64 { return p.RunDelayUS }),
		// A round trip that only waits for the CPU is not a cause of its own.
		growth("median round trip", "us", CauseQueue, func(p point) float64 { return p.TripP50US }),
		growth("p99 of round trips", "us", CauseQueue, func(p point) float64 { return p.TripP99US }),
	}
}

// cause returns that of the first sign that applies.
func cause(all []Sign) Cause {
	for _, s := range all {
		if s.Applies {
			return s.Cause
		}
	}
	return CauseNone
}

// Finding is the knee of a job.
type Finding struct {
	Job   string `json:"job"`
	SetUp string `json:"set_up"`
	// Knee is the number of containers at the knee; 0: there is none up to Most, the greatest number.
	Knee int `json:"knee"`
	Most int `json:"most"`
	// Gain is what a doubling adds after the knee, as a part of the throughput; without a knee, in the last step.
	Gain  float64 `json:"gain"`
	Cause Cause   `json:"cause,omitempty"`
	Signs []Sign  `json:"signs,omitempty"`
}

// find returns the finding of points with ascending numbers of containers. ok is false if fewer than two can be compared.
func find(job, setUp string, points []point) (f Finding, ok bool) {
	points = comparable(points)
	if len(points) < 2 {
		return Finding{}, false
	}
	last := len(points) - 1
	f = Finding{Job: job, SetUp: setUp, Most: points[last].Nodes, Gain: round(gain(points[last-1], points[last]))}
	at, bends := knee(points)
	if !bends {
		return f, true
	}
	f.Knee, f.Gain = points[at].Nodes, round(gain(points[at], points[at+1]))
	f.Signs = signs(points[0], points[at+1])
	f.Cause = cause(f.Signs)
	return f, true
}

func (f Finding) String() string {
	if f.Knee == 0 {
		return fmt.Sprintf("%s, %s: no knee up to %d containers; in the last step, a doubling adds %.0f %%", f.Job, f.SetUp, f.Most, 100*f.Gain)
	}
	var all []string
	for _, s := range f.Signs {
		all = append(all, s.String())
	}
	return fmt.Sprintf("%s, %s: the knee is at %d containers; after it, a doubling adds %.0f %%. Cause: %s. Signs: %s", f.Job, f.SetUp, f.Knee, 100*f.Gain, f.Cause, strings.Join(all, "; "))
}
