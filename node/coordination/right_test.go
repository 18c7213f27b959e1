package coordination

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"penstock/core/limit"
	"penstock/core/reserve"
	"penstock/core/sfq"
	"penstock/wire/cluster"
)

// The path of a right is accepted as a whole or not at all, at each of its bounds.
func TestRightOf(t *testing.T) {
	deep := func(n int) (all []*cluster.Level) {
		for range n {
			all = append(all, &cluster.Level{Queue: "q", Weight: 1})
		}
		return all
	}
	taken := func(n int) (all []sfq.Level) {
		for range n {
			all = append(all, sfq.Level{Name: "q", Weight: 1})
		}
		return all
	}
	long := strings.Repeat("x", sfq.MaxQueueName)
	for name, test := range map[string]struct {
		own    float64
		queues []*cluster.Level
		want   Right
	}{
		"of an older broker":        {0, nil, Right{Weight: 7.5}},
		"in the root":               {3, nil, Right{Weight: 3}},
		"in a queue":                {2.4, []*cluster.Level{{Queue: "a", Weight: 1e6}}, Right{Weight: 2, Queues: []sfq.Level{{Name: "a", Weight: 1e6}}}},
		"the least":                 {1e-9, []*cluster.Level{{Queue: "a", Weight: 0.1}}, Right{Weight: 1, Queues: []sfq.Level{{Name: "a", Weight: 1}}}},
		"the deepest":               {1, deep(sfq.MaxLevels), Right{Weight: 1, Queues: taken(sfq.MaxLevels)}},
		"too deep":                  {1, deep(sfq.MaxLevels + 1), Right{Weight: 7.5}},
		"the longest name":          {1, []*cluster.Level{{Queue: long, Weight: 1}}, Right{Weight: 1, Queues: []sfq.Level{{Name: long, Weight: 1}}}},
		"too long a name":           {1, []*cluster.Level{{Queue: long + "x", Weight: 1}}, Right{Weight: 7.5}},
		"no name":                   {1, []*cluster.Level{{Weight: 1}}, Right{Weight: 7.5}},
		"a level of no weight":      {1, []*cluster.Level{{Queue: "a"}}, Right{Weight: 7.5}},
		"a level that is no number": {1, []*cluster.Level{{Queue: "a", Weight: math.NaN()}}, Right{Weight: 7.5}},
		"too much of its own":       {sfq.MaxWeight + 1, nil, Right{Weight: 7.5}},
	} {
		test.want.Limit = 9
		r := &cluster.Right{Weight: 7.5, Limit: 9, Own: test.own, Queues: test.queues}
		if got, ok := rightOf(r); !ok || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, test.want)
		}
		r.Weight = 0 // a broker sends this weight only to nodes that need it
		if got, ok := rightOf(r); ok == (test.want.Weight == 7.5) || ok && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s, without a weight among all: %+v, %v", name, got, ok)
		}
	}
	for name, bad := range map[string]*cluster.Right{
		"no weight": {Limit: 1}, "no number": {Weight: math.NaN()}, "endless": {Weight: math.Inf(1)},
		"too much of a limit": {Weight: 1, Own: 1, Limit: math.MaxInt64 + 1},
	} {
		if got, ok := rightOf(bad); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A promise that is not valid is none. It does not take the rest of the right with it.
func TestRightWithAPromise(t *testing.T) {
	for _, test := range []struct {
		bytes  uint64
		part   float64
		strict bool
		want   reserve.Rate
	}{
		{bytes: 1 << 20, want: reserve.Rate{Bytes: 1 << 20}},
		{part: 0.4, strict: true, want: reserve.Rate{Part: 0.4, Strict: true}},
		{bytes: limit.MaxRate, want: reserve.Rate{Bytes: limit.MaxRate}},
		{bytes: limit.MaxRate + 1}, {bytes: math.MaxUint64}, {part: math.NaN()}, {part: math.Inf(1)}, {part: -1}, {part: 1}, {bytes: 1 << 20, part: 0.4}, {strict: true},
	} {
		got, ok := rightOf(&cluster.Right{Own: 3, Reserve: test.bytes, ReservePart: test.part, ReserveStrict: test.strict})
		if !ok || got.Weight != 3 || got.Reserve != test.want {
			t.Errorf("%+v: %+v, %v", test, got, ok)
		}
	}
}
