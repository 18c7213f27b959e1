package coord

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/core/limit"
)

const mib = 1 << 20

func TestDivideRate(t *testing.T) {
	for name, test := range map[string]struct {
		total   int64
		demands []Demand
		want    []int64
	}{
		"nobody":                       {100, nil, nil},
		"one":                          {100, []Demand{{}}, []int64{100}},
		"all hungry":                   {100, []Demand{{Hungry: true}, {Hungry: true}}, []int64{50, 50}},
		"the rest goes to the hungry":  {1000, []Demand{{Rate: 100, Given: 500}, {Rate: 500, Given: 500, Hungry: true}}, []int64{150, 850}},
		"an idle member keeps a bit":   {1000, []Demand{{Given: 500}, {Rate: 500, Given: 500, Hungry: true}}, []int64{10, 990}},
		"what nobody needs is divided": {1000, []Demand{{Rate: 100, Given: 500}, {Rate: 100, Given: 500}}, []int64{500, 500}},
		"a slow device is no hunger":   {1000, []Demand{{Rate: 100, Given: 500, Hungry: true}, {Rate: 500, Given: 500, Hungry: true}}, []int64{150, 850}},
		"the remainder is not lost":    {100, []Demand{{Hungry: true}, {Hungry: true}, {Hungry: true}}, []int64{33, 33, 34}},
		"little has changed":           {1000, []Demand{{Rate: 100, Given: 170}, {Rate: 830, Given: 830, Hungry: true}}, []int64{170, 830}},
		"a lie about the rate":         {1000, []Demand{{Rate: -5}, {Rate: 1 << 62}, {Hungry: true}}, []int64{6, 497, 497}},
	} {
		got := DivideRate(nil, test.total, test.demands)
		if len(got) != len(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: %v, want %v", name, got, test.want)
				break
			}
		}
	}
}

// TestDivideRateOfAnything: the parts add up to the total, none is below its lower bound, and no member without an
// open demand has more than one with an open demand, unless it needs it.
func TestDivideRateOfAnything(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		total := r.Int64N(1 << r.IntN(41))
		demands := make([]Demand, 1+r.IntN(20))
		for i := range demands {
			demands[i] = Demand{Rate: r.Int64N(total + 1), Given: r.Int64N(total + 1), Hungry: r.IntN(2) == 0}
		}
		parts := DivideRate(nil, total, demands)
		sum, least := int64(0), int64(leastRatePart*float64(total)/float64(len(demands)))
		for i, p := range parts {
			sum += p
			if p < least && demands[i].Given != p {
				t.Fatalf("seed %d: part %d of %d is below %d", seed, p, total, least)
			}
			if demands[i].Given == p {
				continue // the last division may have stayed
			}
			need, open := demands[i].need()
			for j, q := range parts {
				if _, other := demands[j].need(); open && !other && q > p+1 {
					t.Fatalf("seed %d: member %d with an open demand has %d, member %d has %d", seed, i, p, j, q)
				}
			}
			// Max-min: a member that has less than it needs has at least as much as every other, beyond rounding.
			if !open && float64(p) < need-1 {
				for j, q := range parts {
					if q > p+int64(len(parts)) {
						t.Fatalf("seed %d: member %d needs %.0f and has %d, member %d has %d", seed, i, need, p, j, q)
					}
				}
			}
		}
		if sum != total {
			t.Fatalf("seed %d: the parts add up to %d, not %d", seed, sum, total)
		}
	}
}

// TestTasksMove: an application reads at 100 MiB/s in total on three nodes. Its tasks move to one node. From
// the second exchange on, that node has at least nine tenths of the guaranteed rate.
func TestTasksMove(t *testing.T) {
	const total = 100 * mib
	demands := make([]Demand, 3)
	var parts []int64
	exchange := func(tasks ...bool) {
		for i, busy := range tasks {
			demands[i] = Demand{Given: 0, Hungry: busy}
			if parts != nil {
				demands[i].Given = parts[i]
			}
			if busy {
				demands[i].Rate = demands[i].Given // the scheduler gives what is guaranteed, and no more
			}
		}
		parts = DivideRate(nil, total, demands)
	}
	exchange(true, true, true)
	exchange(true, true, true)
	for i, p := range parts {
		if p < total/3 {
			t.Errorf("node %d has %d of %d", i, p, total)
		}
	}
	exchange(true, false, false)
	exchange(true, false, false)
	if parts[0] < total*9/10 {
		t.Errorf("after the move: %v", parts)
	}
}

func TestReserveWithoutBroker(t *testing.T) {
	const part = 8 * mib
	for silence, want := range map[time.Duration]int64{
		0: part, RateLease: part, RateLease + 1: part / 2, 2*RateLease - 1: part / 2, 2 * RateLease: part / 4,
		3 * RateLease: part / 8, 14*RateLease - 1: part >> 13, 14 * RateLease: 0, 1 << 62: 0,
	} {
		if got := ReserveWithoutBroker(part, silence); got != want {
			t.Errorf("after %v: %d, want %d", silence, got, want)
		}
	}
	if got := ReserveWithoutBroker(limit.MinRate-1, 0); got != 0 {
		t.Errorf("a part below the smallest rate: %d", got)
	}
}
