package sfq

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// value is a tag as an integer of 2^-32.
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
			return span(cost, weight), want.Div(want, big.NewInt(int64(weight)))
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
		if got := span(test.cost, test.weight).String(); got != test.want {
			t.Errorf("%d/%d prints as %s, want %s", test.cost, test.weight, got, test.want)
		}
	}
}

// A handle names its slot's use. The count wraps to 1, as no handle is zero.
func TestHandleOfAWornSlot(t *testing.T) {
	s := &fifo{table: newTable[struct{}, struct{}](Config{Depth: 1, MaxFlows: 1, MaxQueued: 1}), ready: heap{places: &places{}}}
	f, err := s.AddFlow(1)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Submit(f, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(old); err != nil {
		t.Fatal(err)
	}
	s.requests[0].uses = 1<<32 - 1
	h, err := s.Submit(f, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := Handle(1 << 32); h != want {
		t.Errorf("handle %x after the wrap, want %x", h, want)
	}
}
