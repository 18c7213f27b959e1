// Package policyfile reads a policy from YAML. It reports all mistakes of a file at once, with
// line and column, and suggests the right name for a misspelt field.
package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"penstock/core/limit"
	"penstock/core/policy"
	"penstock/core/shortest"
	"penstock/settings"
)

// MaxBytes is the maximum size of a policy file.
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
// unless the file sets it. Mistakes are returned together, as settings.Mistakes.
func Parse(text []byte) (*policy.Policy, error) {
	f, err := read(text)
	if err != nil {
		return nil, err
	}
	for _, one := range settings.Split(f.policy.Validate()) {
		path := pathOf(one)
		if len(path) < 2 || !f.doc.Wrong(path[:2]...) { // no second mistake for an entry that could not be read
			f.doc.Add("", one, path...)
		}
	}
	if err := f.doc.Err(); err != nil {
		return nil, err
	}
	return f.policy, nil
}

// ParseApplied reads a policy that was checked when it was applied, perhaps by an earlier build
// that accepted fractions as weights and any limit. The policy keeps its meaning: fractions of
// weights are cut off, and limits and reserves are brought into their ranges.
// Errors are those of Parse.
func ParseApplied(text []byte) (*policy.Policy, error) {
	p, strict := Parse(text)
	if strict == nil {
		return p, nil
	}
	if len(text) > MaxBytes {
		return nil, strict
	}
	var all fields
	dec := yaml.NewDecoder(bytes.NewReader(text)) // the library cuts fractions off
	dec.KnownFields(true)
	if dec.Decode(&all) != nil || !errors.Is(dec.Decode(new(yaml.Node)), io.EOF) {
		return nil, strict
	}
	p = all.policy(func(...any) bool { return false })
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Limit > 0 {
			r.Limit = min(max(r.Limit, policy.MinLimit), limit.MaxRate)
		}
		if r := &p.Rules[i].Reserve; r.Bytes > 0 {
			r.Bytes = min(max(r.Bytes, limit.MinRate), limit.MaxRate)
		}
	}
	if p.Validate() != nil {
		return nil, strict
	}
	return p, nil
}

// Warnings returns a line for each rule of a valid policy that never has an effect, with the
// position of the rule.
func Warnings(text []byte) []string {
	f, err := read(text)
	if err != nil || f.doc.Err() != nil {
		return nil
	}
	var all []string
	for _, w := range f.policy.Warnings() {
		line, column := f.doc.Place(fmt.Sprintf("rules[%d]", w.Rule))
		all = append(all, settings.Mistake{Line: line, Column: column, What: w.Against(fmt.Sprintf("the rule on line %d", f.doc.Line("rules", w.By)))}.String())
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
	for i := range f.policy.Rules {
		lines = append(lines, f.doc.Line("rules", i))
	}
	return lines
}

// file is a policy file that has been read.
type file struct {
	policy *policy.Policy
	doc    *settings.Document
}

// fields are the fields of a policy file. A missing weight differs from a weight of 0.
type fields struct {
	Default *int    `yaml:"default"`
	Goal    string  `yaml:"goal"`
	Mode    string  `yaml:"mode"`
	Queues  []queue `yaml:"queues" entry:"a queue"`
	Rules   []rule  `yaml:"rules" entry:"a rule"`
}

type queue struct {
	Queue  string `yaml:"queue"`
	Weight int    `yaml:"weight"`
	Order  string `yaml:"order"`
	Slices []int  `yaml:"slices"`
	Floor  *int   `yaml:"floor"`
	Goal   string `yaml:"goal"`
}

type rule struct {
	Flow         string           `yaml:"flow"`
	Queue        string           `yaml:"queue"`
	User         string           `yaml:"user"`
	Name         string           `yaml:"name"`
	Type         string           `yaml:"type"`
	Tag          string           `yaml:"tag"`
	Weight       *int             `yaml:"weight"`
	MaxWeight    int              `yaml:"max_weight"`
	Limit        settings.Bytes   `yaml:"limit"`
	Reserve      settings.Reserve `yaml:"reserve"`
	Strict       bool             `yaml:"strict"`
	TotalReserve settings.Bytes   `yaml:"total_reserve"`
	TotalLimit   settings.Bytes   `yaml:"total_limit"`
	Latency      time.Duration    `yaml:"latency"`
	Deadline     deadline         `yaml:"deadline"`
	Slowdown     *float64         `yaml:"slowdown"`
	Group        string           `yaml:"group"`
	GroupQueue   string           `yaml:"group_queue"`
	Bandwidth    bandwidth        `yaml:"bandwidth"`
}

// bandwidth is written as true, false or reserve.
type bandwidth policy.Bandwidth

// UnmarshalYAML parses the use of the allocated bandwidth.
func (b *bandwidth) UnmarshalYAML(node *yaml.Node) error {
	var weight bool
	switch {
	case node.Decode(&weight) == nil && weight:
		*b = bandwidth(policy.BandwidthWeight)
	case node.Kind == yaml.ScalarNode && node.Value == "reserve":
		*b = bandwidth(policy.BandwidthReserve)
	case node.Decode(&weight) != nil:
		return settings.WrongValue(node, fmt.Errorf("%.40q: use true (the held MB/s are the weight), reserve (they are the guaranteed rate) or false", node.Value))
	}
	return nil
}

// deadline is written as a duration after the submission, such as 2h, or as a time, such as 2026-11-25T18:00:00Z.
type deadline policy.Deadline

// UnmarshalYAML parses a deadline.
func (d *deadline) UnmarshalYAML(node *yaml.Node) error {
	if after, err := time.ParseDuration(node.Value); err == nil && after != 0 {
		d.After = after
		return nil
	}
	at, err := time.Parse(time.RFC3339, node.Value)
	if err != nil || node.Kind != yaml.ScalarNode || at.UnixMilli() == 0 {
		return settings.WrongValue(node, fmt.Errorf("%.40q: use a duration after the submission such as 2h, or a time such as 2026-11-25T18:00:00Z", node.Value))
	}
	d.At = at.UnixMilli()
	return nil
}

// slices returns the queue's slices, with the defaults of an ordered queue.
func (q *queue) slices() shortest.Slices {
	s := shortest.Slices{Percent: q.Slices}
	if q.Order != "" {
		if q.Slices == nil {
			s.Percent = shortest.Default().Percent
		}
		s.Floor = shortest.Default().Floor
	}
	if q.Floor != nil {
		s.Floor = *q.Floor
	}
	return s
}

// read reads the fields of a file. It returns an error if the file is empty or its fields cannot be
// read at all. Other mistakes are collected in the document.
func read(text []byte) (*file, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a policy has at most %d bytes", MaxBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("the file is empty: write \"default: 1\" if all weights are 1")
	}
	var all fields
	doc, err := settings.ParseDocument(text, "the policy", &all)
	if err != nil {
		return nil, err
	}
	return &file{all.policy(doc.Wrong), doc}, nil
}

