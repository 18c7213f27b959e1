package policy

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/reserve"
)

func TestFirstMatchWins(t *testing.T) {
	p := &Policy{Default: 1, Queues: []Queue{{Path: "root.etl", Weight: 3}, {Path: "root.etl.night", Weight: 2}},
		Rules: []Rule{
			{Queue: "root.etl.*", User: "alice", Weight: 8, MaxWeight: 16},
			{Tag: "gold", Weight: 32},
			{Name: "a/b*", Weight: 5, Limit: 7 << 20},
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
		"a name with a slash":  {Facts{Name: "a/b/c"}, Grant{Rule: 2, Weight: 5, Limit: 7 << 20}},
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
	p := &Policy{Default: 1, Queues: []Queue{{Path: "root.etl", Weight: 3}, {Path: "root.adhoc", Weight: 1}, {Path: "root.adhoc.gold", Weight: 4}}}
	etl, adhoc, gold, none := Grant{Weight: 1, Queue: "root.etl"}, Grant{Weight: 1, Queue: "root.adhoc"}, Grant{Weight: 2, Queue: "root.adhoc.gold"}, Grant{Weight: 4}
	for name, test := range map[string]struct {
		atWork []Grant
		want   []float64 // parts of the whole
	}{
		"a queue counts once, however many members it has": {[]Grant{etl, etl, etl, adhoc}, []float64{0.25, 0.25, 0.25, 0.25}},
		"an idle queue takes nothing":                      {[]Grant{adhoc, adhoc}, []float64{0.5, 0.5}},
		"a queue below a queue is one of its children":     {[]Grant{etl, adhoc, gold}, []float64{0.75, 0.05, 0.2}},
		"only its child is at work":                        {[]Grant{etl, gold}, []float64{0.75, 0.25}},
		"without a queue, a member of the root":            {[]Grant{etl, adhoc, none}, []float64{3. / 8, 1. / 8, 4. / 8}},
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

// TestWeightsAddUp draws trees of queues. The weights must add up to those of the root's children
// at work, all weights must be above 0, and weights of applications of one queue must be in
// proportion.
func TestWeightsAddUp(t *testing.T) {
	paths := []string{"a", "a.b", "a.b.c", "a.d", "e", "e.f.g"}
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{Default: 1}
		queues := []string{""}
		for _, path := range paths {
			if rapid.Bool().Draw(t, path) {
				p.Queues = append(p.Queues, Queue{Path: path, Weight: rapid.IntRange(1, MaxWeight).Draw(t, "weight")})
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

// TestGroups checks that a group is one member among its siblings, whatever the number of its
// applications and whichever of its rules they match.
func TestGroups(t *testing.T) {
	p := &Policy{Default: 1, Queues: []Queue{{Path: "root.etl", Weight: 3}, {Path: "root.adhoc", Weight: 1}}, Rules: []Rule{
		{Flow: "clients", Weight: 2, Group: "system"}, {Flow: "balancer", Weight: 2, Group: "system"},
		{User: "intern*", Weight: 4, Group: "interns", GroupQueue: "root.adhoc"},
	}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	clients, balancer := Facts{Flow: "clients"}, Facts{Flow: "balancer"}
	etl, adhoc := Facts{Flow: "e", Queue: "root.etl.x"}, Facts{Flow: "d", Queue: "root.adhoc"}
	intern, other := Facts{Flow: "i", User: "intern1", Queue: "root.etl"}, Facts{Flow: "j", User: "intern2"}
	for name, test := range map[string]struct {
		atWork []Facts
		want   []float64
	}{
		"one application has the whole group":     {[]Facts{clients, etl}, []float64{2. / 5, 3. / 5}},
		"two applications share the group":        {[]Facts{clients, balancer, etl}, []float64{1. / 5, 1. / 5, 3. / 5}},
		"in another queue than the application's": {[]Facts{intern, etl}, []float64{1. / 4, 3. / 4}},
		"beside the queue's own applications":     {[]Facts{intern, other, adhoc, etl}, []float64{0.1, 0.1, 0.05, 0.75}},
		"no application of the group at work":     {[]Facts{etl}, []float64{1}},
		"two groups in different queues":          {[]Facts{clients, intern}, []float64{2. / 3, 1. / 3}},
	} {
		due := 0.0
		for i, o := range p.Outcomes(test.atWork) {
			due += o.Due
			if math.Abs(o.Due-test.want[i]) > 1e-12 {
				t.Errorf("%s: %s is due %v, want %v", name, test.atWork[i].Flow, o.Due, test.want[i])
			}
		}
		if math.Abs(due-1) > 1e-12 {
			t.Errorf("%s: the entitlements add up to %v", name, due)
		}
	}
	if got := p.Outcomes(nil); len(got) != 0 {
		t.Errorf("without applications: %v", got)
	}
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
		"queues[0]": {Default: 1, Queues: []Queue{{Path: strings.Repeat("a.", maxLevels) + "a", Weight: 1}}},
		"queues[1]": {Default: 1, Queues: []Queue{{Path: "a", Weight: 1}, {Path: "a..b", Weight: 1}}},
		"queues[2]": {Default: 1, Queues: []Queue{{Path: "a", Weight: 1}, {Path: "b", Weight: 1}, {Path: GroupLevel("g"), Weight: 1}}},
		"rules[3]":  {Default: 1, Rules: []Rule{{Weight: 1}, {Weight: 2, Group: "g"}, {Weight: 2, Group: "g"}, {Weight: 3, Group: "g"}}},
		"rules[4]":  {Default: 1, Rules: []Rule{{Weight: 1}, {Weight: 1}, {Weight: 1}, {Weight: 1}, {Weight: 1, GroupQueue: "a"}}, Queues: []Queue{{Path: "a", Weight: 1}}},
		"rules[6]":  {Default: 1, Rules: append(slices.Repeat([]Rule{{Weight: 1, Limit: MinLimit}}, 6), Rule{Weight: 1, Limit: MinLimit - 1})},
		"rules[5]":  {Default: 1, Rules: append(slices.Repeat([]Rule{{Weight: 1, Limit: MinLimit, Reserve: reserve.Rate{Bytes: MinLimit}}}, 5), Rule{Weight: 1, Limit: MinLimit, Reserve: reserve.Rate{Bytes: MinLimit + 1}})},
	} {
		var mistake *Error
		if err := p.Validate(); !errors.As(err, &mistake) || mistake.At != at {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestEndlessGlob checks that the worst patterns with the worst names take a bounded time. A value
// ten times as long would take minutes.
func TestEndlessGlob(t *testing.T) {
	p := &Policy{Default: 1}
	for _, pattern := range []string{
		strings.Repeat("*a", MaxPattern/2-1) + "b", "*" + strings.Repeat("[a-z]", 50) + "b", "*" + strings.Repeat("a", MaxPattern-2) + "b",
		strings.Repeat("*"+strings.Repeat("a", 20)+"b", 11), strings.Repeat("*?", MaxPattern/2-1) + "b",
	} {
		for range 20 {
			p.Rules = append(p.Rules, Rule{Name: pattern, Weight: 1}, Rule{Tag: pattern, Weight: 1})
		}
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("a", 1<<20)
	tags := make([]string, 10*MaxTags)
	for i := range tags {
		tags[i] = name
	}
	begin := time.Now()
	if g := p.Grant(Facts{Name: name, Tags: tags}); g.Rule != -1 {
		t.Error("the pattern matched")
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("matching took %v", took)
	} else {
		t.Logf("%d rules took %v", len(p.Rules), took)
	}
}

// TestLongValues checks that patterns are matched with the beginning of a value, and literals with
// the whole value.
func TestLongValues(t *testing.T) {
	long := strings.Repeat("x", MaxValue)
	p := &Policy{Default: 1, Rules: []Rule{{Name: "x*end", Weight: 2}, {Name: long, Weight: 3}, {Name: "x*", Weight: 4}}}
	for name, want := range map[string]int{long[3:] + "end": 2, long + "end": 4, long: 3, long + "x": 4} {
		if g := p.Grant(Facts{Name: name}); g.Weight != want {
			t.Errorf("%d bytes: weight %d, want %d", len(name), g.Weight, want)
		}
	}
	tags := make([]string, MaxTags+1)
	tags[MaxTags] = "gold"
	p = &Policy{Default: 1, Rules: []Rule{{Tag: "gold", Weight: 2}}}
	if g := p.Grant(Facts{Tags: tags}); g.Weight != 1 {
		t.Error("a tag beyond the bound counts")
	}
	if g := p.Grant(Facts{Tags: tags[1:]}); g.Weight != 2 {
		t.Error("the last tag within the bound does not count")
	}
}

func TestSetWeights(t *testing.T) {
	p := &Policy{Default: 1, Queues: []Queue{{Path: "root.etl", Weight: 3}}, Set: map[string]int{"a": 7},
		Rules: []Rule{{Flow: "[ab]", Weight: 2, Group: "g", Limit: 5 << 20, Reserve: reserve.Rate{Bytes: 4 << 20}}, {Flow: "c", Weight: 2, MaxWeight: 9}}}
	for flow, want := range map[string]Grant{
		"a": {Weight: 7, Queue: "root.etl", Limit: 5 << 20, Reserve: reserve.Rate{Bytes: 4 << 20}, Set: true},
		"b": {Weight: 1, Group: "g", GroupWeight: 2, Limit: 5 << 20, Reserve: reserve.Rate{Bytes: 4 << 20}},
		"c": {Rule: 1, Weight: 8, Queue: "root.etl", Tagged: true},
	} {
		if got := p.Grant(Facts{Flow: flow, Queue: "root.etl", Tags: []string{"io.weight=8"}}); got != want {
			t.Errorf("%s: %+v, want %+v", flow, got, want)
		}
	}
	p.Set["c"] = 3
	if got := p.Grant(Facts{Flow: "c", Tags: []string{"io.weight=8"}}); got != (Grant{Rule: 1, Weight: 3, Set: true}) {
		t.Errorf("a set weight and a tag: %+v", got)
	}
}
