// Package policy evaluates an operator's rules. They determine the weight and limits of each
// application. The first rule that matches the cluster's facts about the application (queue, user,
// tags, name, type) applies.
//
// Operators think in queues, users and jobs. A rule gives an application its weight among the
// members of its queue, and queues have weights among their siblings. Nodes divide service level by
// level (Levels). Operators see one number for each application (Weights). It is the product, from
// the root down, of each member's part among the members at work. A queue without applications at
// work takes nothing from its siblings.
//
// The package is pure. It reads no files and asks no cluster manager.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/core/limit"
	"penstock/core/reserve"
	"penstock/core/shortest"
)

// Limits of a policy.
const (
	MaxRules   = 10_000
	MaxQueues  = 10_000
	MaxPattern = 256 // bytes of a pattern
	MaxValue   = 256 // a pattern is matched with this many bytes of a fact at most; a literal is compared with the whole fact
	MaxTags    = 32  // only the first 32 tags of an application count; YARN allows 10
	MaxWeight  = 1_000_000
	MinLimit   = limit.MinLimit // bytes per second on one device
	maxLevels  = 16
)

// WeightTag is the prefix of a tag with which a submitter requests a weight, such as io.weight=4.
const WeightTag = "io.weight="

// Facts describes an application. An unknown fact is empty, and matches only patterns that match
// everything.
type Facts struct {
	Flow  string // the name of its flows: the application's id, or the name of a system flow
	Queue string // root.etl.nightly
	User  string
	Name  string // chosen by the submitter
	Type  string // MAPREDUCE, SPARK
	Tags  []string
	// Bandwidth is the amount of the cluster manager's bandwidth resource that the application has
	// allocated, in MB/s.
	Bandwidth int64
}

// Rule matches applications by shell patterns (* ? [abc]); an empty pattern matches everything. All
// patterns must match; Tag must match one of the tags.
type Rule struct {
	Flow, Queue, User, Name, Type, Tag string

	Weight int // 1 to MaxWeight
	// MaxWeight is the largest weight that a tag can request. 0 means that tags are ignored.
	MaxWeight int
	Limit     int64 // bytes per second on one device, MinLimit to limit.MaxRate; 0 means no limit
	// Reserve is the guaranteed rate of each application on one device.
	Reserve reserve.Rate
	// Latency is the goal of the p99 of each application's small reads, 10 ms to 10 s; 0 means none.
	Latency time.Duration
	// Slowdown is the goal of each application in a queue with a goal (GoalOf), MinSlowdown to MaxSlowdown; 0 means 1.
	Slowdown float64
	// Total is what each application has on all devices of all nodes together.
	Total Total
	// Deadline is the time by which each application should have ended.
	Deadline Deadline
	// Group is the name of a group. All applications that match the group's rules form one member,
	// which has the rules' Weight. The member is in GroupQueue, a queue with a weight; an empty
	// GroupQueue means the root.
	Group, GroupQueue string
	// Bandwidth makes the bandwidth that an application has allocated, in MB/s, its weight or its guaranteed rate.
	Bandwidth Bandwidth
}

// Queue is the weight of a queue among its siblings. A queue without its own weight is ignored: its
// applications count as members of the nearest queue above it that has a weight.
type Queue struct {
	Path   string
	Weight int // 1 to MaxWeight
	// Order is Shortest if the queue's applications are ordered by their remaining work; empty: they are not.
	// Slices are the parts of the queue's share by rank.
	Order  string
	Slices shortest.Slices
	// Goal is EqualSlowdown if the weights of the queue's applications move until these are slowed down in proportion;
	// empty: they do not move.
	Goal string
}

// Policy is a complete policy. Default is the weight of applications that no rule matches.
type Policy struct {
	Default int
	Rules   []Rule
	Queues  []Queue
	// Goal is the goal of applications in no queue, as in Queue. A policy with queues has none.
	Goal string
	// Mode is the strongest mode that nodes may have: ModeOff, ModeObserve or ModeEnforce; empty: ModeEnforce.
	Mode string
	// Set contains weights of single applications, by flow. They override the rules.
	Set map[string]int

	weights map[string]int             // of Queues, by path; nil before Validate
	orders  map[string]shortest.Slices // of the ordered Queues, by path; nil before Validate
	goals   map[string]bool            // paths of the Queues with a goal; nil before Validate
}

// Grant is what the policy gives to one application.
type Grant struct {
	Rule   int    // index of the rule; negative if no rule matched
	Weight int    // among the members of its queue
	Queue  string // the nearest queue with a weight; empty if there is none
	Limit  int64
	Tagged bool // the weight comes from a tag of the application
	Set    bool // the weight was set for this application
	// Group is the application's group. If it is set, Weight is 1, and GroupWeight is the weight of
	// the group.
	Group       string
	GroupWeight int
	Reserve     reserve.Rate
	Total       Total
	Deadline    Deadline
	Latency     time.Duration
	Size        int64 // stated by a tag, in bytes, in an ordered queue only; 0: none
}

