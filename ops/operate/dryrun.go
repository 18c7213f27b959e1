package operate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/broker/policyfile"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/wire/cluster"
)

// Policy is a policy that can be evaluated.
type Policy struct {
	Name  string // for messages: the file's name, or "version 7"
	Text  []byte
	Set   map[string]int
	rules *policy.Policy
	lines []int
}

// ParsePolicy parses a policy. set holds the weights that are set for single applications.
func ParsePolicy(name string, text []byte, set map[string]int) (*Policy, error) {
	return parsed(name, text, set, policyfile.Parse)
}

func parsed(name string, text []byte, set map[string]int, parse func([]byte) (*policy.Policy, error)) (*Policy, error) {
	p, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.Set = set
	return &Policy{name, text, set, p, policyfile.RuleLines(text)}, nil
}

// OfVersion parses a version of the broker's policy.
func OfVersion(v *cluster.PolicyVersion) (*Policy, error) {
	set := map[string]int{}
	for name, weight := range v.GetWeights() {
		set[name] = int(weight)
	}
	name := fmt.Sprintf("version %d", v.GetVersion())
	if v.GetVersion() == 0 {
		name = "no policy"
	}
	return parsed(name, v.GetText(), set, policyfile.ParseApplied)
}

// Counts returns the numbers of rules, of queues, and of rules with a guaranteed rate.
func (p *Policy) Counts() (rules, queues, reserved int) {
	for _, r := range p.rules.Rules {
		if r.Reserve != (reserve.Rate{}) || r.Total.Reserve > 0 {
			reserved++
		}
	}
	return len(p.rules.Rules), len(p.rules.Queues), reserved
}

// Warnings returns a line for each rule that can never have an effect, for each deadline that has passed, and for each
// deadline beside a limit.
func (p *Policy) Warnings() []string {
	all := policyfile.Warnings(p.Text)
	for i, r := range p.rules.Rules[:min(len(p.rules.Rules), len(p.lines))] {
		add := func(format string, args ...any) {
			all = append(all, fmt.Sprintf("line %d: rules[%d]: ", p.lines[i], i)+fmt.Sprintf(format, args...))
		}
		if r.CatchAll() {
			add("limits all applications: `penstock policy apply` needs --force")
		}
		if r.Deadline.At != 0 && r.Deadline.At <= time.Now().UnixMilli() {
			add("the deadline %v has passed", r.Deadline)
			continue
		}
		if words, most := bounds(r); r.Deadline != (policy.Deadline{}) && words != "" {
			// Whether the limit suffices depends on the application's work, which no rule knows.
			add("deadline and %s: the guaranteed rate is at most %s. An application that needs more to end in time has its weight and no guaranteed rate: its deadline is refused", words, most)
		}
	}
	return all
}

// bounds returns the fields of a rule that bound the rate of a deadline, and the bound; empty: nothing bounds it.
func bounds(r policy.Rule) (fields, most string) {
	device, total := Rate(r.Limit)+" on each device", Rate(r.Total.Limit)+" in all"
	switch {
	case r.Limit > 0 && r.Total.Limit > 0:
		return "limit, total_limit", device + " and " + total
	case r.Limit > 0:
		return "limit", device
	case r.Total.Limit > 0:
		return "total_limit", total
	}
	return "", ""
}

// Document returns the text, followed by comments with the weights that are set for single
// applications.
func (p *Policy) Document() []byte {
	text := slices.Clone(p.Text)
	if len(p.Set) > 0 && len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	for _, name := range slices.Sorted(maps.Keys(p.Set)) {
		text = fmt.Appendf(text, "# set for %s: %d\n", Printable(name), p.Set[name])
	}
	return text
}

