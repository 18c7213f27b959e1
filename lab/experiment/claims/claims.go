// Package claims defines claims, which are the published figures. Each claim has an interval, a
// goal and the goal's source. Every bench writes its claims to the field "claims" of its JSON;
// docs/results.md is made from the claims.
//
// Whether a goal is met is judged by the value, which is a median or a mean, and not by an end of
// the interval. If the goal lies within the interval, more runs could change the verdict. Such a
// claim is open (Open), and the documents say so beside the verdict.
package claims

import (
	"slices"

	"penstock/lab/experiment/figures"
)

// Claim is one published figure.
type Claim struct {
	Name string `json:"name"`
	Unit string `json:"unit"` // "s", "MB/s"; "ratio" for a quotient
	// Value is between Low and High. It comes from Runs runs.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Runs  int     `json:"runs"`
	// Goal and Met are null for a figure without a goal.
	Goal           *float64 `json:"goal"`
	HigherIsBetter bool     `json:"higher_is_better"`
	Met            *bool    `json:"met"`
	Source         string   `json:"source"` // of the goal or the experiment, in a few words
}

// AtLeast returns the claim with a goal that its value must reach. Higher is then better.
func (c Claim) AtLeast(goal float64) Claim {
	met := c.Value >= goal
	c.Goal, c.Met, c.HigherIsBetter = &goal, &met, true
	return c
}

// AtMost returns the claim with a goal that its value must not exceed. Lower is then better.
func (c Claim) AtMost(goal float64) Claim {
	met := c.Value <= goal
	c.Goal, c.Met, c.HigherIsBetter = &goal, &met, false
	return c
}

// Open reports whether one end of the interval meets the goal and the other end does not. An end
// that equals the goal meets the goal.
func (c Claim) Open() bool {
	if c.Goal == nil {
		return false
	}
	meets := func(v float64) bool {
		if c.HigherIsBetter {
			return v >= *c.Goal
		}
		return v <= *c.Goal
	}
	return meets(c.Low) != meets(c.High)
}

// Of returns a claim from the values of several runs. Its value is their median, and its interval
// reaches from the least to the greatest value. Without values, Of returns the zero claim, which
// Add leaves out.
func Of(name, unit string, values ...float64) Claim {
	if len(values) == 0 {
		return Claim{}
	}
	return Claim{Name: name, Unit: unit, Value: figures.Median(values), Low: slices.Min(values), High: slices.Max(values), Runs: len(values)}
}

// From returns the claim with its source.
func (c Claim) From(source string) Claim {
	c.Source = source
	return c
}

// Add appends those claims of more that come from at least one run.
func Add(all []Claim, more ...Claim) []Claim {
	for _, c := range more {
		if c.Runs > 0 {
			all = append(all, c)
		}
	}
	return all
}
