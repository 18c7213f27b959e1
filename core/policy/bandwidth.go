package policy

// Bandwidth as a resource (IBIS, section 6): an application requests MB/s from its cluster
// manager, beside CPU and memory, and is admitted only if they are available. A rule with
// Bandwidth turns the amount that is allocated into the application's weight. So admitted
// applications divide a device in the promised ratio, and unused service goes to the others:
// weights are work-conserving, rates are not.

// bandwidthWeight returns the weight for the bandwidth that an application has allocated. ok is
// false if the rule does not say so or nothing is allocated; the rule's weight counts then.
func (r *Rule) bandwidthWeight(f Facts) (weight int, ok bool) {
	if !r.Bandwidth || f.Bandwidth <= 0 {
		return 0, false
	}
	return int(min(f.Bandwidth, MaxWeight)), true
}

func (r *Rule) validateBandwidth(add func(field, format string, args ...any)) {
	if r.Bandwidth && r.MaxWeight > 0 {
		add("max_weight", "bandwidth and max_weight: the weight comes from the allocated bandwidth or from a tag, not from both")
	}
	if r.Bandwidth && r.Group != "" {
		add("group", "bandwidth and group: a group shares its rule's weight evenly")
	}
}
