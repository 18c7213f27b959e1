package policy

import (
	"fmt"
	"strings"
)

// maxComparisons bounds the work of Warnings, in pairs of rules. It covers all pairs of about 2,800
// rules. Among further rules, Warnings finds only duplicates, and rules that come after a rule that
// matches everything.
const maxComparisons = 4_000_000

// Warning reports a rule that never applies.
type Warning struct {
	Rule, By  int  // the indexes of the rule and of the earlier rule that takes all its matches
	Duplicate bool // both have the same patterns
}

func (w Warning) String() string {
	return fmt.Sprintf("rules[%d]: %s", w.Rule, w.Against(fmt.Sprintf("rules[%d]", w.By)))
}

// Against returns the warning without the name of the rule. by is the name of the earlier rule.
func (w Warning) Against(by string) string {
	if w.Duplicate {
		return "duplicate: " + by + " has the same patterns and comes first"
	}
	return "unreachable: " + by + " matches everything that this rule matches, and comes first"
}

// Warnings returns the rules that never apply, in their order. Such a rule is a duplicate of an
// earlier rule, or an earlier rule matches everything that it matches. The policy must be valid.
func (p *Policy) Warnings() []Warning {
	var all []Warning
	same := map[[6]fieldPattern]int{}
	catchAll := -1
	left := maxComparisons
	for i := range p.Rules {
		patterns := p.Rules[i].patterns()
		first, duplicate := same[patterns]
		switch by := -1; {
		case duplicate:
			all = append(all, Warning{Rule: i, By: first, Duplicate: true})
			continue
		case catchAll >= 0:
			all = append(all, Warning{Rule: i, By: catchAll})
		default:
			for j := 0; j < i && left > 0 && by < 0; j++ {
				left--
				if p.Rules[j].covers(&p.Rules[i]) {
					by = j
				}
			}
			if by >= 0 {
				all = append(all, Warning{Rule: i, By: by})
			}
		}
		same[patterns] = i
		if catchAll < 0 && p.Rules[i].covers(&Rule{}) {
			catchAll = i
		}
	}
	return all
}

// covers reports whether the rule matches every application that another rule matches, as far as
// the patterns show.
func (r *Rule) covers(o *Rule) bool {
	wide, narrow := r.patterns(), o.patterns()
	for i := range wide {
		if !covers(wide[i].pattern, narrow[i].pattern, wide[i].field == "tag") {
			return false
		}
	}
	return true
}

// covers reports whether every value that matches narrow also matches wide. It recognizes equal
// patterns, a literal narrow pattern, and a wide pattern of the form prefix*. An application may
// have no tags, so only an empty tag pattern covers an empty tag pattern.
func covers(wide, narrow string, tag bool) bool {
	switch {
	case wide == "" || wide == narrow:
		return true
	case narrow == "":
		return wide == "*" && !tag
	case wide == "*":
		return true
	}
	const meta = `*?[\`
	end := strings.IndexAny(narrow, meta)
	if end < 0 {
		return match(wide, narrow)
	}
	prefix, found := strings.CutSuffix(wide, "*")
	return found && !strings.ContainsAny(prefix, meta) && strings.HasPrefix(narrow[:end], prefix)
}
