package coord_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"penstock/core/coord"
	"penstock/lab/sim/optimum"

	"pgregory.net/rapid"
)

// cluster is a model of devices that give flows exactly their parts, and of the exchanges of
// reports and totals. Each device reports once a period, at its own time, and receives late totals.
type cluster struct {
	weights []float64
	serves  [][]int // device -> applications with a backlog there
	parts   [][]float64
	totals  *coord.Totals
	members []coord.Member
	late    int // ticks between a report and the use of its answer
	pending [][]answer
	sum     [][]float64 // device -> application: service since its last report
	since   []int
	phase   []int
	tick    int
	held    func([]coord.Claim) []coord.Claim // changes claims before they are divided
}

type answer struct {
	due    int
	claims []coord.Claim
}

const period = 10 // ticks

func newCluster(r *rand.Rand, weights []float64, serves [][]int, late int) *cluster {
	c := &cluster{weights: weights, serves: serves, late: late,
		totals: coord.NewTotals(len(serves), len(weights), len(weights))}
	n := len(serves)
	c.members, c.parts, c.sum = make([]coord.Member, n), make([][]float64, n), make([][]float64, n)
	c.since, c.phase, c.pending = make([]int, n), make([]int, n), make([][]answer, n)
	for d, apps := range serves {
		c.phase[d] = r.IntN(period)
		c.join(d, apps)
	}
	return c
}

// join adds a device. Its parts are the weights until it receives totals.
func (c *cluster) join(d int, apps []int) {
	m, err := c.totals.Join()
	if err != nil {
		panic(err)
	}
	c.members[d], c.serves[d] = m, apps
	c.parts[d], c.sum[d] = make([]float64, len(apps)), make([]float64, len(apps))
	for i, a := range apps {
		c.parts[d][i] = c.weights[a]
		if _, err := c.totals.Name(m, i, string(rune('A'+a))); err != nil {
			panic(err)
		}
	}
	c.since[d], c.pending[d] = 0, nil
}

func (c *cluster) leave(d int) {
	if err := c.totals.Leave(c.members[d]); err != nil {
		panic(err)
	}
	c.serves[d], c.pending[d] = nil, nil
}

// run advances the model by a number of ticks and returns each application's service in them.
func (c *cluster) run(ticks int) []float64 {
	got := make([]float64, len(c.weights))
	for range ticks {
		for d, apps := range c.serves {
			all := 0.0
			for _, p := range c.parts[d] {
				all += p
			}
			for i, a := range apps {
				s := c.parts[d][i] / all / period
				got[a] += s
				c.sum[d][i] += s
			}
		}
		c.tick++
		for d := range c.serves {
			if c.since[d]++; c.tick%period == c.phase[d] && len(c.serves[d]) > 0 {
				c.exchange(d)
			}
			for len(c.pending[d]) > 0 && c.pending[d][0].due <= c.tick {
				c.divide(d, c.pending[d][0].claims)
				c.pending[d] = c.pending[d][1:]
			}
		}
	}
	return got
}

func (c *cluster) exchange(d int) {
	m := c.members[d]
	claims := make([]coord.Claim, len(c.serves[d]))
	length := float64(c.since[d]) / period
	gives := 0.0
	for i := range claims {
		gives += c.sum[d][i] / length
	}
	for i, a := range c.serves[d] {
		claims[i] = coord.Claim{Weight: c.weights[a], Own: c.sum[d][i] / length, Wants: true}
		s := coord.Service{Rate: int64(claims[i].Own * coord.Second), Room: int64(gives * coord.Second)}
		if err := c.totals.Report(m, i, s); err != nil {
			panic(err)
		}
		c.sum[d][i] = 0
	}
	c.since[d] = 0
	for i := range claims {
		_, _, total, _ := c.totals.Entry(m, i)
		claims[i].Total, claims[i].Room = float64(total.Rate)/coord.Second, float64(total.Room)/coord.Second
	}
	c.pending[d] = append(c.pending[d], answer{c.tick + c.late, claims})
}

func (c *cluster) divide(d int, claims []coord.Claim) {
	for i, a := range c.serves[d] {
		claims[i].Weight = c.weights[a]
	}
	if c.held != nil {
		claims = c.held(claims)
	}
	parts, err := coord.Divide(c.parts[d], claims)
	if err != nil {
		panic(err)
	}
	c.parts[d] = parts
}

