package policy

import "slices"

// The modes of a policy, as in the settings of a node, from the weakest to the strongest.
const (
	ModeOff     = "off"
	ModeObserve = "observe"
	ModeEnforce = "enforce"
)

func (p *Policy) validateMode(add func(at, field, format string, args ...any)) {
	if p.Mode != "" && !slices.Contains([]string{ModeOff, ModeObserve, ModeEnforce}, p.Mode) {
		add("mode", "", "mode %q: use off, observe or enforce", clip(p.Mode))
	}
}

// CatchAll reports whether a rule limits applications without selecting any: all its patterns match every
// application of the cluster.
func (r *Rule) CatchAll() bool {
	if r.Limit == 0 && r.Total.Limit == 0 {
		return false
	}
	for _, p := range r.patterns() {
		if !matchesEverything(p) {
			return false
		}
	}
	return true
}

// matchesEverything reports whether a pattern matches all applications. Those of YARN have names that begin with
// "application_" and queues below "root".
func matchesEverything(p fieldPattern) bool {
	switch p.pattern {
	case "application_*":
		return p.field == "flow"
	case "root*", "root.*":
		return p.field == "queue"
	}
	for _, c := range p.pattern {
		if c != '*' {
			return false
		}
	}
	return true
}

// ClusterWide returns the field of a policy that the broker computes for the whole cluster at once, so that a part of
// the nodes cannot have another value of it; empty: there is none.
func (p *Policy) ClusterWide() string {
	if p.Goal != "" {
		return "goal"
	}
	for _, q := range p.Queues {
		switch {
		case q.Order != "":
			return "order"
		case q.Goal != "":
			return "goal"
		}
	}
	for i := range p.Rules {
		switch r := &p.Rules[i]; {
		case r.Total.Reserve != 0:
			return "total_reserve"
		case r.Total.Limit != 0:
			return "total_limit"
		case r.Deadline != (Deadline{}):
			return "deadline"
		case r.Bandwidth == BandwidthReserve:
			return "bandwidth: reserve"
		}
	}
	return ""
}
