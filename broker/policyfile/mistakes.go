package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"penstock/core/policy"
	"penstock/settings"
)

// maxMistakes is how many mistakes one message lists.
const maxMistakes = 20

// Mistake is one mistake of a file, and where it is. Line and Column begin at 1; 0: unknown.
type Mistake struct {
	Line, Column int
	What         string
}

func (m Mistake) String() string {
	if m.Line == 0 {
		return m.What
	}
	return fmt.Sprintf("line %d, column %d: %s", m.Line, m.Column, m.What)
}

// Mistakes are all mistakes of a file, in the order of the file.
type Mistakes []Mistake

func (m Mistakes) Error() string {
	var lines []string
	for _, one := range m[:min(len(m), maxMistakes)] {
		lines = append(lines, one.String())
	}
	if more := len(m) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n  ")
}

func (m Mistakes) sorted() Mistakes {
	slices.SortStableFunc(m, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return m
}

func (f *file) mistake(n *yaml.Node, format string, args ...any) {
	f.mistakes = append(f.mistakes, Mistake{n.Line, n.Column, fmt.Sprintf(format, args...)})
}

// decode reads the fields of a mapping into variables. what names the mapping in mistakes.
func (f *file) decode(n *yaml.Node, what string, fields map[string]any) {
	n = target(n)
	if n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.mistake(n, "%s is a list of fields, such as weight: 2", what)
		return
	}
	seen := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		into, known := fields[key.Value]
		switch {
		case !known:
			f.mistake(key, "%s has no field %.40q%s", what, key.Value, suggestion(key.Value, fields))
			continue
		case seen[key.Value]:
			f.mistake(key, "field %s is given twice", key.Value)
			continue
		}
		seen[key.Value] = true
		if node, whole := into.(*yaml.Node); whole {
			*node = *target(value)
		} else if err := value.Decode(into); err != nil {
			f.mistake(value, "%s: %s", key.Value, expected(into, value, err))
		}
	}
	if len(merged) == 0 {
		return
	}
	// YAML's merge key: the fields of another mapping, without those that are given here.
	left := maps.Clone(fields)
	maps.DeleteFunc(left, func(name string, _ any) bool { return seen[name] })
	for _, m := range merged {
		if m = target(m); m.Kind == yaml.MappingNode {
			f.decode(onlyFields(m, left), what, left)
		}
	}
}

// onlyFields returns a mapping without the fields that are not among these.
func onlyFields(n *yaml.Node, fields map[string]any) *yaml.Node {
	only := *n
	only.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if _, wanted := fields[n.Content[i].Value]; wanted {
			only.Content = append(only.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &only
}

// list returns the entries of a list.
func (f *file) list(n *yaml.Node, name string) []*yaml.Node {
	switch {
	case n.Kind == 0 || n.Tag == "!!null":
		return nil
	case n.Kind != yaml.SequenceNode:
		f.mistake(n, "%s is a list: begin each entry with \"- \"", name)
		return nil
	}
	return n.Content
}

// target returns the node that an alias stands for.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

var linePrefix = regexp.MustCompile(`^line \d+: `)

// expected says which value a field takes.
func expected(into any, value *yaml.Node, err error) string {
	var what string
	switch into.(type) {
	case *settings.Bytes:
		return linePrefix.ReplaceAllString(err.Error(), "")
	case *int:
		what = "a whole number"
	case *bool:
		what = "true or false"
	default:
		what = "a text"
	}
	if value.Kind != yaml.ScalarNode {
		return "give " + what
	}
	return fmt.Sprintf("%.40q: give %s", value.Value, what)
}

// suggestion returns a hint at the field that was probably meant, or at all fields.
func suggestion(name string, fields map[string]any) string {
	names := slices.Sorted(maps.Keys(fields))
	best, distance := "", 3
	if len(name) <= 40 {
		for _, candidate := range names {
			if d := levenshtein.ComputeDistance(name, candidate); d < distance && d < len(candidate) {
				best, distance = candidate, d
			}
		}
	}
	if best != "" {
		return fmt.Sprintf(": did you mean %s?", best)
	}
	return ": there are " + strings.Join(names, ", ")
}

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

var entryPattern = regexp.MustCompile(`^(queues|rules)\[(\d+)\]$`)

// locate finds the place of a mistake that the policy has found.
func (f *file) locate(err error) Mistake {
	m := Mistake{What: err.Error()}
	var found *policy.Error
	if !errors.As(err, &found) || f.root == nil {
		return m
	}
	n, field := f.root, found.At
	if parts := entryPattern.FindStringSubmatch(found.At); parts != nil {
		entries := f.rules
		if parts[1] == "queues" {
			entries = f.queues
		}
		i, err := strconv.Atoi(parts[2])
		if err != nil || i >= len(entries) {
			return m
		}
		n, field = entries[i], found.Field
	}
	m.Line, m.Column = n.Line, n.Column
	n = target(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			m.Line, m.Column = n.Content[i].Line, n.Content[i].Column
		}
	}
	return m
}
