package policy

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFirstMatchWins(t *testing.T) {
	p := &Policy{Default: 1, Queues: []Queue{{"root.etl", 3}, {"root.etl.night", 2}},
		Rules: []Rule{
			{Queue: "root.etl.*", User: "alice", Weight: 8, MaxWeight: 16},
			{Tag: "gold", Weight: 32},
			{Name: "a/b*", Weight: 5, Limit: 7},
			{Flow: "replication", Weight: 2},
			{Type: "SPARK", Queue: "root.*", Weight: 4},
		}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		facts Facts
		want  Grant
	}{
		"queue and user":       {Facts{Queue: "root.etl.night.x", User: "alice"}, Grant{Rule: 0, Weight: 8, Queue: "root.etl.night"}},
		"only the queue":       {Facts{Queue: "root.etl.a", User: "bob"}, Grant{Rule: -1, Weight: 1, Queue: "root.etl"}},
		"asks for less":        {Facts{Queue: "root.etl.a", User: "alice", Tags: []string{"x", "io.weight=4"}}, Grant{Weight: 4, Queue: "root.etl", Tagged: true}},
		"asks for too much":    {Facts{Queue: "root.etl.a", User: "alice", Tags: []string{"io.weight=999"}}, Grant{Weight: 16, Queue: "root.etl", Tagged: true}},
		"asks twice":           {Facts{Queue: "root.etl.a", User: "alice", Tags: []string{"io.weight=9", "io.weight=6"}}, Grant{Weight: 6, Queue: "root.etl", Tagged: true}},
		"asks for nothing":     {Facts{Queue: "root.etl.a", User: "alice", Tags: []string{"io.weight=0", "io.weight=x"}}, Grant{Weight: 8, Queue: "root.etl"}},
		"may not ask":          {Facts{Tags: []string{"gold", "io.weight=2"}}, Grant{Rule: 1, Weight: 32}},
		"a name with a slash":  {Facts{Name: "a/b/c"}, Grant{Rule: 2, Weight: 5, Limit: 7}},
		"a system flow":        {Facts{Flow: "replication"}, Grant{Rule: 3, Weight: 2}},
		"not known, not Spark": {Facts{Queue: "root.x"}, Grant{Rule: -1, Weight: 1}},
		"Spark":                {Facts{Queue: "root.x", Type: "SPARK"}, Grant{Rule: 4, Weight: 4}},
		"a queue of like name": {Facts{Queue: "root.etlx"}, Grant{Rule: -1, Weight: 1}},
	} {
		if got := p.Grant(test.facts); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestWeightsOfQueues(t *testing.T) {
	p := &Policy{Default: 1, Queues: []Queue{{"root.etl", 3}, {"root.adhoc", 1}, {"root.adhoc.gold", 4}}}
	etl, adhoc, gold, none := Grant{Weight: 1, Queue: "root.etl"}, Grant{Weight: 1, Queue: "root.adhoc"}, Grant{Weight: 2, Queue: "root.adhoc.gold"}, Grant{Weight: 4}
	for name, test := range map[string]struct {
		atWork []Grant
		want   []float64 // parts of all
	}{
		"a queue is one, however many are in it":       {[]Grant{etl, etl, etl, adhoc}, []float64{0.25, 0.25, 0.25, 0.25}},
		"an idle queue takes nothing":                  {[]Grant{adhoc, adhoc}, []float64{0.5, 0.5}},
		"a queue below a queue is one of its children": {[]Grant{etl, adhoc, gold}, []float64{0.75, 0.05, 0.2}},
		"only its child is at work":                    {[]Grant{etl, gold}, []float64{0.75, 0.25}},
		"without a queue: beside the queues":           {[]Grant{etl, adhoc, none}, []float64{3. / 8, 1. / 8, 4. / 8}},
	} {
		got := p.Weights(test.atWork)
		sum := 0.0
		for _, w := range got {
			sum += w
		}
		for i := range got {
			if math.Abs(got[i]/sum-test.want[i]) > 1e-12 {
				t.Errorf("%s: %v of %v, want parts of %v", name, got, sum, test.want)
				break
			}
		}
	}
}

// TestWeightsAddUp: whatever the tree, the weights come to those of the root's children at
// work, all are above 0, and applications of one queue have theirs in proportion.
func TestWeightsAddUp(t *testing.T) {
	paths := []string{"a", "a.b", "a.b.c", "a.d", "e", "e.f.g"}
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{Default: 1}
		queues := []string{""}
		for _, path := range paths {
			if rapid.Bool().Draw(t, path) {
				p.Queues = append(p.Queues, Queue{path, rapid.IntRange(1, MaxWeight).Draw(t, "weight")})
				queues = append(queues, path)
			}
		}
		top := map[string]float64{} // the topmost listed queue of a path, and its weight
		var grants []Grant
		sum := 0.0
		for range rapid.IntRange(1, 8).Draw(t, "at work") {
			g := Grant{Weight: rapid.IntRange(1, MaxWeight).Draw(t, "weight"), Queue: rapid.SampledFrom(queues).Draw(t, "queue")}
			grants = append(grants, g)
			topmost, weight := "", 0.0
			for _, q := range p.Queues {
				if (g.Queue == q.Path || strings.HasPrefix(g.Queue, q.Path+".")) && (topmost == "" || len(q.Path) < len(topmost)) {
					topmost, weight = q.Path, float64(q.Weight)
				}
			}
			if topmost == "" {
				sum += float64(g.Weight)
			} else {
				top[topmost] = weight
			}
		}
		for _, path := range paths {
			sum += top[path]
		}
		got := 0.0
		weights := p.Weights(grants)
		for i, w := range weights {
			if !(w > 0) {
				t.Fatalf("%v of %v", weights, grants)
			}
			got += w
			for j, g := range grants {
				if g.Queue == grants[i].Queue && math.Abs(w*float64(g.Weight)/(weights[j]*float64(grants[i].Weight))-1) > 1e-9 {
					t.Fatalf("%v of %v: not in proportion", weights, grants)
				}
			}
		}
		if math.Abs(got/sum-1) > 1e-9 {
			t.Fatalf("%v of %v: %v, want %v", weights, grants, got, sum)
		}
	})
}

