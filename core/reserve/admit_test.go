package reserve

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestAdmit(t *testing.T) {
	for name, test := range map[string]struct {
		claims []Claim
		states []State
		fits   []float64
	}{
		"all fit":                {[]Claim{{Part: 0.4}, {Part: 0.5}}, []State{Admitted, Admitted}, []float64{1, 1}},
		"the second does not":    {[]Claim{{Part: 0.5}, {Part: 0.6}}, []State{Admitted, Queued}, []float64{1, 0.4 / 0.6}},
		"the first rule wins":    {[]Claim{{Part: 0.5, Order: 2}, {Part: 0.6, Order: 1}}, []State{Queued, Admitted}, []float64{0.6, 1}},
		"the first to come wins": {[]Claim{{Part: 0.5, Since: time.Minute}, {Part: 0.6, Since: time.Second}}, []State{Queued, Admitted}, []float64{0.6, 1}},
		"an admitted rate stays": {[]Claim{{Part: 0.5, Order: 2, State: Admitted}, {Part: 0.6, Order: 1}}, []State{Admitted, Queued}, []float64{1, 0.4 / 0.6}},
		"a small one still fits": {[]Claim{{Part: 0.8}, {Part: 0.2}, {Part: 0.1}}, []State{Admitted, Queued, Admitted}, []float64{1, 0.5, 1}},
		"a slow device keeps the order": {[]Claim{{Part: 0.6, Order: 2, State: Admitted}, {Part: 0.8, Order: 1, State: Admitted}, {Part: 0.2, Order: 0}},
			[]State{Reduced, Admitted, Queued}, []float64{0.25, 1, 0}},
		"rates of one rule are reduced alike": {[]Claim{{Part: 1.9, State: Admitted}, {Part: 0.1, State: Admitted}}, []State{Reduced, Reduced}, []float64{0.475, 0.475}},
		"a margin to come back":               {[]Claim{{Part: 0.88, State: Queued}}, []State{Queued}, []float64{1}},
		"and back":                            {[]Claim{{Part: 0.85, State: Queued}, {Part: 0.04, State: Reduced}}, []State{Queued, Admitted}, []float64{1, 1}},
		"a bit slower":                        {[]Claim{{Part: 0.94, State: Admitted}}, []State{Admitted}, []float64{1}},
	} {
		_, got := Admit(test.claims, nil, nil)
		for i, v := range got {
			if d := v.Fits - test.fits[i]; v.State != test.states[i] || d > 1e-9 || d < -1e-9 {
				t.Errorf("%s: claim %d is %v and %.3f of it fits, want %v and %.3f", name, i, v.State, v.Fits, test.states[i], test.fits[i])
			}
		}
	}
}

// TestAdmitAnything: what is granted fits into the device; nothing that was admitted and still fits is broken by a newcomer;
// and an earlier rule of equal state is never worse off than a later one of equal size.
func TestAdmitAnything(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		claims := make([]Claim, r.IntN(12))
		admitted := 0.0
		for i := range claims {
			claims[i] = Claim{Part: 0.001 + r.Float64(), Order: r.IntN(4), Since: time.Duration(r.IntN(3)), State: State(r.IntN(4))}
			if claims[i].State == Admitted {
				admitted += claims[i].Part
			}
		}
		_, got := Admit(claims, nil, nil)
		sum := 0.0
		for i, v := range got {
			c := claims[i]
			sum += v.Granted * c.Part
			if v.Granted < 0 || v.Granted > 1 || v.Fits < v.Granted-1e-9 || v.Fits > 1 {
				t.Fatalf("seed %d: %+v for %+v", seed, v, c)
			}
			if c.State == Admitted && v.State == Queued {
				t.Fatalf("seed %d: an admitted rate is queued", seed)
			}
			for j, o := range claims {
				if o.State == c.State && o.Part == c.Part && o.Order < c.Order && got[j].Granted < v.Granted {
					t.Fatalf("seed %d: claim %d comes later and has more", seed, i)
				}
			}
		}
		if sum > keepMost+1e-9 {
			t.Fatalf("seed %d: %.3f of the device is granted", seed, sum)
		}
		for i, v := range got {
			reduced := false
			for _, c := range claims {
				reduced = reduced || c.State == Reduced
			}
			if !reduced && admitted <= keepMost && claims[i].State == Admitted && v.State != Admitted {
				t.Fatalf("seed %d: a newcomer broke an admitted rate", seed)
			}
		}
	}
}
