package figures_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"penstock/lab/experiment/figures"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestMedianAndQuantile(t *testing.T) {
	near(t, "median of three", figures.Median([]float64{3, 1, 2}), 2, 0)
	near(t, "median of four", figures.Median([]float64{4, 1, 3, 2}), 2.5, 0)
	values := []float64{5, 1, 4, 2, 3}
	near(t, "p50", figures.Quantile(values, 0.5), 3, 0)
	near(t, "p99", figures.Quantile(values, 0.99), 5, 0)
	near(t, "lowest", figures.Quantile(values, 0.0001), 1, 0)
	if values[0] != 5 {
		t.Error("the values were put in order where they were")
	}
	if !math.IsNaN(figures.Median(nil)) || !math.IsNaN(figures.Quantile(nil, 0.5)) {
		t.Error("no values have no median")
	}
}

// Worked by hand: logarithms 0.1, 0.2 and 0.3 have the mean 0.2 and the standard
// deviation 0.1; Student's t for two degrees of freedom is 4.3027.
func TestPairedRatioByHand(t *testing.T) {
	r := figures.PairedRatio([]float64{math.Exp(0.1), 2 * math.Exp(0.2), 3 * math.Exp(0.3)}, []float64{1, 2, 3})
	if r == nil {
		t.Fatal("no ratio")
	}
	near(t, "mean", math.Log(r.Mean), 0.2, 1e-12)
	near(t, "low", math.Log(r.Low), 0.2-4.3027*0.1/math.Sqrt(3), 1e-4)
	near(t, "high", math.Log(r.High), 0.2+4.3027*0.1/math.Sqrt(3), 1e-4)
	if r.Pairs != 3 {
		t.Errorf("%d pairs", r.Pairs)
	}
}

func TestPairedRatioNeedsPairs(t *testing.T) {
	for _, c := range [][2][]float64{
		{nil, nil},
		{{1}, {1}},
		{{1, 2}, {1}},
		{{1, 0}, {1, 1}},
		{{1, 1}, {1, -1}},
		{{1, math.NaN()}, {1, 1}},
		{{1, math.Inf(1)}, {1, 1}},
	} {
		if r := figures.PairedRatio(c[0], c[1]); r != nil {
			t.Errorf("%v by %v: %+v", c[0], c[1], *r)
		}
	}
}

// Noise that both values of a pair share must not widen the interval, and the
// interval must contain the true ratio about as often as Confidence says.
func TestIntervalHoldsTheTruth(t *testing.T) {
	const truth, tries = 1.05, 2000
	random := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range tries {
		var values, bases []float64
		for range 6 {
			machine := math.Exp(random.NormFloat64() * 0.3)
			bases = append(bases, machine*math.Exp(random.NormFloat64()*0.01))
			values = append(values, truth*machine*math.Exp(random.NormFloat64()*0.01))
		}
		r := figures.PairedRatio(values, bases)
		if r.High-r.Low > 0.2 {
			t.Fatalf("interval %v to %v: the machine's noise is in it", r.Low, r.High)
		}
		if r.Low <= truth && truth <= r.High {
			held++
		}
	}
	near(t, "part of intervals that hold the truth", float64(held)/tries, figures.Confidence, 0.02)
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   figures.Spread
	}{
		{[]float64{5}, figures.Spread{Median: 5, Min: 5, Max: 5, MAD: 0}},
		{[]float64{1, 9}, figures.Spread{Median: 5, Min: 1, Max: 9, MAD: 4}},
		{[]float64{100, 1, 3, 2, 4}, figures.Spread{Median: 3, Min: 1, Max: 100, MAD: 1}}, // one slow run moves neither median nor MAD
		{[]float64{4, 1, 3, 2}, figures.Spread{Median: 2.5, Min: 1, Max: 4, MAD: 1}},
	} {
		if got := figures.NewSpread(c.values); got != c.want {
			t.Errorf("NewSpread(%v) = %+v, want %+v", c.values, got, c.want)
		}
	}
	if got := figures.NewSpread(nil); !math.IsNaN(got.Median) || !math.IsNaN(got.MAD) {
		t.Errorf("NewSpread(nil) = %+v, want NaN", got)
	}
}