// ideal returns the weighted max-min division of one period's service.
func (c *cluster) ideal(t interface{ Fatal(...any) }) []float64 {
	seekers := make([]optimum.Seeker, len(c.weights))
	capacity := make([]float64, len(c.serves))
	for a, w := range c.weights {
		seekers[a].Weight = w
	}
	for d, apps := range c.serves {
		capacity[d] = 1
		for _, a := range apps {
			seekers[a].Devices = append(seekers[a].Devices, d)
		}
	}
	totals, err := optimum.Totals(seekers, capacity)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

// misplaced returns the part of all service that went to the wrong applications.
func misplaced(got, ideal []float64, periods float64) float64 {
	off, all := 0.0, 0.0
	for i := range got {
		off += math.Abs(got[i]/periods-ideal[i]) / 2
		all += ideal[i]
	}
	return off / all
}

// skewed draws weights and a placement in which some applications are on most devices and
// others on few.
func skewed(r *rand.Rand, devices, apps int) (weights []float64, serves [][]int) {
	spread := make([]float64, apps)
	for a := range apps {
		weights = append(weights, float64(int(1)<<r.IntN(5)))
		spread[a] = math.Pow(r.Float64(), 2)
	}
	serves = make([][]int, devices)
	for d := range devices {
		for a := range apps {
			if r.Float64() < spread[a] {
				serves[d] = append(serves[d], a)
			}
		}
	}
	for a := range apps {
		d := r.IntN(devices)
		there := false
		for _, o := range serves[d] {
			there = there || o == a
		}
		if !there {
			serves[d] = append(serves[d], a)
		}
	}
	return weights, serves
}

// TestDivisionComesToTheOptimum covers clusters of all sizes, extreme skew, and answers that are up
// to a period old.
func TestDivisionComesToTheOptimum(t *testing.T) {
	for _, devices := range []int{2, 3, 10, 30, 100} {
		for _, late := range []int{0, 3, 10} {
			var two, ten, never []float64
			for seed := range 20 {
				r := rand.New(rand.NewPCG(uint64(seed), uint64(devices)))
				weights, serves := skewed(r, devices, 6)
				c := newCluster(r, weights, serves, late)
				ideal := c.ideal(t)
				local := c.run(1)
				never = append(never, misplaced(local, ideal, 0.1))
				c.run(2*period + late - 1)
				two = append(two, misplaced(c.run(period), ideal, 1))
				c.run(7 * period)
				ten = append(ten, misplaced(c.run(period), ideal, 1))
			}
			m2, x2 := median(two)
			m10, x10 := median(ten)
			mn, xn := median(never)
			t.Logf("%3d devices, answers %2d ticks late: without %.1f %% (at most %.1f), after two exchanges %.2f %% (%.2f), after ten %.2f %% (%.2f)",
				devices, late, 100*mn, 100*xn, 100*m2, 100*x2, 100*m10, 100*x10)
			if m2 > 0.05 || m10 > 0.01 || x10 > 0.03 {
				t.Errorf("too far off")
			}
			if m2 > mn/2 {
				t.Errorf("after two exchanges %.3f of the service is misplaced, without exchanges %.3f", m2, mn)
			}
		}
	}
}

func median(x []float64) (mid, most float64) {
	s := slices.Sorted(slices.Values(x))
	return s[len(s)/2], s[len(s)-1]
}

// TestEachForItselfSwings shows why a device corrects only its part of a difference. If each device
// corrects the whole difference, from totals that are half a period old, shares oscillate. This is
// not the rule of DSFQ, which delays start tags; see TestSwingsOfDelays in lab/sim.
func TestEachForItselfSwings(t *testing.T) {
	worst := func(devices int, held func([]coord.Claim) []coord.Claim) (mid, most float64) {
		var all []float64
		for seed := range 10 {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(devices)))
			weights, serves := skewed(r, devices, 6)
			c := newCluster(r, weights, serves, period/2)
			c.held = held
			c.run(20 * period)
			swing := 0.0
			for range 10 {
				swing = max(swing, misplaced(c.run(period), c.ideal(t), 1))
			}
			all = append(all, swing)
		}
		return median(all)
	}
	whole := func(claims []coord.Claim) []coord.Claim {
		for i := range claims {
			claims[i].Room = 0
		}
		return claims
	}
	for _, devices := range []int{3, 10, 30, 100} {
		alone, aloneMost := worst(devices, whole)
		part, partMost := worst(devices, nil)
		t.Logf("%3d devices, after twenty exchanges, misplaced in the worst of ten periods: if each device corrects the whole difference %.1f %% (at most %.1f), if it corrects its part %.2f %% (%.2f)",
			devices, 100*alone, 100*aloneMost, 100*part, 100*partMost)
		if partMost > 0.03 || devices >= 10 && aloneMost < 5*partMost {
			t.Error("correcting the whole difference misplaced less than correcting a part")
		}
	}
}

