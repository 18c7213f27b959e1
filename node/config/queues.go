package config

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"penstock/core/policy"
	"penstock/core/sfq"
	"penstock/node/device"
)

// Queue is a queue's weight among its siblings, in the weights file as in a policy.
type Queue struct {
	Queue  QueuePath `yaml:"queue"`
	Weight int       `yaml:"weight"`
}

// QueuePath is a queue's path, such as root.etl, and the line that it stands on.
type QueuePath struct {
	path string
	line int
}

// UnmarshalYAML takes the value from its text.
func (q *QueuePath) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a queue is a path such as root.etl", node.Line)
	}
	*q = QueuePath{node.Value, node.Line}
	return nil
}

// place makes the places of the rules' queues: by the policy's rules, so that a node means by
// a file what the broker does.
func (w *Weights) place() error {
	p := policy.Policy{Default: 1}
	for _, q := range w.Queues {
		p.Queues = append(p.Queues, policy.Queue{Path: q.Queue.path, Weight: q.Weight})
	}
	err := p.Validate()
	var mistake *policy.Error
	if errors.As(err, &mistake) {
		for i, q := range w.Queues {
			if mistake.At == fmt.Sprintf("queues[%d]", i) && q.Queue.line > 0 {
				return fmt.Errorf("line %d: %w", q.Queue.line, err)
			}
		}
	}
	if err != nil {
		return err
	}
	var errs []error
	w.places = map[string]*device.Queue{}
	made := map[string]*device.Queue{} // one for all that are in it
	for _, r := range w.Rules {
		q := r.Queue
		if q == (QueuePath{}) || w.places[q.path] != nil {
			continue
		}
		if len(q.path) > policy.MaxPattern {
			errs = append(errs, fmt.Errorf("line %d: a queue's path has at most %d bytes", q.line, policy.MaxPattern))
			continue
		}
		g := p.Grant(policy.Facts{Queue: q.path})
		if g.Queue == "" {
			errs = append(errs, fmt.Errorf("line %d: queue %q: give it, or one above it, a weight under queues", q.line, q.path))
			continue
		}
		if made[g.Queue] == nil {
			var levels []sfq.Level
			for _, l := range p.Levels(g) {
				levels = append(levels, sfq.Level{Name: l.Queue, Weight: l.Weight})
			}
			made[g.Queue] = device.NewQueue(levels)
		}
		w.places[q.path] = made[g.Queue]
	}
	return errors.Join(errs...)
}
