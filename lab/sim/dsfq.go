package sim

import (
	"time"
)

// This file contains the rule of DSFQ (Wang and Merchant, 2007), which IBIS follows in section 5,
// for comparison with core/coord. This rule does not change weights; it delays start tags. Let a
// request arrive at virtual time v, and let F be the finish tag of the flow's previous request.
// Then the request's start tag is
//
//	S = max(v, F + delay/weight)
//
// where delay is the cost of all requests of the flow that other nodes have served since the flow's
// previous request here. As in IBIS, a node learns the delay from the broker, once per period. The
// node reports its total service of each application and receives the sum over all nodes. The next
// request gets the whole delay since the last answer. The delay has no upper bound.
//
// device.charge implements this rule if requests of the flow are queued: then F is not below v, and
// all queued tags move by delay/weight. For a flow with an empty queue, charge would give max(v, F)
// + delay/weight, which is more than the rule's value. The rule is therefore simulated only for
// applications that always have requests queued on each of their nodes.

// The values of ExchangeSpec.Rule.
const (
	ruleParts = "parts"
	ruleDSFQ  = "dsfq"
)

// uncapped is a bound on delays that no run reaches, because the rule has no bound.
const uncapped = 24 * time.Hour

// delays is a node's state for the rule, by application.
type delays struct {
	served  []time.Duration // service here
	told    []time.Duration // reported to the broker since its last start
	life    int             // the broker's life that told belongs to
	foreign []time.Duration // service by other nodes that has been charged here
}

// tell reports the applications' service on this node, and charges them for their service on other
// nodes.
func (n *node) tell(life int) {
	c, d := n.cluster, &n.delays
	if d.served == nil {
		all := make([]time.Duration, 3*len(c.apps))
		d.served, d.told, d.foreign = all[:len(c.apps)], all[len(c.apps):2*len(c.apps)], all[2*len(c.apps):]
	}
	n.device.close()
	report := make([]amount, 0, len(n.device.uses))
	for _, u := range n.device.uses {
		d.served[u.App] += u.Served
		report = append(report, amount{u.App, d.served[u.App]})
	}
	if c.lost() {
		return
	}
	broker := c.broker.life
	c.After(c.delay(), func() {
		if life != n.life || broker != c.broker.life || c.broker.down {
			return
		}
		if d.life != broker {
			d.life = broker
			clear(d.told)
		}
		answer := make([]amount, len(report))
		for i, a := range report {
			c.broker.served[a.app] += a.served - d.told[a.app]
			d.told[a.app] = a.served
			answer[i] = amount{a.app, c.broker.served[a.app] - a.served}
		}
		if c.lost() {
			return
		}
		c.After(c.delay(), func() {
			if life != n.life {
				return
			}
			for _, a := range answer {
				if delay := a.served - d.foreign[a.app]; delay > 0 { // a new broker does not know the complete service at first
					n.device.charge(a.app, delay)
					d.foreign[a.app] = a.served
				}
			}
		})
	})
}

// amount is an application's service, in a message between node and broker.
type amount struct {
	app    int
	served time.Duration
}