// Given is what a policy gives to an application.
type Given struct {
	Rule   int    `json:"rule"`           // from 0; -1: none matched
	Line   int    `json:"line,omitempty"` // of the rule
	Set    bool   `json:"set"`            // the weight was set for this application
	Tagged bool   `json:"tagged"`         // the weight comes from a tag of the application
	Own    int    `json:"own_weight"`     // among the members of its queue or group
	Queue  string `json:"queue,omitempty"`
	Order  string `json:"order,omitempty"` // of the queue; its applications' shares then depend on their remaining work
	Group  string `json:"group,omitempty"`
	// Slowdown is the goal in a queue with "goal: equal-slowdown", where weights and so shares move; 0: no such queue.
	Slowdown float64 `json:"slowdown_goal,omitempty"`
	Weight   float64 `json:"weight"` // among all at work
	Due      float64 `json:"due"`    // 0 to 1; in an ordered queue the mean over the ranks
	// Least and Most are what an application of an ordered queue gets as the last and as the first one, 0 to 1. For other
	// applications they are Due.
	Least float64 `json:"due_least"`
	Most  float64 `json:"due_most"`
	Limit int64   `json:"limit"` // bytes a second at one device; 0: none
	// Reserve is the guaranteed rate on one device.
	Reserve reserve.Rate `json:"reserve"`
	// TotalReserve and TotalLimit are the rates over all devices of all nodes, in bytes a second; 0: none.
	TotalReserve int64 `json:"total_reserve"`
	TotalLimit   int64 `json:"total_limit"`
	// Latency is the goal of the p99 of small reads, in nanoseconds; 0: none.
	Latency time.Duration `json:"latency_ns"`
	// Deadline is the time by which the application should have ended, as in the policy; empty: none.
	Deadline string `json:"deadline,omitempty"`

	by policy.Deadline
}

// Why returns the origin of the weight in a few words.
func (g Given) Why() string {
	why := "default"
	switch {
	case g.Set:
		why = "set"
	case g.Rule >= 0:
		why = fmt.Sprintf("line %d", g.Line)
	}
	if g.Tagged {
		why += ", by tag"
	}
	if g.Order != "" {
		why += ", order " + g.Order
	}
	if g.Slowdown > 0 {
		why += ", goal " + policy.EqualSlowdown
		if g.Slowdown != 1 {
			why += fmt.Sprintf(" %v", g.Slowdown)
		}
	}
	if g.Group != "" {
		why += ", group " + Printable(g.Group)
	}
	return why
}

// Of returns what the policy gives to each application at work.
func (p *Policy) Of(atWork []policy.Facts) []Given {
	given := make([]Given, len(atWork))
	for i, o := range p.rules.Outcomes(atWork) {
		given[i] = Given{Rule: o.Rule, Set: o.Set, Tagged: o.Tagged, Own: o.Grant.Weight, Queue: o.Queue, Group: o.Group, Weight: o.Among, Due: o.Due, Least: o.Least, Most: o.Most,
			Limit: o.Limit, Reserve: o.Reserve, TotalReserve: o.Total.Reserve, TotalLimit: o.Total.Limit, Latency: o.Latency, Deadline: o.Deadline.String(), by: o.Deadline}
		if _, ordered := p.rules.OrderOf(o.Grant); ordered {
			given[i].Order = policy.Shortest
		}
		given[i].Slowdown, _ = p.rules.GoalOf(o.Grant)
		if o.Rule >= 0 && o.Rule < len(p.lines) {
			given[i].Line = p.lines[o.Rule]
		}
	}
	return given
}

// FactsOf returns the facts that the broker knows of applications.
func FactsOf(states []*cluster.ApplicationState) []policy.Facts {
	facts := make([]policy.Facts, len(states))
	for i, s := range states {
		facts[i] = policy.Facts{Flow: s.GetApplication(), Queue: s.GetQueue(), User: s.GetUser(), Name: s.GetName(), Type: s.GetType(), Tags: s.GetTags(), Bandwidth: s.GetBandwidth()}
	}
	return facts
}

// Change is what an application at work gets under two policies.
type Change struct {
	Application string `json:"application"`
	User        string `json:"user,omitempty"`
	Queue       string `json:"queue,omitempty"`
	Old         Given  `json:"old"`
	New         Given  `json:"new"`
	// Fits reports for people whether the new guaranteed rates fit; empty: there are none.
	Fits string `json:"fits,omitempty"`
}

// Differs reports whether the application would notice a difference: in its entitlement, by a ten
// thousandth at least, or in its limits or guaranteed rates.
func (c Change) Differs() bool {
	return math.Abs(c.Old.Due-c.New.Due) >= 1e-4 || math.Abs(c.Old.Least-c.New.Least) >= 1e-4 || math.Abs(c.Old.Most-c.New.Most) >= 1e-4 || c.Old.Order != c.New.Order || c.Old.Slowdown != c.New.Slowdown || c.Old.Limits() != c.New.Limits() || c.Old.Reserves() != c.New.Reserves() || c.Old.Latency != c.New.Latency || c.Old.Deadline != c.New.Deadline
}

// Share returns the entitlement for people: in an ordered queue, from the last rank to the first.
func (g Given) Share() string {
	if g.Order == "" || g.Most-g.Least < 1e-4 {
		return Percent(g.Due)
	}
	return fmt.Sprintf("%.1f to %s by rank", 100*g.Least, Percent(g.Most))
}

