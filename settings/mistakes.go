package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxMistakes is the maximum number of mistakes in one message.
const maxMistakes = 20

// Mistake is one mistake of a file, with its position. Line and Column begin at 1; 0 means unknown.
type Mistake struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	What   string `json:"what"`
}

func (m Mistake) String() string {
	switch {
	case m.Line == 0:
		return m.What
	case m.Column == 0:
		return fmt.Sprintf("line %d: %s", m.Line, m.What)
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

// sorted returns the mistakes in the order of the file. Those without a position come last.
func (m Mistakes) sorted() Mistakes {
	all := slices.Clone(m)
	slices.SortStableFunc(all, func(a, b Mistake) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// Suggestion returns the name that was probably meant, or "" if no name is similar.
func Suggestion(name string, names []string) string {
	best, distance := "", 3
	if len(name) > 40 {
		return ""
	}
	for _, candidate := range names {
		if d := levenshtein.ComputeDistance(name, candidate); d < distance && d < len(candidate) {
			best, distance = candidate, d
		}
	}
	for _, candidate := range names {
		if best == "" && len(name) >= 3 && strings.HasPrefix(candidate, name) {
			best = candidate
		}
	}
	return best
}

// Split returns the errors that errors.Join has joined, at any depth.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range many.Unwrap() {
		all = append(all, Split(one)...)
	}
	return all
}

// MistakesOf returns the mistakes in an error: the mistakes of a file one by one, or any other
// error as one mistake without a position.
func MistakesOf(err error) Mistakes {
	var found Mistakes
	if errors.As(err, &found) {
		return found
	}
	return Mistakes{{What: err.Error()}}
}