// Validate checks a policy and returns all mistakes as joined *Errors. Queues must not change
// afterwards.
func (p *Policy) Validate() error {
	var mistakes []error
	add := func(at, field, format string, args ...any) {
		mistakes = append(mistakes, &Error{At: at, Field: field, What: fmt.Sprintf(format, args...)})
	}
	if p.Default < 1 || p.Default > MaxWeight {
		add("default", "", "weight %d: use 1 to %d", p.Default, MaxWeight)
	}
	if len(p.Rules) > MaxRules {
		add("rules", "", "%d rules: at most %d", len(p.Rules), MaxRules)
		return errors.Join(mistakes...)
	}
	if len(p.Queues) > MaxQueues {
		add("queues", "", "%d queues: at most %d", len(p.Queues), MaxQueues)
		return errors.Join(mistakes...)
	}
	p.validateMode(add)
	p.validateQueues(add)
	for i := range p.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		p.Rules[i].validate(func(field, format string, args ...any) { add(at, field, format, args...) })
	}
	p.validateGroups(add)
	p.validateOrders(add)
	p.validateGoals(add)
	if len(mistakes) > 0 {
		return errors.Join(mistakes...)
	}
	p.weights = make(map[string]int, len(p.Queues))
	for _, q := range p.Queues {
		p.weights[q.Path] = q.Weight
		if q.Order == Shortest {
			if p.orders == nil {
				p.orders = map[string]shortest.Slices{}
			}
			p.orders[q.Path] = q.Slices
		}
		if q.Goal != "" {
			if p.goals == nil {
				p.goals = map[string]bool{}
			}
			p.goals[q.Path] = true
		}
	}
	return nil
}

func (p *Policy) validateQueues(add func(at, field, format string, args ...any)) {
	seen := map[string]bool{}
	for i, q := range p.Queues {
		at := fmt.Sprintf("queues[%d]", i)
		switch levels := strings.Split(q.Path, "."); {
		case q.Path == "" || len(q.Path) > MaxPattern || slices.Contains(levels, ""):
			add(at, "queue", "queue %q: give its path, such as root.etl", clip(q.Path))
		case len(levels) > maxLevels:
			add(at, "queue", "queue %q: at most %d levels", q.Path, maxLevels)
		case seen[q.Path]:
			add(at, "queue", "queue %q is listed twice", q.Path)
		case strings.HasPrefix(q.Path, groupPrefix):
			add(at, "queue", "queue %q: names that begin with %q are reserved for groups", clip(q.Path), groupPrefix)
		}
		if q.Weight < 1 || q.Weight > MaxWeight {
			add(at, "weight", "weight %d of queue %q: use 1 to %d", q.Weight, clip(q.Path), MaxWeight)
		}
		seen[q.Path] = true
	}
}

// Error is a mistake in a policy. At is the entry, such as rules[3]. Field is the field of the
// entry, or empty if no single field is wrong.
type Error struct{ At, Field, What string }

func (e *Error) Error() string { return e.At + ": " + e.What }

func (r *Rule) validate(add func(field, format string, args ...any)) {
	for _, p := range r.patterns() {
		if len(p.pattern) > MaxPattern {
			add(p.field, "pattern %q...: at most %d bytes", clip(p.pattern), MaxPattern)
		} else if _, err := path.Match(p.pattern, ""); err != nil {
			add(p.field, "pattern %q: use * ? and [abc]", p.pattern)
		}
	}
	switch {
	case r.Weight < 1 || r.Weight > MaxWeight:
		add("weight", "weight %d: use 1 to %d", r.Weight, MaxWeight)
	case r.MaxWeight < 0 || r.MaxWeight > MaxWeight:
		add("max_weight", "max_weight %d: use 1 to %d", r.MaxWeight, MaxWeight)
	case r.MaxWeight > 0 && r.MaxWeight < r.Weight:
		add("max_weight", "max_weight %d is below the rule's weight %d", r.MaxWeight, r.Weight)
	}
	switch {
	case r.Limit != 0 && (r.Limit < MinLimit || r.Limit > limit.MaxRate):
		add("limit", "limit %d: use %d (64KiB) to %d bytes a second", r.Limit, MinLimit, int64(limit.MaxRate))
	default:
		if err := cmp.Or(r.Reserve.Validate(), r.Reserve.Within(r.Limit)); err != nil {
			add("reserve", "%v", err)
		}
	}
	if err := CheckLatency(r.Latency); err != nil {
		add("latency", "%v", err)
	}
	r.validateTotal(add)
	r.validateDeadline(add)
	r.validateGroup(add)
	r.validateBandwidth(add)
	r.validateSlowdown(add)
}

// fieldPattern is a pattern of a rule, with the name of its field.
type fieldPattern struct{ field, pattern string }

// patterns returns the patterns of a rule, empty ones included.
func (r *Rule) patterns() [6]fieldPattern {
	return [6]fieldPattern{{"flow", r.Flow}, {"queue", r.Queue}, {"user", r.User}, {"name", r.Name}, {"type", r.Type}, {"tag", r.Tag}}
}

func clip(s string) string { return s[:min(len(s), 40)] }