// policy returns the policy with these fields. wrong reports whether the value at a path has a
// mistake.
func (all *fields) policy(wrong func(path ...any) bool) *policy.Policy {
	p := &policy.Policy{Default: 1, Goal: all.Goal, Mode: all.Mode}
	if all.Default != nil && !wrong("default") {
		p.Default = *all.Default
	}
	for _, q := range all.Queues {
		p.Queues = append(p.Queues, policy.Queue{Path: q.Queue, Weight: q.Weight, Order: q.Order, Slices: q.slices(), Goal: q.Goal})
	}
	for i, r := range all.Rules {
		one := policy.Rule{
			Flow: r.Flow, Queue: r.Queue, User: r.User, Name: r.Name, Type: r.Type, Tag: r.Tag,
			Weight: p.Default, MaxWeight: r.MaxWeight, Limit: int64(r.Limit), Reserve: r.Reserve.Rate(r.Strict),
			Total: policy.Total{Reserve: int64(r.TotalReserve), Limit: int64(r.TotalLimit)}, Latency: r.Latency, Deadline: policy.Deadline(r.Deadline),
			Group: r.Group, GroupQueue: r.GroupQueue, Bandwidth: policy.Bandwidth(r.Bandwidth),
		}
		if p.Default < 1 || p.Default > policy.MaxWeight {
			one.Weight = 1 // the mistake is reported once, at the default
		}
		if r.Weight != nil && !wrong("rules", i, "weight") {
			one.Weight = *r.Weight
		}
		if r.Slowdown != nil && !wrong("rules", i, "slowdown") {
			if one.Slowdown = *r.Slowdown; one.Slowdown == 0 {
				one.Slowdown = -1 // a mistake, and not a missing goal
			}
		}
		p.Rules = append(p.Rules, one)
	}
	return p
}

var entryPattern = regexp.MustCompile(`^(queues|rules)\[(\d+)\]$`)

// pathOf returns the path, in the file, of the value in which package policy has found a mistake.
func pathOf(err error) []any {
	var found *policy.Error
	if !errors.As(err, &found) {
		return nil
	}
	parts := entryPattern.FindStringSubmatch(found.At)
	if parts == nil {
		return []any{found.At}
	}
	i, _ := strconv.Atoi(parts[2])
	return []any{parts[1], i, found.Field}
}
