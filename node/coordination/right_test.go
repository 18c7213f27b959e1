package coordination

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"penstock/core/sfq"
	"penstock/wire/cluster"
)

// A right's way is taken as a whole or not at all, at each of its bounds.
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
		"of an older broker":        {0, nil, Right{}},
		"in the root":               {3, nil, Right{Own: 3}},
		"in a queue":                {2.4, []*cluster.Level{{Queue: "a", Weight: 1e6}}, Right{Own: 2, Queues: []sfq.Level{{Name: "a", Weight: 1e6}}}},
		"the least":                 {1e-9, []*cluster.Level{{Queue: "a", Weight: 0.1}}, Right{Own: 1, Queues: []sfq.Level{{Name: "a", Weight: 1}}}},
		"the deepest":               {1, deep(sfq.MaxLevels), Right{Own: 1, Queues: taken(sfq.MaxLevels)}},
		"too deep":                  {1, deep(sfq.MaxLevels + 1), Right{}},
		"the longest name":          {1, []*cluster.Level{{Queue: long, Weight: 1}}, Right{Own: 1, Queues: []sfq.Level{{Name: long, Weight: 1}}}},
		"too long a name":           {1, []*cluster.Level{{Queue: long + "x", Weight: 1}}, Right{}},
		"no name":                   {1, []*cluster.Level{{Weight: 1}}, Right{}},
		"a level of no weight":      {1, []*cluster.Level{{Queue: "a"}}, Right{}},
		"a level that is no number": {1, []*cluster.Level{{Queue: "a", Weight: math.NaN()}}, Right{}},
		"too much of its own":       {sfq.MaxWeight + 1, nil, Right{}},
	} {
		test.want.Weight, test.want.Limit = 7, 9
		if got := rightOf(&cluster.Right{Weight: 7, Limit: 9, Own: test.own, Queues: test.queues}); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
