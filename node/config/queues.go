package config

import (
	"fmt"

	"penstock/core/policy"
	"penstock/core/sfq"
	"penstock/node/device"
)

// Queue sets a queue's weight among its siblings. It means the same as in the broker's policy.
type Queue struct {
	Queue  string `yaml:"queue"` // its path, such as root.etl
	Weight int    `yaml:"weight"`
}

// place finds the place of each rule's queue in the tree of queues. It uses package policy, so that
// a queue's name means the same in a weights file and in the broker's policy.
func (w *Weights) place() {
	p := policy.Policy{Default: 1}
	for _, q := range w.Queues {
		p.Queues = append(p.Queues, policy.Queue{Path: q.Queue, Weight: q.Weight})
	}
	if err := p.Validate(); err != nil {
		w.doc.Add("", err)
		return
	}
	w.places = map[string]*device.Queue{}
	made := map[string]*device.Queue{} // one value for all rules of the same queue
	for i, r := range w.Rules {
		q := r.Queue
		if q == "" || w.places[q] != nil {
			continue
		}
		fail := func(format string, args ...any) {
			w.doc.Add(fmt.Sprintf("rule %d: ", i+1), fmt.Errorf(format, args...), "rules", i, "queue")
		}
		if len(q) > policy.MaxPattern {
			fail("a queue's path has at most %d bytes", policy.MaxPattern)
			continue
		}
		g := p.Grant(policy.Facts{Queue: q})
		if g.Queue == "" {
			fail("queue %q: give it, or a queue above it, a weight under queues", q)
			continue
		}
		if made[g.Queue] == nil {
			var levels []sfq.Level
			for _, l := range p.Levels(g) {
				levels = append(levels, sfq.Level{Name: l.Queue, Weight: l.Weight})
			}
			made[g.Queue] = device.NewQueue(levels)
		}
		w.places[q] = made[g.Queue]
	}
}
