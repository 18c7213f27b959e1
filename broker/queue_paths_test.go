package broker

import (
	"slices"
	"testing"

	"penstock/core/policy"
	"penstock/core/sfq"
)

// TestRightsHaveTheWay: a node receives its applications' queues with their weights, and again when
// the policy changes them.
func TestRightsHaveTheWay(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "queues: [{queue: root, weight: 2}]\nrules: [{flow: a, weight: 3, group: g, group_queue: root}, {flow: b, weight: 5}]")
	n := node(t, "one", []string{b.address}, "a", "b")
	eventually(t, "the first policy", func() bool {
		a, other := n.right("a"), n.right("b")
		return a.Weight == 1 && slices.Equal(a.Queues, []sfq.Level{{Name: "root", Weight: 2}, {Name: "group:g", Weight: 3}}) &&
			other.Weight == 5 && len(other.Queues) == 0
	})
	// Neither a's weight among all applications nor its limit has changed.
	applyText(t, b.Broker, "queues: [{queue: root, weight: 2}]\nrules: [{flow: a, weight: 4, group: g, group_queue: root}, {flow: b, weight: 5}]")
	eventually(t, "another weight of the group", func() bool {
		a := n.right("a")
		return a.Weight == 1 && slices.Equal(a.Queues, []sfq.Level{{Name: "root", Weight: 2}, {Name: "group:g", Weight: 4}})
	})
}

// TestSameRight: if a new policy gives an application the same grant, the right is not sent again.
func TestSameRight(t *testing.T) {
	p := func(weight int) *policy.Policy {
		return &policy.Policy{Default: 1, Queues: []policy.Queue{{Path: "q", Weight: weight}}}
	}
	g := policy.Grant{Weight: 1, Queue: "q"}
	var w queuePaths
	first := right{weight: 1, ownWeight: 1, path: w.pathOf(p(3), g)}
	if again := (right{weight: 1, ownWeight: 1, path: w.pathOf(p(3), g)}); !first.same(again) || first.path == again.path {
		t.Error("the same path of another policy is sent again")
	}
	for name, other := range map[string]right{
		"another weight of the queue": {weight: 1, ownWeight: 1, path: w.pathOf(p(4), g)},
		"no queue":                    {weight: 1, ownWeight: 1, path: w.pathOf(p(3), policy.Grant{Weight: 1})},
		"another weight of its own":   {weight: 1, ownWeight: 2, path: first.path},
	} {
		if first.same(other) || other.same(first) {
			t.Errorf("%s is not sent", name)
		}
	}
}