// TestChanges changes a weight and removes and adds a node. The division must be right again two
// exchanges after each change.
func TestChanges(t *testing.T) {
	var off []float64
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		weights, serves := skewed(r, 20, 6)
		c := newCluster(r, weights, serves, 1)
		c.run(10 * period)
		check := func(what string) {
			c.run(2*period + 1)
			m := misplaced(c.run(period), c.ideal(t), 1)
			off = append(off, m)
			if m > 0.1 {
				t.Errorf("seed %d: %s: %.3f of the service is misplaced after two exchanges", seed, what, m)
			}
		}
		c.weights[seed%6] *= 4
		check("another weight")
		gone := c.serves[3]
		c.leave(3)
		check("a node is gone")
		c.join(3, gone)
		check("a node is back")
	}
	mid, most := median(off)
	t.Logf("misplaced after two exchanges: median %.2f %%, at most %.2f %%", 100*mid, 100*most)
	if mid > 0.03 {
		t.Error("too far off")
	}
}

// TestReturningFlow checks that an application still gets its minimum part on a device where it
// begins again, after it got more than its entitlement elsewhere for a long time.
func TestReturningFlow(t *testing.T) {
	claims := []coord.Claim{
		{Weight: 1, Own: 0, Total: 50, Room: 51, Wants: true},
		{Weight: 1, Own: 1, Total: 1, Room: 1, Wants: true},
	}
	parts, err := coord.Divide(nil, claims)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := parts[0]/(parts[0]+parts[1]), coord.LeastPart/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the flow keeps %v of the device, want %v", got, want)
	}
}

func TestBadClaims(t *testing.T) {
	good := coord.Claim{Weight: 1, Own: 1, Total: 1, Room: 1, Wants: true}
	for name, spoil := range map[string]func(*coord.Claim){
		"no weight": func(c *coord.Claim) { c.Weight = 0 }, "no number": func(c *coord.Claim) { c.Own = math.NaN() },
		"negative": func(c *coord.Claim) { c.Total = -1 }, "endless": func(c *coord.Claim) { c.Room = math.Inf(1) },
	} {
		bad := good
		spoil(&bad)
		parts := []float64{1, 2}
		if _, err := coord.Divide(parts, []coord.Claim{good, bad}); !errors.Is(err, coord.ErrClaim) || parts[0] != 1 || parts[1] != 2 {
			t.Errorf("%s: %v, parts %v", name, err, parts)
		}
	}
}

// TestPartsAreAlwaysSome checks that every part is above 0, whatever the claims are.
func TestPartsAreAlwaysSome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 64), rapid.Float64Range(0, 1e9))
		var claims []coord.Claim
		for range rapid.IntRange(0, 8).Draw(t, "claims") {
			claims = append(claims, coord.Claim{Weight: rapid.Float64Range(1e-6, 1e6).Draw(t, "weight"), Own: rate.Draw(t, "own"),
				Total: rate.Draw(t, "total"), Room: rate.Draw(t, "room"), Wants: rapid.Bool().Draw(t, "wants")})
		}
		parts, err := coord.Divide(nil, claims)
		if err != nil {
			t.Fatal(err)
		}
		gives, sum := 0.0, 0.0
		for i, p := range parts {
			if !(p > 0) || math.IsInf(p, 0) {
				t.Fatalf("part %d of %v is %v", i, claims, p)
			}
			if claims[i].Wants {
				gives += claims[i].Own
				sum += p
			}
		}
		if gives > 1e-12 && math.Abs(sum-gives) > 1e-6*gives {
			t.Fatalf("the parts of %v add up to %v, want %v", claims, sum, gives)
		}
	})
}
