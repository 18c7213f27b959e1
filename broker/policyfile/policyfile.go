// Package policyfile reads a policy from YAML, and says on which line a mistake is.
package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"penstock/core/policy"
	"penstock/settings"
)

// MaxBytes is the largest policy file.
const MaxBytes = 1 << 20

// file is what stands in one.
type file struct {
	Default *int    `yaml:"default"`
	Queues  []queue `yaml:"queues"`
	Rules   []rule  `yaml:"rules"`
}

type queue struct {
	Queue  string `yaml:"queue"`
	Weight int    `yaml:"weight"`
}

type rule struct {
	Flow  string `yaml:"flow"`
	Queue string `yaml:"queue"`
	User  string `yaml:"user"`
	Name  string `yaml:"name"`
	Type  string `yaml:"type"`
	Tag   string `yaml:"tag"`

	Weight    *int           `yaml:"weight"`
	MaxWeight int            `yaml:"max_weight"`
	Limit     settings.Bytes `yaml:"limit"`
	Reserve   settings.Bytes `yaml:"reserve"`

	Group      string `yaml:"group"`
	GroupQueue string `yaml:"group_queue"`
	Bandwidth  bool   `yaml:"bandwidth"`
}

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

// Parse reads and checks a policy. A weight that is not given is the default, which is 1
// if that is not given either.
func Parse(text []byte) (*policy.Policy, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a policy has at most %d bytes", MaxBytes)
	}
	var f file
	if err := settings.Parse(text, &f); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("the file is empty: write \"default: 1\" if every weight is to be 1")
	}
	p := &policy.Policy{Default: 1}
	if f.Default != nil {
		p.Default = *f.Default
	}
	for _, q := range f.Queues {
		p.Queues = append(p.Queues, policy.Queue{Path: q.Queue, Weight: q.Weight})
	}
	for _, r := range f.Rules {
		weight := p.Default
		if r.Weight != nil {
			weight = *r.Weight
		}
		p.Rules = append(p.Rules, policy.Rule{
			Flow: r.Flow, Queue: r.Queue, User: r.User, Name: r.Name, Type: r.Type, Tag: r.Tag,
			Weight: weight, MaxWeight: r.MaxWeight, Limit: int64(r.Limit), Bandwidth: r.Bandwidth,
			Reserve: int64(r.Reserve), Group: r.Group, GroupQueue: r.GroupQueue,
		})
	}
	err := p.Validate()
	var mistake *policy.Error
	if errors.As(err, &mistake) {
		if line := lineOf(text, mistake.At); line > 0 {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// RuleLines returns the line on which each rule of a policy begins.
func RuleLines(text []byte) []int {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	var lines []int
	for i := 0; i+1 < len(doc.Content[0].Content); i += 2 {
		if doc.Content[0].Content[i].Value == "rules" {
			for _, rule := range doc.Content[0].Content[i+1].Content {
				lines = append(lines, rule.Line)
			}
		}
	}
	return lines
}

var placePattern = regexp.MustCompile(`^(\w+)(?:\[(\d+)\])?$`)

// lineOf finds the line of a place such as rules[3]; 0 if it is not there.
func lineOf(text []byte, at string) int {
	m := placePattern.FindStringSubmatch(at)
	var doc yaml.Node
	if m == nil || yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return 0
	}
	root := doc.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if key.Value != m[1] {
			continue
		}
		if m[2] == "" {
			return key.Line
		}
		if n, err := strconv.Atoi(m[2]); err == nil && n < len(value.Content) {
			return value.Content[n].Line
		}
	}
	return 0
}