func TestMistakes(t *testing.T) {
	long := strings.Repeat("a", MaxPattern+1)
	for at, p := range map[string]*Policy{
		"default":   {},
		"rules[0]":  {Default: 1, Rules: []Rule{{User: long, Weight: 1}}},
		"rules[1]":  {Default: 1, Rules: []Rule{{Weight: 1}, {User: "[", Weight: 1}}},
		"rules[2]":  {Default: 1, Rules: []Rule{{Weight: 1}, {Weight: 1}, {Weight: MaxWeight + 1}}},
		"rules":     {Default: 1, Rules: make([]Rule, MaxRules+1)},
		"queues":    {Default: 1, Queues: make([]Queue, MaxQueues+1)},
		"queues[0]": {Default: 1, Queues: []Queue{{strings.Repeat("a.", maxLevels) + "a", 1}}},
		"queues[1]": {Default: 1, Queues: []Queue{{"a", 1}, {"a..b", 1}}},
	} {
		var mistake *Error
		if err := p.Validate(); !errors.As(err, &mistake) || mistake.At != at {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestEndlessGlob: the worst pattern against the worst name ends soon.
func TestEndlessGlob(t *testing.T) {
	p := &Policy{Default: 1, Rules: []Rule{{Name: strings.Repeat("*a", MaxPattern/2-1) + "b", Weight: 1}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if g := p.Grant(Facts{Name: strings.Repeat("a", 64<<10)}); g.Rule != -1 {
		t.Error("it matched")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
