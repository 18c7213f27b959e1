package control

import (
	"errors"
	"fmt"

	"penstock/core/ladder"
	"penstock/node/control/pacing"
	"penstock/node/control/shaper"
)

// This file keeps the rates of connections as the policy asks, by pacing or by shaping.

// applyConnections paces or shapes the connections that the policy limits, and lifts the other rates.
func (c *Control) applyConnections(w Want) {
	paced, shaped := map[pacing.Socket]bool{}, map[shaper.Connection]bool{}
	for _, n := range w.Connections {
		h := Hold{Flow: n.Flow, Where: fmt.Sprintf("%v to %v", n.Local, n.Remote), Limit: n.Limit}
		h.Steps = ladder.Choose(ladder.Hold{Connection: true, Limit: n.Limit, Arbiter: n.Arbiter}, c.machine)
		taken, ok := ladder.Taken(h.Steps)
		if ok && w.Enforce {
			why, err := "the policy limits connections of "+n.Flow, error(nil)
			if taken == ladder.Pacing {
				paced[n.Socket] = true
				err = c.pacer.Set(n.Socket, uint64(n.Limit), why)
			} else {
				var at shaper.Connection
				if at, err = c.shaper.Find(n.Local, n.Remote); err == nil {
					shaped[at] = true
					err = c.shaper.Set(at, uint64(n.Limit), why)
				}
			}
			if h.Holds = err == nil; err != nil {
				h.Error = err.Error()
			}
		}
		c.status.Holds = append(c.status.Holds, h)
	}
	var errs []error
	if c.pacer != nil {
		for s := range c.pacer.Rates() {
			if !paced[s] {
				errs = append(errs, c.pacer.Lift(s))
			}
		}
		errs = append(errs, c.pacer.Sweep())
	}
	if c.shaper != nil {
		for at := range c.shaper.Rates() {
			if !shaped[at] {
				errs = append(errs, c.shaper.Lift(at))
			}
		}
	}
	c.note(errors.Join(errs...))
}
