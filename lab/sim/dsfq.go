package sim

import (
	"time"
)

// The rule of DSFQ (Wang and Merchant, 2007), which IBIS follows in section 5, as a peer of
// core/coord. Weights stay; what is moved are start tags: a request that comes at virtual time
// v after one with the finish tag F starts at
//
//	S = max(v, F + delay/weight)
//
// where delay is the cost of all requests of the flow that other nodes have served since the
// flow's previous request here. As in IBIS a node learns that from the broker, once a period:
// it reports what each application was served here in all, gets the sum over all nodes, and the
// next request bears the whole delay since the last answer. It has no cap.
//
// A device's charge is this rule where something of the flow is queued: then F is not below v,
// and all queued tags move by delay/weight. For a flow with an empty queue it would be
// max(v, F) + delay/weight, which is more. The rule is therefore played for applications that
// always have something to do where they are, and for no others.

// The values of ExchangeSpec.Rule.
const (
	ruleParts = "parts"
	ruleDSFQ  = "dsfq"
)

// uncapped is a bound on delays that no run reaches: the rule has none.
const uncapped = 24 * time.Hour

// delays is a node's side of it, by application.
type delays struct {
	served  []time.Duration // here
	told    []time.Duration // of it, to the broker's present life
	life    int             // of the broker
	foreign []time.Duration // served by other nodes and charged here
}

// tell reports what applications were served, and charges what they were served elsewhere.
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
				if delay := a.served - d.foreign[a.app]; delay > 0 { // a broker that is new does not know all yet
					n.device.charge(a.app, delay)
					d.foreign[a.app] = a.served
				}
			}
		})
	})
}

// amount is an application in a message of this rule.
type amount struct {
	app    int
	served time.Duration
}
