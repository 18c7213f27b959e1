package policy_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"penstock/core/policy"
	"penstock/core/shortest"
)

func ordered(path string) policy.Queue {
	return policy.Queue{Path: path, Weight: 1, Order: policy.Shortest, Slices: shortest.Default()}
}

func TestOrderOfAQueue(t *testing.T) {
	p := &policy.Policy{Default: 1, Queues: []policy.Queue{ordered("root.batch"), {Path: "root", Weight: 1}}, Rules: []policy.Rule{{Flow: "g", Weight: 1, Group: "g"}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	g := p.Grant(policy.Facts{Queue: "root.batch.x", Tags: []string{"io.size=40g", "io.size=1g", "io.size=much"}})
	if s, is := p.OrderOf(g); !is || s.Percent[0] != 90 || g.Size != 40<<30 {
		t.Errorf("%+v, %v, size %d", s, is, g.Size)
	}
	for _, f := range []policy.Facts{{Queue: "root.other", Tags: []string{"io.size=40g"}}, {Flow: "g", Queue: "root.batch"}, {}} {
		g := p.Grant(f)
		if _, is := p.OrderOf(g); is || g.Size != 0 {
			t.Errorf("%+v is ordered, size %d", f, g.Size)
		}
	}
	if !p.Ordered("root.batch") || p.Ordered("root") {
		t.Error("root.batch is the only ordered queue")
	}
}

func TestStatedSizes(t *testing.T) {
	p := &policy.Policy{Default: 1, Queues: []policy.Queue{ordered("q")}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int64{"1": 1, "40g": 40 << 30, "40G": 40 << 30, "40gib": 40 << 30, "512MiB": 512 << 20, "1.5t": 3 << 39, "2kb": 2 << 10, "1p": 1 << 50, "1024p": 1 << 60,
		"1025p": 0, "": 0, "g": 0, "-1g": 0, "1e9": 0, "nan": 0, "inf": 0, "0": 0, "1x": 0, "1.1.1": 0, strings.Repeat("1", 30): 0} {
		if got := p.Grant(policy.Facts{Queue: "q", Tags: []string{policy.SizeTag + text}}).Size; got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestMistakesInOrders(t *testing.T) {
	change := func(f func(*policy.Queue)) policy.Queue {
		q := ordered("a")
		f(&q)
		return q
	}
	for name, test := range map[string]struct {
		queues []policy.Queue
		rules  []policy.Rule
		want   string
	}{
		"an unknown order":   {queues: []policy.Queue{change(func(q *policy.Queue) { q.Order = "fair" })}, want: `order "fair" of queue "a": use shortest`},
		"a misspelt order":   {queues: []policy.Queue{change(func(q *policy.Queue) { q.Order = "shortst" })}, want: "did you mean shortest?"},
		"slices only":        {queues: []policy.Queue{change(func(q *policy.Queue) { q.Order = "" })}, want: `add "order: shortest" to queue "a"`},
		"slices over 100":    {queues: []policy.Queue{change(func(q *policy.Queue) { q.Slices.Percent = []int{70, 31} })}, want: "add up to 101 %: use at most 100 %"},
		"ascending slices":   {queues: []policy.Queue{change(func(q *policy.Queue) { q.Slices.Percent = []int{20, 70} })}, want: "give the largest first"},
		"no floor":           {queues: []policy.Queue{change(func(q *policy.Queue) { q.Slices.Floor = 0 })}, want: "floor 0 %: use 1 to 25"},
		"a large floor":      {queues: []policy.Queue{change(func(q *policy.Queue) { q.Slices.Floor = 26 })}, want: "floor 26 %: use 1 to 25"},
		"a queue below it":   {queues: []policy.Queue{ordered("a"), {Path: "a.b", Weight: 1}}, want: `queue "a.b" is below it`},
		"a group in it":      {queues: []policy.Queue{ordered("a")}, rules: []policy.Rule{{Weight: 1, Group: "g", GroupQueue: "a"}}, want: `rules[0] puts the group "g" into it`},
		"a queue beside it":  {queues: []policy.Queue{ordered("a"), {Path: "ab", Weight: 1}}},
		"a queue above it":   {queues: []policy.Queue{ordered("a.b"), {Path: "a", Weight: 1}}},
		"two ordered queues": {queues: []policy.Queue{ordered("a"), ordered("b")}},
	} {
		err := (&policy.Policy{Default: 1, Queues: test.queues, Rules: test.rules}).Validate()
		var one *policy.Error
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case err != nil && (!errors.As(err, &one) || one.At != "queues[0]"):
			t.Errorf("%s: at %+v", name, one)
		}
	}
}

// TestOutcomesOfAnOrderedQueue: what an application gets is between the slice of the last and that of the first rank.
func TestOutcomesOfAnOrderedQueue(t *testing.T) {
	p := &policy.Policy{Default: 1, Queues: []policy.Queue{{Path: "q", Weight: 3, Order: policy.Shortest, Slices: shortest.Slices{Percent: []int{70, 20, 10}, Floor: 5}}},
		Rules: []policy.Rule{{Flow: "heavy", Weight: 8}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	all := p.Outcomes([]policy.Facts{{Flow: "a", Queue: "q"}, {Flow: "heavy", Queue: "q"}, {Flow: "c", Queue: "q"}, {Flow: "beside"}})
	sum := 0.0
	for i, o := range all[:3] {
		if math.Abs(o.Due-0.25) > 1e-9 || math.Abs(o.Most-0.75*0.7) > 1e-9 || math.Abs(o.Least-0.75*0.1) > 1e-9 {
			t.Errorf("%d: %+v", i, o)
		}
		sum += o.Due
	}
	if o := all[3]; math.Abs(o.Due-0.25) > 1e-9 || o.Least != o.Due || o.Most != o.Due || math.Abs(sum+o.Due-1) > 1e-9 {
		t.Errorf("beside the queue: %+v, sum %v", o, sum)
	}
	if o := p.Outcomes([]policy.Facts{{Flow: "a", Queue: "q"}})[0]; o.Due != 1 || math.Abs(o.Least-1) > 1e-9 || math.Abs(o.Most-1) > 1e-9 {
		t.Errorf("alone: %+v", o)
	}
}