// Grant applies the first rule that matches.
func (p *Policy) Grant(f Facts) Grant {
	f.Tags = f.Tags[:min(len(f.Tags), MaxTags)]
	g := Grant{Rule: -1, Weight: p.Default, Queue: p.queueOf(f.Queue)}
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.matches(f) {
			continue
		}
		g.Rule, g.Weight, g.Limit, g.Reserve, g.Total, g.Latency, g.Deadline = i, r.Weight, r.Limit, r.Reserve, r.total(f), r.Latency, r.Deadline
		if w, ok := wish(f.Tags); ok && r.MaxWeight > 0 {
			g.Weight, g.Tagged = min(w, r.MaxWeight), true
		}
		if w, ok := r.bandwidthWeight(f); ok {
			g.Weight = w
		}
		break
	}
	if w, set := p.Set[f.Flow]; set { // the application is a member of its own queue, and not of a group
		g.Weight, g.Tagged, g.Set = w, false, true
	} else if g.Rule >= 0 && p.Rules[g.Rule].Group != "" {
		r := &p.Rules[g.Rule]
		g.Group, g.GroupWeight, g.Queue, g.Weight = r.Group, r.Weight, r.GroupQueue, 1
	}
	if _, ordered := p.OrderOf(g); ordered {
		g.Size = statedSize(f.Tags)
	}
	return g
}

func (r *Rule) matches(f Facts) bool {
	for _, m := range []struct{ pattern, value string }{
		{r.Flow, f.Flow}, {r.Queue, f.Queue}, {r.User, f.User}, {r.Name, f.Name}, {r.Type, f.Type},
	} {
		if m.pattern != "" && !match(m.pattern, m.value) {
			return false
		}
	}
	return r.Tag == "" || slices.ContainsFunc(f.Tags, func(tag string) bool { return match(r.Tag, tag) })
}

// match is path.Match, except that * also matches slashes, because names may contain them. In the
// worst case, the time grows with the product of the lengths of pattern and value. Submitters
// choose values of any length, so only the beginning of a value is matched with a pattern.
func match(pattern, value string) bool {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return pattern == value
	}
	value = value[:min(len(value), MaxValue)]
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(value, "/", "\x00"))
	return ok && err == nil
}

// wish returns the weight that an application's tags request. If several tags request weights, it
// returns the smallest.
func wish(tags []string) (int, bool) {
	least := 0
	for _, tag := range tags {
		text, found := strings.CutPrefix(tag, WeightTag)
		if !found {
			continue
		}
		if w, err := strconv.Atoi(text); err == nil && w >= 1 && (least == 0 || w < least) {
			least = w
		}
	}
	return least, least > 0
}

// queueOf returns the nearest queue with a weight: the queue itself or one above it.
func (p *Policy) queueOf(queue string) string {
	for ; queue != ""; queue = above(queue) {
		if _, listed := p.weightOf(queue); listed {
			return queue
		}
	}
	return ""
}

// above returns the parent of a queue.
func above(queue string) string { return queue[:max(strings.LastIndexByte(queue, '.'), 0)] }

// weightOf returns a queue's own weight.
func (p *Policy) weightOf(queue string) (weight int, listed bool) {
	if p.weights != nil {
		weight, listed = p.weights[queue]
		return weight, listed
	}
	i := slices.IndexFunc(p.Queues, func(q Queue) bool { return q.Path == queue })
	if i < 0 {
		return 0, false
	}
	return p.Queues[i].Weight, true
}

// Weights returns one weight for each application at work. Used in a policy without queues, these
// weights give every application the share that its queues give it. For an application in no queue,
// this is its own weight. For others, it is the application's part of its queue, times the queue's
// part of its parent, and so on, times the weight of the topmost queue.
func (p *Policy) Weights(atWork []Grant) []float64 {
	weightOf := map[string]float64{}
	for _, q := range p.Queues {
		weightOf[q.Path] = float64(q.Weight)
	}
	groupIn := map[string]string{} // the queue that contains a group, by the group's level
	parent := func(queue string) string {
		if in, group := groupIn[queue]; group {
			return in
		}
		for queue != "" {
			queue = above(queue)
			if _, listed := weightOf[queue]; listed {
				return queue
			}
		}
		return ""
	}
	// Sum of the weights of each queue's children at work. Children are queues and applications.
	children := map[string]float64{}
	counted := map[string]bool{}
	in := make([]string, len(atWork)) // the queue or group of each application
	for i, g := range atWork {
		in[i] = g.Queue
		if g.Group != "" {
			in[i] = GroupLevel(g.Group)
			weightOf[in[i]], groupIn[in[i]] = float64(g.GroupWeight), g.Queue
		}
		children[in[i]] += float64(g.Weight)
		for q := in[i]; q != "" && !counted[q]; q = parent(q) {
			counted[q] = true
			children[parent(q)] += weightOf[q]
		}
	}
	weights := make([]float64, len(atWork))
	for i, g := range atWork {
		w := float64(g.Weight)
		for q := in[i]; q != ""; q = parent(q) {
			w *= weightOf[q] / children[q]
		}
		weights[i] = w
	}
	return weights
}
