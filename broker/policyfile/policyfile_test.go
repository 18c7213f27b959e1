package policyfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/core/policy"
	"penstock/core/reserve"
)

func TestGoodFile(t *testing.T) {
	p, err := Parse([]byte(`
default: 2
queues:
  - {queue: root.etl, weight: 3}
rules:
  - {queue: "root.etl.*", user: alice, weight: 8, max_weight: 16, limit: 50MiB}
  - {type: SPARK}
  - {flow: clients, group: adhoc, weight: 2, reserve: 10MiB, limit: 10MiB}
  - {queue: root.shared, bandwidth: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	g := p.Grant(policy.Facts{Queue: "root.etl.nightly", User: "alice", Tags: []string{"io.weight=12"}})
	if want := (policy.Grant{Weight: 12, Tagged: true, Queue: "root.etl", Limit: 50 << 20}); g != want {
		t.Errorf("%+v, want %+v", g, want)
	}
	if g := p.Grant(policy.Facts{Flow: "clients"}); g != (policy.Grant{Rule: 2, Weight: 1, Group: "adhoc", GroupWeight: 2, Reserve: reserve.Rate{Bytes: 10 << 20}, Limit: 10 << 20}) {
		t.Errorf("%+v", g)
	}
	if g := p.Grant(policy.Facts{Type: "SPARK"}); g != (policy.Grant{Rule: 1, Weight: 2}) {
		t.Errorf("%+v", g)
	}
	if p, err := Parse([]byte("rules: [{bandwidth: reserve}, {bandwidth: false}]")); err != nil || p.Rules[0].Bandwidth != policy.BandwidthReserve || p.Rules[1].Bandwidth != policy.BandwidthUnused {
		t.Errorf("%+v, %v", p, err)
	}
	if g := p.Grant(policy.Facts{Queue: "root.shared", Bandwidth: 60}); g != (policy.Grant{Rule: 3, Weight: 60}) {
		t.Errorf("%+v", g)
	}
}

// TestTheManualsExample: the example of the manual is valid.
func TestTheManualsExample(t *testing.T) {
	manual, err := os.ReadFile("../../docs/operate/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(manual), "\n    default: ")
	if !found {
		t.Fatal("the manual has no example that begins with default")
	}
	block, _, _ := strings.Cut("    default: "+rest, "\n\n")
	p, err := Parse([]byte(strings.ReplaceAll(block, "\n    ", "\n")[4:]))
	if err != nil || len(p.Rules) != 4 || len(p.Queues) != 2 {
		t.Errorf("%+v, %v\n%s", p, err, block)
	}
}

func TestRuleLines(t *testing.T) {
	got := RuleLines([]byte("default: 2\n\nrules:\n  # why\n  - {user: a}\n  - user: b\n    weight: 3\n  - {user: c}\n"))
	if !slices.Equal(got, []int{5, 6, 8}) {
		t.Error(got)
	}
	if got := RuleLines([]byte("[")); got != nil {
		t.Error(got)
	}
}

func TestMistakesHaveALine(t *testing.T) {
	for text, want := range map[string]string{
		"rules:\n  - weight: 1\n  - wieght: 2\n":                      `line 3, column 5: a rule has no field "wieght": did you mean weight?`,
		"rules:\n  - weight: 1\n  - user: bob\n    weight: -2\n":      "line 4, column 5: rules[1]: weight -2",
		"default: 9999999\n":                                          "line 1, column 1: default: weight 9999999",
		"queues:\n- {queue: a, weight: 1}\n- {queue: a, weight: 2}\n": `line 3, column 4: queues[1]: queue "a" is listed twice`,
		"rules:\n  - limit: much\n":                                   `line 2, column 12: limit: "much"`,
		"rules: [{user: '['}]\n":                                      `line 1, column 10: rules[0]: pattern "["`,
		"rules:\n  - {weight: 8, max_weight: 4}\n":                    "line 2, column 17: rules[0]: max_weight 4 is below",
		"rules:\n  - {bandwidth: true, max_weight: 4}\n":              "line 2, column 23: rules[0]: bandwidth and max_weight",
		"rules:\n  - {bandwidth: true, group: g, weight: 2}\n":        "line 2, column 23: rules[0]: bandwidth and group",
		"rules:\n  - weight: 0\n":                                     "line 2, column 5: rules[0]: weight 0",
		"default: 0\n":                                                "line 1, column 1: default: weight 0",
		" \n":                                                         "the file is empty",
		"a: 1\n---\nb: 2\n":                                           `line 1, column 1: the policy has no field "a": there are default, goal, mode, queues, rules`,
		"rules:\n- {user: a, group: g, weight: 2}\n- {user: b, group: h}\n- {user: c, group: g, weight: 3}\n":     `line 4, column 13: rules[2]: group "g" has the weight 3`,
		"queues: [{queue: a, weight: 1}]\nrules:\n- {user: a, group: g}\n- {user: b, group: g, group_queue: a}\n": `line 4, column 13: rules[1]: group "g" has the weight 1 and the queue "a" here`,
		"rules:\n- {user: a, group: g, group_queue: root.x}\n":                                                    `line 2, column 23: rules[0]: group_queue "root.x": give it a weight under queues`,
		"rules:\n- {user: a, group: g, weight: 1, max_weight: 2}\n":                                               "line 2, column 34: rules[0]: group and max_weight",
		"rules:\n- {user: a, group: \"a\\nb\"}\n":                                                                 "line 2, column 13: rules[0]: group",
		"rules:\n\n- {user: a, group_queue: b}\n":                                                                 `line 3, column 13: rules[0]: group_queue "b" without a group`,
		"rules:\n- {reserve: 91%}\n":                                                                              "rules[0]: reserve 91 %: use 0.1 % to 90 % of the device's time",
		"rules:\n- {reserve: 0%}\n":                                                                               `reserve: "0%": use a part of the device's time such as 40%`,
		"rules:\n- {reserve: 40 percent}\n":                                                                       "; or a part of the device's time such as 40%",
		"rules:\n- {strict: true}\n":                                                                              "rules[0]: strict: give a reserve that is kept free",
		"rules:\n- {reserve: 100}\n":                                                                              "rules[0]: reserve 100: use 1024 (1KiB)",
		"rules:\n- {reserve: 2MiB, limit: 1MiB}\n":                                                                "line 2, column 4: rules[0]: reserve 2097152 is above the limit",
		"rules:\n- {bandwidth: [reserve]}\n":                                                                      "line 2, column 15: bandwidth: ",
		"rules:\n- {bandwidth: reserve, total_reserve: 2MiB}\n":                                                   "bandwidth: reserve and total_reserve",
		"queues:\n- {queue: a, weight: 1, goal: equal}\n":                                                         `line 2, column 25: queues[0]: goal "equal" of queue "a": did you mean equal-slowdown?`,
		"goal: fast\n": `line 1, column 1: goal: goal "fast": use equal-slowdown`,
		"queues:\n- {queue: a, weight: 1, order: shortest, goal: equal-slowdown}\n": `line 2, column 42: queues[0]: order and goal of queue "a"`,
		"goal: equal-slowdown\nrules:\n- {slowdown: 0}\n":                           "line 3, column 4: rules[0]: slowdown: use 0.1 to 10",
		"goal: equal-slowdown\nrules:\n- {slowdown: much}\n":                        `line 3, column 14: slowdown: "much": `,
		"rules:\n- {slowdown: 2}\n":                                                 `line 2, column 4: rules[0]: slowdown applies in a queue with a goal only`,
		"rules:\n- {reserve: -1}\n":                                                 `line 2, column 13: reserve: "-1"`,
		"rules: [{name: '" + strings.Repeat("*", 300) + "'}]\n":                     "at most 256 bytes",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestAllMistakesAtOnce: one message lists all mistakes, so that the file can be corrected at once.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Parse([]byte("defualt: 2\nqueues:\n- {queue: a, weight: heavy}\n- 7\nrules:\n- {user: a, user: b}\n- {weigth: 3, limit: [1]}\n- {bandwidth: perhaps}\n"))
	want := `line 1, column 1: the policy has no field "defualt": did you mean default?
  line 3, column 22: weight: "heavy": give a whole number
  line 4, column 3: a queue must be a mapping of fields: queue, weight, order, slices, floor, goal
  line 6, column 13: field user is given twice
  line 7, column 4: a rule has no field "weigth": did you mean weight?
  line 7, column 22: limit: give a number of bytes such as 65536, 64KiB or 2MiB
  line 8, column 15: bandwidth: "perhaps": use true (the held MB/s are the weight), reserve (they are the guaranteed rate) or false`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = Parse([]byte("default: 0\nqueues: [{queue: a.}]\nrules:\n- {user: '[', weight: 0}\n"))
	want = `line 1, column 1: default: weight 0: use 1 to 1000000
  line 2, column 10: queues[0]: weight 0 of queue "a.": use 1 to 1000000
  line 2, column 11: queues[0]: queue "a.": give its path, such as root.etl
  line 4, column 4: rules[0]: pattern "[": use * ? and [abc]
  line 4, column 15: rules[0]: weight 0: use 1 to 1000000`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = Parse([]byte("rules:\n" + strings.Repeat("- {weight: -1}\n", 100)))
	if err == nil || !strings.HasSuffix(err.Error(), "\n  and 80 more") {
		t.Errorf("%v", err)
	}
}

// TestReadAndUnderstoodTogether: misspelt fields do not hide mistakes in values elsewhere.
// Follow-up errors of a mistake are not reported.
func TestReadAndUnderstoodTogether(t *testing.T) {
	_, err := Parse([]byte(`defualt: 1
queues:
  - {queue: root.etl, weight: 0}
  - {queue: root.etl, weight: 2}
rules:
  - {flow: clients, wieght: 2}
  - {user: alice, weight: -3}
  - {user: bob, weight: heavy}
  - {user: carl, weight: 2, limit: 10MBps}
  - {usr: dora, weight: 2}
  - {user: eve, weight: 2.5}
  - {user: frank, limit: 10}
  - {user: grace, weight: 3.0, limit: 20M}
`))
	want := `line 1, column 1: the policy has no field "defualt": did you mean default?
  line 3, column 23: queues[0]: weight 0 of queue "root.etl": use 1 to 1000000
  line 4, column 6: queues[1]: queue "root.etl" is listed twice
  line 6, column 21: a rule has no field "wieght": did you mean weight?
  line 7, column 19: rules[1]: weight -3: use 1 to 1000000
  line 8, column 25: weight: "heavy": give a whole number
  line 9, column 36: limit: "10MBps": use a number of bytes such as 10MiB (units are KiB, MiB and GiB)
  line 10, column 6: a rule has no field "usr": did you mean user?
  line 11, column 25: weight: "2.5": give a whole number
  line 12, column 19: rules[6]: limit 10: use 65536 (64KiB) to 1099511627776 bytes a second
  line 13, column 39: limit: "20M": use a number of bytes such as 20MiB (units are KiB, MiB and GiB)`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{
		"- a\n":                         "line 1, column 1: the policy must be a mapping of fields: default, goal, mode, queues, rules",
		"rules:\n\t- user: a\n":         "indent with spaces, not with tabs",
		"\x7fELF\x02":                   "not a text file",
		"default: 1\n---\ndefault: 2\n": "more than one document",
		"default: 2.5\n":                `line 1, column 10: default: "2.5": give a whole number`,
		"rules: [{user: a, weight: 3}, {user: b, weight: 1e99}]": `weight: "1e99": give a whole number`,
		"default: 0\nrules: [{user: a}]":                         "line 1, column 1: default: weight 0: use 1 to 1000000",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestVersionsOfEarlierBuilds: a version that was in force stays in force, and is refused as a new
// version.
func TestVersionsOfEarlierBuilds(t *testing.T) {
	old := []byte("default: 3\nrules:\n- {user: a, weight: 2.5, limit: 10}\n- {user: b, limit: 2000GiB}\n- &c {user: c, limit: 70000}\n")
	if _, err := Parse(old); err == nil {
		t.Error("accepted as a new version")
	}
	p, err := ParseApplied(old)
	want := []policy.Rule{{User: "a", Weight: 2, Limit: policy.MinLimit}, {User: "b", Weight: 3, Limit: 1 << 40}, {User: "c", Weight: 3, Limit: 70_000}}
	if err != nil || p.Default != 3 || !slices.Equal(p.Rules, want) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"default: 0\n", "rules: [{user: '['}]\n", "rules: [{weight: heavy}]\n", "[", "default: 1\nfuture: 2\n", "default: 1\n---\ndefault: 1.5\n", ""} {
		_, strict := Parse([]byte(bad))
		if _, err := ParseApplied([]byte(bad)); err == nil || err.Error() != strict.Error() {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestMergedFields: the fields of a merged mapping apply unless the rule sets them itself.
func TestMergedFields(t *testing.T) {
	p, err := Parse([]byte("rules:\n- &etl {queue: root.etl, weight: 3}\n- {<<: *etl, weight: 5}\n"))
	if err != nil || p.Rules[1].Queue != "root.etl" || p.Rules[1].Weight != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = Parse([]byte("rules:\n- &a {queue: q, weight: 3}\n- &b {user: u, weight: 4}\n- {<<: [*a, *b], name: n}\n"))
	if err != nil || p.Rules[2] != (policy.Rule{Queue: "q", User: "u", Name: "n", Weight: 3}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWarningsHaveAPlace(t *testing.T) {
	got := Warnings([]byte("rules:\n- {user: a*}\n- {user: alice, weight: 2}\n- {queue: b}\n- user: a*\n"))
	want := []string{
		"line 3, column 3: unreachable: the rule on line 2 matches everything that this rule matches, and comes first",
		"line 5, column 3: duplicate: the rule on line 2 has the same patterns and comes first",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	line := "  - {user: somebody, weight: 1}\n"
	if err := os.WriteFile(path, []byte("rules:\n"+strings.Repeat(line, 10<<20/len(line))), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "over 1048576 bytes") {
		t.Error(err)
	}
	if _, err := Parse([]byte("rules:\n" + strings.Repeat(line, policy.MaxRules+1))); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Error(err)
	}
	if _, err := Parse([]byte("rules:\n" + strings.Repeat(line, policy.MaxRules))); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("default: 2\nrules:\n  - {queue: 'root.*', weight: 3}\n"))
	f.Add([]byte("rules:\n  - {flow: clients, group: g, group_queue: a, reserve: 1MiB}\nqueues: [{queue: a, weight: 1}]\n"))
	f.Add([]byte("queues: [{queue: a.b, weight: 1}]"))
	f.Add([]byte("rules: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		applied, err2 := ParseApplied(text)
		if err2 == nil {
			if err := applied.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		p.Outcomes([]policy.Facts{{Flow: "application_1_1", Queue: "a.b.c", User: "u", Name: "n"}, {Flow: "clients"}})
	})
}

func TestDeadline(t *testing.T) {
	for text, want := range map[string]policy.Deadline{
		"2h": {After: 2 * time.Hour}, "90m": {After: 90 * time.Minute}, "1970-01-02T00:00:00Z": {}, "2026-11-25T18:00:00Z": {At: 1795629600000},
		"2026-11-25T19:00:00+01:00": {At: 1795629600000}, "1s": {}, "0": {}, "soon": {}, "18:00": {}, "[1h]": {}, "": {},
	} {
		p, err := Parse([]byte("rules: [{flow: a, deadline: " + text + "}]"))
		if want == (policy.Deadline{}) {
			if text != "" && (err == nil || !strings.Contains(err.Error(), "deadline")) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil || p.Rules[0].Deadline != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := Parse([]byte("rules:\n- {flow: a, deadline: 2h, total_reserve: 10MiB}\n"))
	if err == nil || err.Error() != "line 2, column 13: rules[0]: deadline and total_reserve: the guaranteed rate comes from the forecast or from the rule, not from both" {
		t.Error(err)
	}
}
