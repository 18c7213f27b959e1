package policy

// Bandwidth is a resource (IBIS, section 6). An application requests MB/s from its cluster manager,
// like CPU and memory, and is admitted only if they are available in the cluster. A rule with
// Bandwidth uses the allocated amount as the application's weight. So admitted applications divide
// a device in the promised ratio, and unused service goes to the others: weights are
// work-conserving, rates are not.

// bandwidthWeight returns the weight for an application's allocated bandwidth. If the rule does not
// use bandwidth or none is allocated, ok is false and the rule's weight applies.
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
