package coord_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/core/coord"
	"penstock/lab/sim/optimum"

	"pgregory.net/rapid"
)

// tree is a model of a cluster. Its devices keep flows in queues and give each member exactly its
// part, at each level. Each device exchanges reports and totals once a period, at its own time.
type tree struct {
	queues  []queue // parents come before their queues
	flows   []leaf
	devices []*treeDevice
	totals  *coord.Totals
	tick    int
	late    int
	alone   bool // there is no broker
}

type queue struct {
	in     int // 0 for the root, otherwise the index of the queue + 1
	weight float64
}

type leaf struct {
	in      int
	weight  float64
	devices []int
	wants   func(tick int) bool // nil means always
}

type treeDevice struct {
	coord    coord.Device
	member   coord.Member
	flows    []int
	weights  map[int]float64 // parts in force, by number
	served   map[int]float64 // in ticks, since the last report
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

// number returns a queue's number in coord.Use.
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

// weight returns a member's weight in force.
func (t *tree) weight(d *treeDevice, number int) float64 {
	if w, ok := d.weights[number]; ok {
		return w
	}
	if number < 0 {
		return t.queues[-number-1].weight
	}
	return t.flows[number].weight
}

// serve divides one tick of a device among its flows.
func (t *tree) serve(d *treeDevice, got []float64) {
	inside := map[int]float64{} // queue -> sum of the weights of its backlogged members
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

// run advances the model by a number of ticks and returns each flow's service in them, in periods.
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

// ideal returns the weighted max-min division at each level: of the queues' totals at the root, and
// then of the members' totals within each queue. The second step divides among all flows, with
// weights that are scaled until each queue's total equals its due.
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
	// The due of every queue of the root. A flow of the root counts as a queue.
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

// skewedTree draws two or three queues with members, some flows at the root, and a placement in
// which some flows are on most devices and others on few.
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

// TestTreeComesToTheOptimum is TestDivisionComesToTheOptimum at every level of a tree.
func TestTreeComesToTheOptimum(t *testing.T) {
	for _, devices := range []int{3, 10, 100} {
		for _, late := range []int{3, 10} {
			var never, two, ten, thirty []float64
			for seed := range 20 {
				r := rand.New(rand.NewPCG(uint64(seed), uint64(devices)))
				c := skewedTree(r, devices, late)
				ideal := c.ideal(t)
				after := func(periods int) float64 {
					c.run((periods - 1) * period)
					return misplaced(c.run(period), ideal, 1)
				}
				never = append(never, misplaced(c.run(1), ideal, 0.1))
				c.run(late - 1)
				two, ten, thirty = append(two, after(3)), append(ten, after(8)), append(thirty, after(20))
			}
			m2, x2 := median(two)
			m10, x10 := median(ten)
			m30, x30 := median(thirty)
			mn, xn := median(never)
			t.Logf("%3d devices, answers %2d ticks late: without %.1f %% (at most %.1f), after two exchanges %.2f %% (%.2f), after ten %.2f %% (%.2f), after thirty %.2f %% (%.2f)",
				devices, late, 100*mn, 100*xn, 100*m2, 100*x2, 100*m10, 100*x10, 100*m30, 100*x30)
			if m2 > 0.08 || m10 > 0.03 || m30 > 0.025 || m2 > mn/2 || x30 > 0.15 {
				t.Errorf("too far off")
			}
		}
	}
}

// TestIdleSharesStayInTheQueue checks that the service of an idle member goes to its siblings at
// once, by parts and by weights, and that the next parts do not take it from them.
func TestIdleSharesStayInTheQueue(t *testing.T) {
	all := []int{0, 1, 2}
	c := newTree(rand.New(rand.NewPCG(1, 1)), []queue{{0, 3}, {0, 1}, {1, 2}},
		[]leaf{{in: 1, weight: 2, devices: all}, {in: 3, weight: 1, devices: all}, {in: 3, weight: 1, devices: all, wants: func(tick int) bool { return tick < 20*period }}, {in: 2, weight: 5, devices: all}}, 3, 3)
	holds := func(what string, want ...float64) {
		t.Helper()
		got := c.run(period)
		for i, w := range want {
			if math.Abs(got[i]/3-w) > 0.01 {
				t.Fatalf("%s: %.3f of three devices, want %.3f of each", what, got, want)
			}
		}
	}
	c.run(19 * period)
	holds("all at work", 0.375, 0.1875, 0.1875, 0.25)
	holds("one has just become idle", 0.375, 0.375, 0, 0.25)
	c.run(9 * period)
	holds("one is idle", 0.375, 0.375, 0, 0.25)
	c.die()
	holds("one is idle, without a broker", 0.375, 0.375, 0, 0.25)
}

// TestMembersOnDifferentDevices checks that two members of one queue get their entitlements
// although they are on different devices, each shared with another queue's member. This must also
// hold if their queue is the only member of another queue, and if each member has its own queue.
func TestMembersOnDifferentDevices(t *testing.T) {
	for name, c := range map[string]struct {
		queues []queue
		in     [3]int
	}{
		"in one queue":              {[]queue{{0, 1}, {0, 1}}, [3]int{1, 1, 2}},
		"in a queue in a queue":     {[]queue{{0, 1}, {0, 1}, {1, 5}}, [3]int{3, 3, 2}},
		"in queues of a queue":      {[]queue{{0, 1}, {0, 1}, {1, 3}, {1, 1}}, [3]int{3, 4, 2}},
		"beside a flow of the root": {[]queue{{0, 1}}, [3]int{1, 1, 0}},
	} {
		weights := []float64{3, 1, 1}
		var flows []leaf
		for i, devices := range [][]int{{0}, {1}, {0, 1}} {
			flows = append(flows, leaf{in: c.in[i], weight: weights[i], devices: devices})
		}
		model := newTree(rand.New(rand.NewPCG(1, 1)), c.queues, flows, 2, 2)
		model.run(60 * period)
		got := model.run(period)
		for i, want := range []float64{0.75, 0.25, 1} {
			if math.Abs(got[i]-want) > 0.03 {
				t.Errorf("%s: %.3f", name, got)
				break
			}
		}
	}
}

// TestComingsAndGoings begins and ends applications all the time, on all of thirty devices, whose
// totals are late. The queues' totals should not change at all; they must change little.
func TestComingsAndGoings(t *testing.T) {
	for _, c := range []struct {
		every      int // periods, on average
		mean, most float64
	}{{3, 0.01, 0.03}, {10, 0.005, 0.03}} {
		const devices, periods = 30, 300
		r := rand.New(rand.NewPCG(5, 5))
		var all []int
		for d := range devices {
			all = append(all, d)
		}
		on := make([]bool, 9)
		var flows []leaf
		for f := range on {
			on[f] = true
			flows = append(flows, leaf{in: 1 + f%3, weight: float64(1 + f), devices: all, wants: func(int) bool { return on[f] }})
		}
		queues := []queue{{0, 3}, {0, 2}, {0, 1}}
		model := newTree(r, queues, flows, devices, 2)
		model.run(5 * period)
		mean, most := 0.0, 0.0
		for range periods {
			if f := r.IntN(len(on)); r.IntN(c.every) == 0 && f >= len(queues) { // the first member of each queue stays
				on[f] = !on[f]
			}
			got, ideal := make([]float64, len(queues)), make([]float64, len(queues))
			for f, x := range model.run(period) {
				got[f%3] += x
			}
			for q := range queues {
				ideal[q] = devices * queues[q].weight / 6
			}
			off := misplaced(got, ideal, 1)
			mean, most = mean+off/periods, max(most, off)
		}
		t.Logf("one in %d periods begins or ends: %.2f %% misplaced among queues (at most %.2f)", c.every, 100*mean, 100*most)
		if mean > c.mean || most > c.most {
			t.Error("too far off")
		}
	}
}

// TestOneQueueAroundAll checks that one queue around all applications does not change the division.
func TestOneQueueAroundAll(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	weights, serves := skewed(r, 10, 6)
	make := func(in int) *tree {
		var queues []queue
		if in > 0 {
			queues = []queue{{0, 7}}
		}
		flows := make([]leaf, len(weights))
		for f, w := range weights {
			flows[f] = leaf{in: in, weight: w}
		}
		for d, there := range serves {
			for _, f := range there {
				flows[f].devices = append(flows[f].devices, d)
			}
		}
		return newTree(rand.New(rand.NewPCG(4, 4)), queues, flows, len(serves), 3)
	}
	flat, around := make(0), make(1)
	for range 30 {
		a, b := flat.run(period), around.run(period)
		for i := range a {
			if math.Abs(a[i]-b[i]) > 1e-4 {
				t.Fatalf("%.5f in a queue, %.5f without one", b, a)
			}
		}
	}
}

// TestLeastPartInQueues checks the minimum part of a flow whose queue has its minimum part. The
// flow keeps as much as a flow with the minimum part of the device.
func TestLeastPartInQueues(t *testing.T) {
	var d coord.Device
	uses := []coord.Use{
		{App: -1}, {App: 1, In: -1, Served: 250 * time.Millisecond, Wanted: time.Second}, {App: 2, In: -1, Served: 250 * time.Millisecond, Wanted: time.Second},
		{App: 3, Served: 500 * time.Millisecond, Wanted: time.Second},
	}
	d.Report(1, time.Second, uses)
	parts, ok := d.Answer(1, func(app int) (coord.Right, bool) {
		total := map[int]float64{-1: 100, 1: 99, 2: 1, 3: 0.5}[app]
		in := 0
		if app == 1 || app == 2 {
			in = -1
		}
		return coord.Right{Weight: 1, In: in, Total: coord.Service{Rate: int64(total * coord.Second), Room: int64(total * coord.Second)}}, true
	})
	weights := map[int]float64{}
	for _, p := range parts {
		weights[p.App] = p.Weight
	}
	if !ok || len(parts) != 4 {
		t.Fatalf("%v, %v", parts, ok)
	}
	queue := weights[-1] / (weights[-1] + weights[3])
	if math.Abs(queue-coord.LeastPart/2) > 1e-6 {
		t.Errorf("the queue has %v, want %v", queue, coord.LeastPart/2)
	}
	if got, want := queue*weights[1]/(weights[1]+weights[2]), coord.LeastPart/4; got < 0.99*want {
		t.Errorf("a flow has %v, want %v or more", got, want)
	}
}

// TestMovedMembers checks that a member that has moved to another queue gets no part, and that the
// other members get theirs.
func TestMovedMembers(t *testing.T) {
	var d coord.Device
	second := func(app, in int) coord.Use {
		return coord.Use{App: app, In: in, Served: time.Second / 4, Wanted: time.Second}
	}
	d.Report(1, time.Second, []coord.Use{{App: -1}, second(1, -1), second(2, -1), second(3, 0), second(4, 0)})
	parts, ok := d.Answer(1, func(app int) (coord.Right, bool) {
		in := map[int]int{1: -1}[app]
		return coord.Right{Weight: 1, In: in, Total: coord.Service{Rate: coord.Second, Room: coord.Second}}, app != 4
	})
	if !ok || len(parts) != 3 || parts[0].App != -1 || parts[1].App != 1 || parts[2].App != 3 {
		t.Errorf("%+v, %v", parts, ok)
	}
}

// TestTreesAreDivided draws trees and totals. Each part must be above 0, the parts of a queue's
// members must add up to their weights, and reports must be within their limits.
func TestTreesAreDivided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d coord.Device
		var uses []coord.Use
		queues := []int{0}
		for i := range rapid.IntRange(0, 5).Draw(t, "queues") {
			uses = append(uses, coord.Use{App: -1 - i, In: rapid.SampledFrom(queues).Draw(t, "in")})
			queues = append(queues, -1-i)
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "flows") {
			uses = append(uses, coord.Use{App: i, In: rapid.SampledFrom(queues).Draw(t, "in")})
		}
		in, weights := map[int]int{}, map[int]float64{}
		for _, u := range uses {
			in[u.App], weights[u.App] = u.In, float64(rapid.IntRange(1, 1_000_000).Draw(t, "weight"))
		}
		for sequence := range uint64(4) {
			for i := range uses {
				uses[i].Served = time.Duration(rapid.Int64Range(0, 2*int64(time.Second)).Draw(t, "served"))
				uses[i].Wanted = time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "wanted"))
			}
			sum := int64(0)
			for i, s := range d.Report(sequence, time.Second, uses) {
				// A rate is an entitlement plus an average of earlier deviations, so it can pass a second per second.
				if s.Rate < 0 || s.Rate > 2*coord.Second || s.Room < 0 || s.Room > coord.Second+1 || s.Had < 0 || s.Had > coord.MaxNeed || s.Weight < 0 || s.Weight > coord.MaxNeed {
					t.Fatalf("%+v is %+v", uses[i], s)
				}
				if uses[i].App >= 0 {
					sum += s.Rate
				}
			}
			if sum > 2*coord.Second {
				t.Fatalf("rates of one device add up to %v", sum)
			}
			rate := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 64*coord.Second), rapid.Int64Range(0, 20_000*coord.MaxRate))
			parts, ok := d.Answer(sequence, func(app int) (coord.Right, bool) {
				return coord.Right{Weight: weights[app], In: in[app], Total: coord.Service{Rate: rate.Draw(t, "rate"), Room: rate.Draw(t, "room"),
					Had: rate.Draw(t, "had"), Weight: rate.Draw(t, "members' weight")}}, true
			})
			if !ok || len(parts) != len(uses) {
				t.Fatalf("%d parts of %d, %v", len(parts), len(uses), ok)
			}
			sums, want := map[int]float64{}, map[int]float64{}
			for _, p := range parts {
				if !(p.Weight > 0) || math.IsInf(p.Weight, 0) {
					t.Fatalf("%+v", p)
				}
				sums[in[p.App]] += p.Weight
				want[in[p.App]] += weights[p.App]
			}
			for q, w := range want {
				if math.Abs(sums[q]/w-1) > 1e-6 {
					t.Fatalf("the parts in queue %d add up to %v, want %v", q, sums[q], w)
				}
			}
		}
	})
}
