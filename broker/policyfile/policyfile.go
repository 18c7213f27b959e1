// Package policyfile reads a policy from YAML. It reports all mistakes of a file at once, with
// line and column, and suggests a field where one is misspelt.
package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"penstock/core/policy"
	"penstock/settings"
)

// MaxBytes is the size of the largest policy file.
const MaxBytes = 1 << 20

// Load reads and checks a file.
func Load(path string) (*policy.Policy, error) {
	text, err := settings.Read(path, MaxBytes)
	if err != nil {
		return nil, err
	}
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Parse reads and checks a policy. A rule without a weight has the default weight, which is 1
// unless the file gives another one. Mistakes are returned together, as Mistakes.
func Parse(text []byte) (*policy.Policy, error) {
	f, err := read(text)
	if err != nil {
		return nil, err
	}
	if len(f.mistakes) > 0 {
		return nil, f.mistakes.sorted()
	}
	if err := f.policy.Validate(); err != nil {
		for _, one := range joined(err) {
			f.mistakes = append(f.mistakes, f.locate(one))
		}
		return nil, f.mistakes.sorted()
	}
	return f.policy, nil
}

// Warnings returns a line for each rule of a valid policy that can never decide anything, with
// the place of the rule.
func Warnings(text []byte) []string {
	f, err := read(text)
	if err != nil || len(f.mistakes) > 0 {
		return nil
	}
	var all []string
	for _, w := range f.policy.Warnings() {
		all = append(all, f.locate(w).String())
	}
	return all
}

// RuleLines returns the line on which each rule of a policy begins.
func RuleLines(text []byte) []int {
	f, err := read(text)
	if err != nil {
		return nil
	}
	var lines []int
	for _, n := range f.rules {
		lines = append(lines, n.Line)
	}
	return lines
}

// file is a policy file that has been read.
type file struct {
	policy   *policy.Policy
	mistakes Mistakes
	root     *yaml.Node
	queues   []*yaml.Node
	rules    []*yaml.Node
}

// read reads the fields of a file. An error says that there are none to read.
func read(text []byte) (*file, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a policy has at most %d bytes", MaxBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("the file is empty: write \"default: 1\" if all weights are 1")
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f := &file{policy: &policy.Policy{Default: 1}}
	if len(doc.Content) == 0 { // only comments
		return f, nil
	}
	f.root = doc.Content[0]
	var queues, rules yaml.Node
	f.decode(f.root, "the policy", map[string]any{"default": &f.policy.Default, "queues": &queues, "rules": &rules})
	f.queues, f.rules = f.list(&queues, "queues"), f.list(&rules, "rules")
	for _, n := range f.queues {
		f.readQueue(n)
	}
	for _, n := range f.rules {
		f.readRule(n)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		f.mistakes = append(f.mistakes, Mistake{What: "the file has more than one YAML document: keep one"})
	}
	return f, nil
}

func (f *file) readQueue(n *yaml.Node) {
	var q policy.Queue
	f.decode(n, "a queue", map[string]any{"queue": &q.Path, "weight": &q.Weight})
	f.policy.Queues = append(f.policy.Queues, q)
}

func (f *file) readRule(n *yaml.Node) {
	r := policy.Rule{Weight: f.policy.Default}
	var limit, reserve settings.Bytes
	f.decode(n, "a rule", map[string]any{
		"flow": &r.Flow, "queue": &r.Queue, "user": &r.User, "name": &r.Name, "type": &r.Type, "tag": &r.Tag,
		"weight": &r.Weight, "max_weight": &r.MaxWeight, "limit": &limit, "reserve": &reserve,
		"group": &r.Group, "group_queue": &r.GroupQueue, "bandwidth": &r.Bandwidth,
	})
	r.Limit, r.Reserve = int64(limit), int64(reserve)
	f.policy.Rules = append(f.policy.Rules, r)
}
