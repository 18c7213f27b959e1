package sfq

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// value returns a tag in units of 2^-32.
func (a tag) value() *big.Int {
	v := new(big.Int).Lsh(big.NewInt(a.hi), 64)
	return v.Add(v, new(big.Int).SetUint64(a.lo))
}

func TestTagArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (tag, *big.Int) {
			cost := rapid.Int64Range(-servedLimit-MaxCost, servedLimit+MaxCost).Draw(t, "cost")
			weight := rapid.Int32Range(1, MaxWeight).Draw(t, "weight")
			want := new(big.Int).Lsh(big.NewInt(cost), 32)
			// Div rounds down for positive divisors.
			return perWeight(cost, weight), want.Div(want, big.NewInt(int64(weight)))
		}
		a, wantA := draw()
		b, wantB := draw()
		if a.value().Cmp(wantA) != 0 {
			t.Fatalf("span = %v, want %v", a.value(), wantA)
		}
		if got, want := a.add(b).value(), new(big.Int).Add(wantA, wantB); got.Cmp(want) != 0 {
			t.Fatalf("sum = %v, want %v", got, want)
		}
		if a.less(b) != (wantA.Cmp(wantB) < 0) {
			t.Fatalf("%v less than %v: %v", wantA, wantB, a.less(b))
		}
		if got := maxTag(a, b); got.less(a) || got.less(b) || got != a && got != b {
			t.Fatalf("maxTag(%v, %v) = %v", wantA, wantB, got.value())
		}
	})
}

func TestTagString(t *testing.T) {
	for _, test := range []struct {
		cost   int64
		weight int32
		want   string
	}{
		{0, 1, "0"}, {7, 1, "7"}, {1, 2, "0.5"}, {1, 3, "0.333"}, {2, 3, "0.667"}, {1, 1000, "0.001"}, {9999, 10000, "1"}, {MaxCost, 1, "1099511627776"},
	} {
		if got := perWeight(test.cost, test.weight).String(); got != test.want {
			t.Errorf("%d/%d prints as %s, want %s", test.cost, test.weight, got, test.want)
		}
	}
}

func TestRatio(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(0, 1<<60).Draw(t, "a")
		b := rapid.Int64Range(1, 1<<62).Draw(t, "b")
		want := new(big.Int).Lsh(big.NewInt(a), 32)
		if got := divide(a, b).value(); got.Cmp(want.Div(want, big.NewInt(b))) != 0 {
			t.Fatalf("%d/%d = %v, want %v", a, b, got, want)
		}
	})
}

// TestScale checks results far beyond 64 bits. They must be exact if possible, and otherwise
// rounded down.
func TestScale(t *testing.T) {
	for _, test := range []struct {
		a        tag
		num, den int32
		want     tag
	}{
		{tag{0, 12 << 32}, 1, 4, tag{0, 3 << 32}},
		{tag{0, 1}, 1, 2, tag{}},
		{tag{}.sub(tag{0, 1}), 1, 2, tag{}.sub(tag{0, 1})},
		{tag{}.sub(tag{0, 12 << 32}), 3, 4, tag{}.sub(tag{0, 9 << 32})},
		{tag{1 << 42, 0}, MaxWeight, 1, tag{1 << 42 * MaxWeight, 0}},
		{tag{1 << 42 * MaxWeight, 0}, 1, MaxWeight, tag{1 << 42, 0}},
		{tag{5, 1 << 63}, MaxWeight, MaxWeight, tag{5, 1 << 63}},
	} {
		if got := test.a.scale(test.num, test.den); got != test.want {
			t.Errorf("%v * %d/%d = %v, want %v", test.a, test.num, test.den, got, test.want)
		}
	}
}
