package coord

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/core/reserve"
)

func placed(rate int64, order int, state reserve.State, members ...int) PlacedRate {
	return PlacedRate{Rate: rate, Order: order, State: state, Members: members, Demands: make([]Demand, len(members))}
}

func grown(r PlacedRate, from int64) PlacedRate { r.Kept = from; return r }

func TestAdmitRates(t *testing.T) {
	const unused, admitted, queued, reduced = reserve.Unused, reserve.Admitted, reserve.Queued, reserve.Reduced
	for name, test := range map[string]struct {
		rates  []PlacedRate
		room   []int64
		states []reserve.State
		sums   []int64
	}{
		"it fits on all nodes together":         {[]PlacedRate{placed(150, 0, unused, 0, 1)}, []int64{100, 50}, []reserve.State{admitted}, []int64{150}},
		"it does not fit":                       {[]PlacedRate{placed(151, 0, unused, 0, 1)}, []int64{100, 50}, []reserve.State{queued}, []int64{0}},
		"nodes elsewhere do not help":           {[]PlacedRate{placed(101, 0, unused, 0)}, []int64{100, 500}, []reserve.State{queued}, []int64{0}},
		"a node that says nothing":              {[]PlacedRate{placed(1e6, 0, unused, 0, 1)}, []int64{100, UnknownRoom}, []reserve.State{admitted}, []int64{1e6}},
		"the first rule wins":                   {[]PlacedRate{placed(80, 2, unused, 0), placed(80, 1, unused, 0)}, []int64{100}, []reserve.State{queued, admitted}, []int64{0, 80}},
		"an admitted rate stays":                {[]PlacedRate{placed(80, 2, admitted, 0), placed(80, 1, unused, 0)}, []int64{100}, []reserve.State{admitted, queued}, []int64{80, 0}},
		"an admitted rate may need a bit more":  {[]PlacedRate{placed(104, 2, admitted, 0)}, []int64{100}, []reserve.State{admitted}, []int64{104}},
		"a slow node keeps the order":           {[]PlacedRate{placed(80, 2, admitted, 0), placed(90, 1, admitted, 0)}, []int64{90}, []reserve.State{reduced, admitted}, []int64{5, 90}},
		"a margin to come back":                 {[]PlacedRate{placed(103, 0, reduced, 0)}, []int64{100}, []reserve.State{reduced}, []int64{103}},
		"a queued rate needs no margin":         {[]PlacedRate{placed(98, 0, queued, 0)}, []int64{100}, []reserve.State{admitted}, []int64{98}},
		"an admitted rate grows":                {[]PlacedRate{grown(placed(40, 0, admitted, 0), 10), placed(60, 1, admitted, 0)}, []int64{100}, []reserve.State{admitted, admitted}, []int64{40, 60}},
		"it grows too much, and keeps its rate": {[]PlacedRate{grown(placed(95, 0, admitted, 0), 10), placed(60, 1, admitted, 0)}, []int64{100}, []reserve.State{reduced, admitted}, []int64{10, 60}},
		"and back":                              {[]PlacedRate{placed(95, 0, queued, 0)}, []int64{100}, []reserve.State{admitted}, []int64{95}},
		"a rate without nodes":                  {[]PlacedRate{placed(95, 0, admitted)}, []int64{100}, []reserve.State{unused}, []int64{0}},
		"a node without any room takes no part": {[]PlacedRate{placed(100, 0, unused, 0, 1)}, []int64{0, 100}, []reserve.State{admitted}, []int64{100}},
	} {
		for i, v := range AdmitRates(test.rates, test.room) {
			sum := int64(0)
			for _, p := range v.Parts {
				sum += p
			}
			if v.State != test.states[i] || sum != test.sums[i] {
				t.Errorf("%s: rate %d is %v with %d in all (%v), want %v with %d", name, i, v.State, sum, v.Parts, test.states[i], test.sums[i])
			}
		}
	}
}

// TestAdmitAnyRates: no node has more than its room, a rate that is admitted has all of it, and a newcomer takes nothing from a rate that
// is admitted.
func TestAdmitAnyRates(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		room := make([]int64, 1+r.IntN(6))
		for i := range room {
			room[i] = r.Int64N(1000)
		}
		rates := make([]PlacedRate, r.IntN(6))
		for i := range rates {
			rates[i] = placed(1+r.Int64N(1000), r.IntN(3), reserve.State(r.IntN(4)), r.Perm(len(room))[:1+r.IntN(len(room))]...)
			rates[i].Since = time.Duration(r.IntN(3))
			for k := range rates[i].Demands {
				rates[i].Demands[k] = Demand{Rate: r.Int64N(500), Given: r.Int64N(500), Hungry: r.IntN(2) == 0}
			}
		}
		verdicts := AdmitRates(rates, room)
		taken := make([]int64, len(room))
		for i, v := range verdicts {
			sum := int64(0)
			for k, m := range rates[i].Members {
				if v.Parts[k] < 0 {
					t.Fatalf("seed %d: the part %d", seed, v.Parts[k])
				}
				taken[m] += v.Parts[k]
				sum += v.Parts[k]
			}
			if want := int64(v.Granted * float64(rates[i].Rate)); sum < want-1 || sum > want+1 {
				t.Fatalf("seed %d: parts of %d, want %d (%+v)", seed, sum, want, v)
			}
			if rates[i].rank() == 0 && v.State == reserve.Queued {
				t.Fatalf("seed %d: an admitted rate is queued", seed)
			}
		}
		for i, n := range taken {
			if float64(n) > keepRoom*float64(room[i]) {
				t.Fatalf("seed %d: node %d guarantees %d, its room is %d", seed, i, n, room[i])
			}
		}
		newcomer := placed(1+r.Int64N(1000), 0, reserve.Unused, 0)
		for i, v := range AdmitRates(append(rates, newcomer), room)[:len(rates)] {
			if rates[i].rank() == 0 && v.Granted != verdicts[i].Granted {
				t.Fatalf("seed %d: a newcomer changed %+v to %+v", seed, verdicts[i], v)
			}
		}
	}
}
