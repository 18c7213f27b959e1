package policy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		rules []Rule
		want  string
	}{
		"all can match":               {[]Rule{{User: "alice"}, {User: "bob"}, {Queue: "root.*"}, {}}, ""},
		"a duplicate":                 {[]Rule{{User: "alice"}, {Queue: "q"}, {User: "alice", Weight: 7}}, "rules[2]: duplicate: rules[0]"},
		"below a rule for all":        {[]Rule{{}, {User: "alice"}}, "rules[1]: unreachable: rules[0]"},
		"below a rule of stars":       {[]Rule{{User: "*", Queue: "*"}, {User: "alice"}}, "rules[1]: unreachable: rules[0]"},
		"a literal below a glob":      {[]Rule{{Queue: "root.[ab]?"}, {Queue: "root.a1", User: "x"}}, "rules[1]: unreachable: rules[0]"},
		"a longer prefix":             {[]Rule{{Queue: "root.*"}, {Queue: "root.etl.*"}}, "rules[1]: unreachable: rules[0]"},
		"a shorter prefix":            {[]Rule{{Queue: "root.etl.*"}, {Queue: "root.*"}}, ""},
		"another field":               {[]Rule{{Queue: "root.*"}, {User: "alice"}}, ""},
		"all rules below one":         {[]Rule{{User: "*"}, {User: "a"}, {User: "b"}}, "rules[1]: unreachable: rules[0]\nrules[2]: unreachable: rules[0]"},
		"any tag is not every job":    {[]Rule{{Tag: "*"}, {User: "alice"}}, ""},
		"a tag below any tag":         {[]Rule{{Tag: "*"}, {Tag: "gold"}}, "rules[1]: unreachable: rules[0]"},
		"the same pattern, narrower":  {[]Rule{{User: "a?"}, {User: "a?", Queue: "q"}}, "rules[1]: unreachable: rules[0]"},
		"the same pattern, not wider": {[]Rule{{User: "a?", Queue: "q"}, {User: "a?"}}, ""},
	} {
		var got []string
		for _, w := range (&Policy{Rules: test.rules}).Warnings() {
			text, _, _ := strings.Cut(w.String(), " has")
			text, _, _ = strings.Cut(text, " matches")
			got = append(got, text)
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestUnreachableRulesNeverMatch checks that a rule with a warning applies to no application.
func TestUnreachableRulesNeverMatch(t *testing.T) {
	pattern := rapid.SampledFrom([]string{"", "*", "a", "ab", "a*", "ab*", "*b", "?", "a?", "[ab]", "[ab]*", `\*`, "**"})
	value := rapid.SampledFrom([]string{"", "a", "b", "ab", "abc", "*", "c"})
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{Default: 1}
		for range rapid.IntRange(1, 6).Draw(t, "rules") {
			p.Rules = append(p.Rules, Rule{User: pattern.Draw(t, "user"), Queue: pattern.Draw(t, "queue"), Tag: pattern.Draw(t, "tag"), Weight: 1})
		}
		warned := map[int]bool{}
		for _, w := range p.Warnings() {
			warned[w.Rule] = true
		}
		f := Facts{User: value.Draw(t, "value"), Queue: value.Draw(t, "value"), Tags: rapid.SliceOfN(value, 0, 2).Draw(t, "tags")}
		if g := p.Grant(f); g.Rule >= 0 && warned[g.Rule] {
			t.Fatalf("rule %d of %+v has a warning but applies to %+v", g.Rule, p.Rules, f)
		}
	})
}
