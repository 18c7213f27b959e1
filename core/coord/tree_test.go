package coord_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/core/coord"
	"penstock/sim/optimum"
)

// tree is a model of a cluster whose devices keep flows in queues and give exactly the parts at
// each level, and of exchanges once a period, each device at a time of its own.
type tree struct {
	queues  []queue // a queue's parent is before it
	flows   []leaf
	devices []*treeDevice
	totals  *coord.Totals
	tick    int
	late    int
	alone   bool // there is no broker
}

type queue struct {
	in     int // 0: the root; else the queue's place + 1
	weight float64
}

type leaf struct {
	in      int
	weight  float64
	devices []int
	wants   func(tick int) bool // nil: always
}

type treeDevice struct {
	coord    coord.Device
	member   coord.Member
	flows    []int
	weights  map[int]float64 // by number; parts in force
	served   map[int]float64 // ticks, since the report
	wanted   map[int]int
	phase    int
	since    int
	sequence uint64
	pending  []pendingAnswer
	named    map[int]bool
}

type pendingAnswer struct {
	due      int
	sequence uint64
	totals   map[int]coord.Service
}

// number is a queue's in coord.Use.
func number(queue int) int { return -queue }

func newTree(r *rand.Rand, queues []queue, flows []leaf, devices, late int) *tree {
	t := &tree{queues: queues, flows: flows, late: late, totals: coord.NewTotals(devices, len(queues)+len(flows), len(queues)+len(flows))}
	for d := range devices {
		m, err := t.totals.Join()
		if err != nil {
			panic(err)
		}
		dev := &treeDevice{member: m, weights: map[int]float64{}, served: map[int]float64{}, wanted: map[int]int{}, phase: r.IntN(period), named: map[int]bool{}}
		for f, l := range flows {
			for _, at := range l.devices {
				if at == d {
					dev.flows = append(dev.flows, f)
				}
			}
		}
		t.devices = append(t.devices, dev)
	}
	return t
}

// weight is a member's in force.
func (t *tree) weight(d *treeDevice, number int) float64 {
	if w, ok := d.weights[number]; ok {
		return w
	}
	if number < 0 {
		return t.queues[-number-1].weight
	}
	return t.flows[number].weight
}

// serve gives out a tick of a device.
func (t *tree) serve(d *treeDevice, got []float64) {
	inside := map[int]float64{} // weights of those at work in a queue
	counted := map[int]bool{}
	wants := func(f int) bool { return t.flows[f].wants == nil || t.flows[f].wants(t.tick) }
	for _, f := range d.flows {
		if !wants(f) {
			continue
		}
		d.wanted[f]++
		inside[t.flows[f].in] += t.weight(d, f)
		for q := t.flows[f].in; q > 0 && !counted[q]; q = t.queues[q-1].in {
			counted[q] = true
			inside[t.queues[q-1].in] += t.weight(d, number(q))
		}
	}
	for _, f := range d.flows {
		if !wants(f) {
			continue
		}
		part := t.weight(d, f) / inside[t.flows[f].in]
		for q := t.flows[f].in; q > 0; q = t.queues[q-1].in {
			part *= t.weight(d, number(q)) / inside[t.queues[q-1].in]
		}
		d.served[f] += part
		got[f] += part / period
	}
}

// run lets a number of ticks go by and returns the services of the flows in them, in periods.
func (t *tree) run(ticks int) []float64 {
	got := make([]float64, len(t.flows))
	for range ticks {
		for _, d := range t.devices {
			t.serve(d, got)
		}
		t.tick++
		for _, d := range t.devices {
			if d.since++; t.tick%period == d.phase && !t.alone {
				t.exchange(d)
			}
			for len(d.pending) > 0 && d.pending[0].due <= t.tick {
				t.answer(d, d.pending[0])
				d.pending = d.pending[1:]
			}
		}
	}
	return got
}

func (t *tree) exchange(d *treeDevice) {
	const tick = time.Second / period
	var uses []coord.Use
	there := map[int]bool{}
	for _, f := range d.flows {
		for q := t.flows[f].in; q > 0; q = t.queues[q-1].in {
			there[q] = true
		}
	}
	for q := range t.queues {
		if there[q+1] {
			uses = append(uses, coord.Use{App: number(q + 1), In: -t.queues[q].in})
		}
	}
	for _, f := range d.flows {
		uses = append(uses, coord.Use{App: f, In: -t.flows[f].in, Served: time.Duration(d.served[f] * float64(tick)), Wanted: time.Duration(d.wanted[f]) * tick})
	}
	d.sequence++
	services := d.coord.Report(d.sequence, time.Duration(d.since)*tick, uses)
	a := pendingAnswer{due: t.tick + t.late, sequence: d.sequence, totals: map[int]coord.Service{}}
	entry := func(app int) int {
		if app < 0 {
			return len(t.flows) - app - 1
		}
		return app
	}
	for i, u := range uses {
		if !d.named[u.App] {
			if _, err := t.totals.Name(d.member, entry(u.App), fmt.Sprint(u.App)); err != nil {
				panic(err)
			}
			d.named[u.App] = true
		}
		if err := t.totals.Report(d.member, entry(u.App), services[i]); err != nil {
			panic(err)
		}
	}
	for _, u := range uses {
		_, _, a.totals[u.App], _ = t.totals.Entry(d.member, entry(u.App))
	}
	clear(d.served)
	clear(d.wanted)
	d.since, d.pending = 0, append(d.pending, a)
}

