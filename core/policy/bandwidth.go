package policy

import "errors"

// Bandwidth as a resource (IBIS, section 6): an application asks its cluster manager for
// MB/s beside CPU and memory and is admitted by it as by those. A rule with Bandwidth makes
// what is held its weight, so that those admitted divide a device as they were promised,
// and what nobody uses is still everybody's: weights idle no device, as rates would.

// held is the weight that a rule gives for what an application holds. Who holds nothing
// has the rule's weight.
func (r *Rule) held(f Facts) (weight int, ok bool) {
	if !r.Bandwidth || f.Bandwidth <= 0 {
		return 0, false
	}
	return int(min(f.Bandwidth, MaxWeight)), true
}

func (r *Rule) validateBandwidth() error {
	if r.Bandwidth && r.MaxWeight > 0 {
		return errors.New("bandwidth and max_weight: either what an application holds is its weight, or what it asks for by a tag")
	}
	if r.Bandwidth && r.Group != "" {
		return errors.New("bandwidth and group: a group shares its rule's weight evenly")
	}
	return nil
}
