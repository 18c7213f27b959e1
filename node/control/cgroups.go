package control

import (
	"errors"

	"penstock/core/ladder"
	"penstock/node/control/cgroup"
)

// This file keeps limits and weights of cgroups as the policy asks.

// held is a cgroup on a device.
type held struct {
	path   string
	device cgroup.Device
}

// applyCgroups sets the limits and weights of cgroups that the policy asks for, and lifts the others.
func (c *Control) applyCgroups(holds []*decision) {
	if c.cgroups == nil {
		return
	}
	wanted := map[held]bool{}
	for _, d := range holds {
		if d.taken == ladder.CgroupV1 || d.taken == ladder.CgroupV2 {
			wanted[held{d.process.Cgroup, d.place.Device}] = true
		}
	}
	// Lift lifts the limits of a cgroup on all devices. The limits that the policy asks for are set again
	// below.
	var errs []error
	for k, g := range c.groups {
		if !wanted[k] {
			if err := c.cgroups.Lift(c.journal, g); err != nil {
				errs = append(errs, err)
				continue // the next Apply tries again
			}
			delete(c.groups, k)
		}
	}
	for _, d := range holds {
		if d.taken == ladder.CgroupV1 || d.taken == ladder.CgroupV2 {
			if err := c.holdCgroup(d); err != nil {
				d.Error = err.Error()
			} else {
				d.Holds = true
			}
		}
	}
	errs = append(errs, c.cgroups.Sweep(c.journal))
	c.note(errors.Join(errs...))
}

// holdCgroup sets a cgroup's limits and weight on a device. What is in force already is not changed.
func (c *Control) holdCgroup(d *decision) error {
	p, k := d.process, held{d.process.Cgroup, d.place.Device}
	g, err := c.cgroups.At(p.Cgroup)
	if err != nil {
		delete(c.groups, k)
		return err
	}
	c.groups[k] = g
	// The kernel has a limit for reads and one for writes, but none for both together.
	limits := cgroup.Limits{ReadBytes: p.Limit, WriteBytes: p.Limit}
	if err := c.cgroups.Limit(c.journal, g, k.device, limits, "the policy limits "+p.Flow); err != nil {
		return err
	}
	if p.Weight > 0 && c.cgroups.CanWeigh(k.device) == nil {
		return c.cgroups.Weight(c.journal, g, k.device, min(p.Weight, cgroup.WeightMaxBFQ), "the policy weighs "+p.Flow)
	}
	return nil
}
