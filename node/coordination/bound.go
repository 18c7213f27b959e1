package coordination

import (
	"time"

	"penstock/core/arbiter"
	"penstock/wire/cluster"
)

// modes are the daemon's modes by their names in the protocol.
var modes = map[cluster.Mode]arbiter.Mode{
	cluster.Mode_MODE_OFF: arbiter.Off, cluster.Mode_MODE_OBSERVE: arbiter.Observe, cluster.Mode_MODE_ENFORCE: arbiter.Enforce,
}

func wireMode(m arbiter.Mode) cluster.Mode {
	for wire, mode := range modes {
		if mode == m {
			return wire
		}
	}
	return cluster.Mode_MODE_UNKNOWN
}

// bound puts the strongest mode that the node may have into force. A mode that this release does not know bounds nothing.
func (c *Client) bound(m cluster.Mode) {
	most, known := modes[m]
	if !known {
		most = arbiter.Enforce
	}
	c.mu.Lock()
	same := c.state.Bound == most
	c.state.Bound = most
	c.mu.Unlock()
	if !same && c.o.Bound != nil {
		c.o.Bound(most)
	}
}

// endLimits ends the policy's limits if no broker has answered for the lease. Otherwise a limit that was a mistake would
// hold applications back until somebody has changed each node. Weights stay: they hold nobody back on an idle device.
func (c *Client) endLimits() {
	answered := c.State().Answered
	if c.rights.lapsed || c.o.LimitLease <= 0 || answered.IsZero() || time.Since(answered) < c.o.LimitLease {
		return
	}
	c.setLapsed(true)
	c.o.Log.Warn("no answer from a broker for the lease of limits: the policy's limits are no longer in force", "since", answered, "limit_lease", c.o.LimitLease)
	c.o.Rights(c.rights.all())
}

// renewLimits puts limits into force again after an answer. It reports whether they had ended.
func (c *Client) renewLimits() bool {
	if !c.rights.lapsed {
		return false
	}
	c.setLapsed(false)
	c.o.Log.Info("a broker answers again: the policy's limits are in force")
	return true
}

func (c *Client) setLapsed(lapsed bool) {
	c.rights.lapsed = lapsed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Lapsed = lapsed
}

// withoutLimits returns the right without what holds applications back on a device that is otherwise idle.
func (r Right) withoutLimits() Right {
	r.Limit, r.Total.Limit, r.Reserve.Strict = 0, 0, false
	return r
}
