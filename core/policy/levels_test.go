package policy_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/policy"
)

func TestLevels(t *testing.T) {
	p := &policy.Policy{Default: 1,
		Queues: []policy.Queue{{Path: "root.etl", Weight: 3}, {Path: "root.etl.a.nightly", Weight: 2}, {Path: "root", Weight: 5}},
		Rules:  []policy.Rule{{Flow: "clients", Weight: 4, Group: "hdfs", GroupQueue: "root.etl"}, {Flow: "alone", Weight: 6, Group: "one"}},
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		facts policy.Facts
		want  []policy.Level
	}{
		"no queue":                  {policy.Facts{}, nil},
		"a queue without weight":    {policy.Facts{Queue: "other.x"}, nil},
		"the root":                  {policy.Facts{Queue: "root"}, []policy.Level{{"root", 5}}},
		"below a queue with weight": {policy.Facts{Queue: "root.etl.a"}, []policy.Level{{"root", 5}, {"root.etl", 3}}},
		"three levels":              {policy.Facts{Queue: "root.etl.a.nightly.x"}, []policy.Level{{"root", 5}, {"root.etl", 3}, {"root.etl.a.nightly", 2}}},
		"a group in a queue":        {policy.Facts{Flow: "clients", Queue: "elsewhere"}, []policy.Level{{"root", 5}, {"root.etl", 3}, {"group:hdfs", 4}}},
		"a group beside the root":   {policy.Facts{Flow: "alone", Queue: "root"}, []policy.Level{{"group:one", 6}}},
	} {
		if got := p.Levels(p.Grant(test.facts)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	deepest := strings.TrimSuffix(strings.Repeat("q.", 16), ".")
	p = &policy.Policy{Default: 1, Rules: []policy.Rule{{Flow: "x", Weight: 1, Group: "g", GroupQueue: deepest}}}
	for i := range 16 {
		p.Queues = append(p.Queues, policy.Queue{Path: deepest[:2*i+1], Weight: 1})
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := len(p.Levels(p.Grant(policy.Facts{Flow: "x"}))); got != policy.MaxWay {
		t.Errorf("%d levels, want %d", got, policy.MaxWay)
	}
}

// TestLevelsMakeTheWeights checks that Levels and Weights agree: a weight is the product, from the
// root down, of each member's part among the members at work.
func TestLevelsMakeTheWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &policy.Policy{Default: 1}
		weight := rapid.IntRange(1, 9)
		for _, path := range []string{"r", "r.a", "r.b", "r.b.c", "s"} {
			if rapid.Bool().Draw(t, "listed") {
				p.Queues = append(p.Queues, policy.Queue{Path: path, Weight: weight.Draw(t, "weight")})
			}
		}
		p.Rules = []policy.Rule{{Flow: "in a group", Weight: weight.Draw(t, "weight"), Group: "g"}, {Flow: "*", Weight: weight.Draw(t, "weight")}}
		var grants []policy.Grant
		for range rapid.IntRange(1, 8).Draw(t, "applications") {
			grants = append(grants, p.Grant(policy.Facts{Flow: rapid.SampledFrom([]string{"x", "in a group"}).Draw(t, "flow"),
				Queue: rapid.SampledFrom([]string{"", "r", "r.a.x", "r.b", "r.b.c", "s"}).Draw(t, "queue")}))
		}
		inside := map[string]map[string]int{} // path -> its members, with their weights
		note := func(at, what string, weight int) {
			if inside[at] == nil {
				inside[at] = map[string]int{}
			}
			inside[at][what] = weight
		}
		for i, g := range grants {
			at := ""
			for _, l := range p.Levels(g) {
				note(at, l.Queue, l.Weight)
				at += "/" + l.Queue
			}
			note(at, fmt.Sprint(i), g.Weight)
		}
		for i, got := range p.Weights(grants) {
			want, at := 1.0, ""
			sum := func() (all float64) {
				for _, w := range inside[at] {
					all += float64(w)
				}
				return all
			}
			for k, l := range p.Levels(grants[i]) {
				if want *= float64(l.Weight); k > 0 {
					want /= sum()
				}
				at += "/" + l.Queue
			}
			if want *= float64(grants[i].Weight); at != "" {
				want /= sum()
			}
			if math.Abs(got/want-1) > 1e-9 {
				t.Fatalf("application %d has the weight %v, its levels result in %v: %+v", i, got, want, grants[i])
			}
		}
	})
}

// TestQueuesByPath checks that a validated policy finds the same queues as one that is not
// validated.
func TestQueuesByPath(t *testing.T) {
	p := policy.Policy{Default: 1, Queues: []policy.Queue{{Path: "root.a.b", Weight: 3}, {Path: "root", Weight: 2}, {Path: "root.ab", Weight: 5}}}
	q := p
	if err := q.Validate(); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string][]policy.Level{"root.a.b.c": {{"root", 2}, {"root.a.b", 3}}, "root.a": {{"root", 2}},
		"root.abc": {{"root", 2}}, "root.ab": {{"root", 2}, {"root.ab", 5}}, "other": nil, "": nil} {
		for _, x := range []*policy.Policy{&p, &q} {
			if got := x.Levels(x.Grant(policy.Facts{Queue: queue})); !slices.Equal(got, want) {
				t.Errorf("%q: %v, want %v", queue, got, want)
			}
		}
	}
}