func (t *tree) answer(d *treeDevice, a pendingAnswer) {
	parts, ok := d.coord.Answer(a.sequence, func(app int) (coord.Right, bool) {
		if app < 0 {
			q := t.queues[-app-1]
			return coord.Right{Weight: q.weight, Total: a.totals[app], In: -q.in}, true
		}
		return coord.Right{Weight: t.flows[app].weight, Total: a.totals[app], In: -t.flows[app].in}, true
	})
	if !ok {
		panic("no answer")
	}
	clear(d.weights)
	for _, p := range parts {
		d.weights[p.App] = p.Weight
	}
}

func (t *tree) die() {
	t.alone = true
	for _, d := range t.devices {
		clear(d.weights)
		d.pending = nil
	}
}

// ideal is the weighted max-min division level by level: of the queues' totals at the root, and, with
// these, of the members' in each. It is found with the one among all flows, whose weights are
// brought to what makes each queue's total the one that is due.
func (t *tree) ideal(tb interface{ Fatal(...any) }) []float64 {
	capacity := make([]float64, len(t.devices))
	for i := range capacity {
		capacity[i] = 1
	}
	totals := func(seekers []optimum.Seeker) []float64 {
		got, err := optimum.Totals(seekers, capacity)
		if err != nil {
			tb.Fatal(err)
		}
		return got
	}
	top := func(l leaf) int {
		q := l.in
		for q > 0 && t.queues[q-1].in > 0 {
			q = t.queues[q-1].in
		}
		return q
	}
	// The due of every queue of the root, flows of the root being queues of their own.
	var groups []optimum.Seeker
	groupOf := make([]int, len(t.flows))
	byQueue := map[int]int{}
	for f, l := range t.flows {
		q := top(l)
		g, known := byQueue[q]
		if q == 0 || !known {
			g = len(groups)
			s := optimum.Seeker{Weight: l.weight}
			if q > 0 {
				byQueue[q], s.Weight = g, t.queues[q-1].weight
			}
			groups = append(groups, s)
		}
		groupOf[f] = g
		for _, d := range l.devices {
			if !slices.Contains(groups[g].Devices, d) {
				groups[g].Devices = append(groups[g].Devices, d)
			}
		}
	}
	due := totals(groups)
	scale := make([]float64, len(groups))
	for g := range groups {
		n := 0.0
		for f, l := range t.flows {
			if groupOf[f] == g {
				n += l.weight
			}
		}
		scale[g] = due[g] / n
	}
	var got []float64
	for range 60 {
		seekers := make([]optimum.Seeker, len(t.flows))
		for f, l := range t.flows {
			seekers[f] = optimum.Seeker{Weight: l.weight * scale[groupOf[f]], Devices: l.devices}
		}
		got = totals(seekers)
		sums := make([]float64, len(groups))
		for f, x := range got {
			sums[groupOf[f]] += x
		}
		for g := range groups {
			scale[g] *= math.Pow(due[g]/sums[g], 0.7)
		}
	}
	return got
}

// skewedTree draws two or three queues with members, some flows beside them, and a placement in
// which some are on most devices and others on few.
func skewedTree(r *rand.Rand, devices, late int) *tree {
	var queues []queue
	for range 2 + r.IntN(2) {
		queues = append(queues, queue{0, float64(int(1) << r.IntN(4))})
	}
	weights, serves := skewed(r, devices, 7)
	flows := make([]leaf, len(weights))
	for f, w := range weights {
		flows[f] = leaf{in: r.IntN(len(queues) + 1), weight: w}
	}
	for d, there := range serves {
		for _, f := range there {
			flows[f].devices = append(flows[f].devices, d)
		}
	}
	return newTree(r, queues, flows, devices, late)
}

func TestTreeComesToTheOptimum(t *testing.T) {
	for _, devices := range []int{2, 3, 10, 30, 100} {
		for _, late := range []int{0, 3, 10} {
			var never, two, ten, thirty []float64
			for seed := range 20 {
				r := rand.New(rand.NewPCG(uint64(seed), uint64(devices)))
				c := skewedTree(r, devices, late)
				ideal := c.ideal(t)
				never = append(never, misplaced(c.run(1), ideal, 0.1))
				c.run(2*period + late - 1)
				two = append(two, misplaced(c.run(period), ideal, 1))
				c.run(7 * period)
				ten = append(ten, misplaced(c.run(period), ideal, 1))
				c.run(19 * period)
				thirty = append(thirty, misplaced(c.run(period), ideal, 1))
			}
			m2, x2 := median(two)
			m10, x10 := median(ten)
			m30, x30 := median(thirty)
			mn, xn := median(never)
			t.Logf("%3d devices, answers %2d ticks late: without %.1f %% (at most %.1f), after two exchanges %.2f %% (%.2f), after ten %.2f %% (%.2f), after thirty %.2f %% (%.2f)",
				devices, late, 100*mn, 100*xn, 100*m2, 100*x2, 100*m10, 100*x10, 100*m30, 100*x30)
		}
	}
}