// Limits returns the limits for people; empty: none.
func (g Given) Limits() string { return both(Rate(g.Limit), Rate(g.TotalLimit)) }

// Reserves returns the guaranteed rates for people; empty: none.
func (g Given) Reserves() string {
	if g.Deadline != "" {
		return "for the deadline " + g.Deadline
	}
	return both(g.Reserve.String(), Rate(g.TotalReserve))
}

// By returns the time of the deadline in Unix ms; ok is false if there is none, or it is not known. submitted is when the
// application was submitted, in Unix ms; 0: not known.
func (g Given) By(submitted int64) (unixMs int64, ok bool) {
	if g.by == (policy.Deadline{}) {
		return 0, false
	}
	return g.by.By(submitted)
}

// Goal returns the latency goal for people; empty: none.
func (g Given) Goal() string {
	if g.Latency == 0 {
		return ""
	}
	return "p99 within " + g.Latency.String()
}

// both joins a rate of each device with one of the whole cluster.
func both(device, total string) string {
	if total == "" {
		return device
	}
	if device != "" {
		device += ", "
	}
	return device + total + " in total"
}

// Compare returns what each application at work gets under both policies.
func Compare(old, new *Policy, atWork []policy.Facts) []Change {
	was, is := old.Of(atWork), new.Of(atWork)
	changes := make([]Change, len(atWork))
	for i, f := range atWork {
		changes[i] = Change{Application: f.Flow, User: f.User, Queue: f.Queue, Old: was[i], New: is[i]}
	}
	return changes
}

// Promised sets Change.Fits. states are what the broker knows of the same applications, under the old policy.
func Promised(changes []Change, states []*cluster.ApplicationState) {
	known := map[string]*cluster.Promise{}
	for _, s := range states {
		known[s.GetApplication()] = s.GetPromise()
	}
	parts := 0.0
	for _, c := range changes {
		parts += c.New.Reserve.Part
	}
	for i := range changes {
		c := &changes[i]
		switch {
		case c.New.TotalReserve > 0:
			c.Fits = totalFits(c.Old.TotalReserve, c.New.TotalReserve, known[c.Application])
		case c.New.Reserve.Part > 0 && parts > reserve.AdmitMost+1e-9:
			c.Fits = fmt.Sprintf("not on a disk with all others: %.0f %% together, and %.0f %% fit", 100*parts, 100*reserve.AdmitMost)
		case c.New.Reserve.Part > 0:
			c.Fits = "yes"
		case c.New.Reserve != (reserve.Rate{}):
			c.Fits = "depends on the disks"
		}
	}
}

// totalFits reports for people whether a guaranteed total rate fits, as far as the admission of the present one shows.
func totalFits(old, new int64, p *cluster.Promise) string {
	room := p.GetFits() * float64(old)
	switch state := p.GetState(); {
	case old == 0 || state == "" || state == reserve.Unused.String():
		return "not known before it is applied"
	case state == reserve.Admitted.String() && new <= old:
		return "yes"
	case state == reserve.Admitted.String():
		return fmt.Sprintf("up to %s; more is not known", Rate(old))
	case float64(new) <= room:
		return "yes"
	default:
		return fmt.Sprintf("%s of it, now %s", Percent(room/float64(new)), state)
	}
}

// ParseFacts parses facts of an application, such as "user=alice,queue=root.etl,tag=gold". The keys
// are flow, queue, user, name, type, tag and bandwidth.
func ParseFacts(stated []string) (policy.Facts, error) {
	f := policy.Facts{Flow: "application_0_0"}
	for _, list := range stated {
		for part := range strings.SplitSeq(list, ",") {
			key, value, found := strings.Cut(part, "=")
			into := map[string]*string{"flow": &f.Flow, "queue": &f.Queue, "user": &f.User, "name": &f.Name, "type": &f.Type}[key]
			switch {
			case !found:
				return f, fmt.Errorf("%q: give KEY=VALUE, such as user=alice,queue=root.etl", part)
			case key == "bandwidth":
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil || n < 0 {
					return f, fmt.Errorf("%q: give MB/s, such as bandwidth=50", part)
				}
				f.Bandwidth = n
			case key == "tag":
				f.Tags = append(f.Tags, value)
			case into != nil:
				*into = value
			default:
				return f, fmt.Errorf("%q: use flow, queue, user, name, type, tag or bandwidth", key)
			}
		}
	}
	return f, nil
}
