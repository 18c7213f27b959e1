package sim

import (
	"strings"
	"time"

	"penstock/core/arbiter"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/lab/disk"
)

const (
	// forget is the number of reports in a row without use after which a node frees an application's entry
	// (node/coordination).
	forget = 30
	// mostSmallRead is the largest size of ApplicationSpec.Size: larger reads do not count for a latency goal.
	mostSmallRead = 128 << 10
	// mostReads bounds the small reads of a run whose times are kept.
	mostReads = 20_000_000
)

// plainRule is the rule of an application without guarantees. Its weight is set as a part.
var plainRule = arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}

// guarantee is what a policy grants an application in addition to a weight.
type guarantee struct {
	rule  arbiter.Rule
	total policy.Total
	order int // the place of the entry
	// deadline is set for a job whose total reserve follows from its deadline, after its submission.
	deadline time.Duration
}

// smallRead is one small read: when it ended, and how long it took.
type smallRead struct{ at, took time.Duration }

func (a *ApplicationSpec) guarantee(order int) *guarantee {
	g := &guarantee{rule: plainRule, total: policy.Total{Reserve: int64(a.TotalReserve), Limit: int64(a.TotalLimit)}, order: order}
	g.rule.Limit, g.rule.Reserve, g.rule.Order, g.rule.Latency = int64(a.Limit), reserve.Rate(a.Reserve), order, time.Duration(a.Latency)
	if g.rule == (arbiter.Rule{Weight: 1, Mode: arbiter.Enforce, Order: order}) && g.total == (policy.Total{}) {
		return nil
	}
	return g
}

// validateGuarantees checks the fields of an application that are those of a policy's rule, and the others of this file.
func (a *ApplicationSpec) validateGuarantees(at int, check func(bool, string, ...any)) {
	r := policy.Rule{Weight: 1, Limit: int64(a.Limit), Reserve: reserve.Rate(a.Reserve), Total: policy.Total{Reserve: int64(a.TotalReserve), Limit: int64(a.TotalLimit)}, Latency: time.Duration(a.Latency)}
	err := (&policy.Policy{Default: 1, Rules: []policy.Rule{r}}).Validate()
	if err != nil {
		check(false, "applications[%d]: %s", at, strings.ReplaceAll(err.Error(), "rules[0]: ", ""))
	}
	check(a.Move == 0 || time.Duration(a.Move) >= time.Second && (a.On != nil || a.Spread > 0), "applications[%d]: move: use at least 1s, with on or spread", at)
	check(a.Move == 0 || a.OnFor == 0 && a.Begin == 0, "applications[%d]: move: remove begin, on_for and off_for", at)
	check(a.Size >= 0 && a.Size <= mostSmallRead, "applications[%d]: size %d: use 1 to %d bytes", at, a.Size, mostSmallRead)
	check(a.Size == 0 || a.IO != "write", "applications[%d]: size is for reads only: remove io", at)
	check(a.Pause == 0 || a.Size > 0 && time.Duration(a.Pause) >= time.Millisecond, "applications[%d]: pause: use at least 1ms, with size", at)
}

// guarantee prepares a device for the applications' guarantees.
func (d *device) guarantee(apps []*App) {
	for _, a := range apps {
		if a.guarantee == nil {
			continue
		}
		if d.named == nil {
			d.named = map[string]*App{}
		}
		d.named[a.Name] = a
		if a.guarantee.rated() && d.totals == nil {
			d.totals, d.meters = make([]policy.Total, len(apps)), make([]coord.RateMeter, len(apps))
		}
	}
}

// rule returns the rule of a flow, with the device's parts of total rates.
func (d *device) rule(flow string) arbiter.Rule {
	a := d.named[flow]
	if a == nil {
		return plainRule
	}
	if d.totals == nil {
		return a.guarantee.rule
	}
	return a.guarantee.rule.WithTotal(d.totals[a.index].Reserve, d.totals[a.index].Limit)
}

// measure notes the demands of one period for bytes, if there are total rates.
func (d *device) measure(length time.Duration) {
	if d.meters == nil || length <= 0 {
		return
	}
	snap := d.arbiter.Snapshot(d.clock())
	d.room = snap.Guaranteeable
	for i := range snap.Flows {
		s := &snap.Flows[i]
		a := d.named[s.Name]
		if a == nil || d.flows[a.index] == nil {
			continue
		}
		f, bytes := d.flows[a.index], s.Bytes[0]+s.Bytes[1]
		for k := range d.uses {
			if u := &d.uses[k]; u.App == a.index {
				d.meters[a.index].Note(max(0, bytes-f.bytes), u.Wanted, max(0, s.LimitWaits-f.limitWaits), length)
			}
		}
		f.bytes, f.limitWaits = bytes, s.LimitWaits
	}
}

// addDemands adds the demands to a report.
func (d *device) addDemands(report []entry) {
	for i := range report {
		if e := &report[i]; d.meters != nil {
			d.meters[e.app].AddTo(&e.service)
		}
	}
}

// setTotal puts a part of total rates into force, and reports whether it has changed.
func (d *device) setTotal(app int, part policy.Total) bool {
	if d.totals[app] == part {
		return false
	}
	d.totals[app] = part
	return true
}

// takeTotals takes the parts of total rates from an answer.
func (n *node) takeTotals(answer []entry) {
	if n.device.totals == nil {
		return
	}
	if n.given == nil {
		n.given = make([]policy.Total, len(n.cluster.apps))
	}
	for _, e := range answer {
		n.given[e.app] = e.total
	}
	n.applyTotals()
}

// applyTotals puts the parts of total rates into force, as far as they last without the broker. A node has one device, so its
// parts are the device's.
func (n *node) applyTotals() {
	d, changed := n.device, false
	for app, part := range n.given {
		part.Reserve = coord.ReserveWithoutBroker(part.Reserve, n.cluster.Now()-n.answered)
		changed = d.setTotal(app, part) || changed
	}
	if changed {
		d.arbiter.Apply(d.clock(), arbiter.Enforce, d.rule)
		d.wake(d.engine.Now())
	}
}

// forgetUnseen frees the entries of applications with guarantees that have not used the node for a while, as a daemon does.
func (n *node) forgetUnseen() {
	for _, a := range n.cluster.apps {
		if a.guarantee == nil {
			continue
		}
		if f := n.device.flows[a.index]; f != nil && f.open == 0 && f.unseen > forget {
			n.end(a.index)
		}
	}
}

// forgetRates begins the divisions of total rates of a broker that has started.
func (b *broker) forgetRates(c *Cluster) {
	b.rates = nil
	for _, n := range c.nodes {
		n.parts, n.room = nil, 0
	}
	for i, a := range c.apps {
		if a.guarantee == nil || !a.guarantee.rated() {
			continue
		}
		if b.rates == nil {
			b.rates = make([]*coord.TotalRate, len(c.apps))
		}
		b.rates[i] = &coord.TotalRate{Since: -1}
	}
	if life := b.life; b.rates != nil && c.exchange.Period > 0 {
		c.After(0, func() { c.divideRates(life) })
	}
}

// divideRates divides the total rates, as the broker does whenever it computes rights.
func (c *Cluster) divideRates(life int) {
	b := &c.broker
	if b.down || b.life != life {
		return
	}
	c.After(reordering, func() { c.divideRates(life) })
	room := make([]int64, len(c.nodes))
	for i, n := range c.nodes {
		if room[i] = n.room; n.room == 0 || !b.begun.Complete(c.now, 0) {
			room[i] = coord.UnknownRoom
		}
	}
	c.deadlines.judge()
	var rates []*coord.TotalRate
	for i, t := range b.rates {
		if t == nil {
			continue
		}
		a := c.apps[i]
		if a.guarantee.total == (policy.Total{}) { // its deadline gives it no rate at present
			c.forgetRate(i)
			continue
		}
		t.Set(a.guarantee.total, a.guarantee.order)
		t.Clear()
		for k, n := range c.nodes {
			if !n.joined || !n.named[i] {
				if n.parts != nil {
					n.parts[i] = nil
				}
				continue
			}
			if t.Since < 0 {
				t.Since = c.now
			}
			t.Place(n.partOf(i), k, b.totals.Reported(n.member, i))
		}
		moved, _ := b.totals.Of(a.Name)
		t.Live(c.now, coord.LifeUnknown, moved)
		t.Note(c.now, moved.Bytes, moved.Hungry > 0)
		t.DivideLimit()
		rates = append(rates, t)
	}
	for i, free := range coord.DivideReserves(rates, room) {
		c.nodes[i].free = free
	}
	c.deadlines.observe()
}

// forgetRate forgets the division of an application's total rates.
func (c *Cluster) forgetRate(app int) {
	*c.broker.rates[app] = coord.TotalRate{Since: -1}
	for _, n := range c.nodes {
		if n.parts != nil {
			n.parts[app] = nil
		}
	}
}

// partOf returns the broker's record of the node's part of an application's total rates.
func (n *node) partOf(app int) *coord.RatePart {
	if n.parts == nil {
		n.parts = make([]*coord.RatePart, len(n.cluster.apps))
	}
	if n.parts[app] == nil {
		n.parts[app] = &coord.RatePart{}
	}
	return n.parts[app]
}

// takePart returns the node's parts of an application's total rates, from the broker's next answer on.
func (n *node) takePart(app int) policy.Total {
	rates := n.cluster.broker.rates
	if rates == nil || rates[app] == nil || rates[app].Total == (policy.Total{}) {
		return policy.Total{}
	}
	isNew := n.parts == nil || n.parts[app] == nil
	p := n.partOf(app)
	if isNew {
		rates[app].Join(p)
	}
	return rates[app].Take(p, n.cluster.broker.totals.Reported(n.member, app), &n.free)
}

// small returns the entry of an application that makes small reads, or nil.
func (p *play) small(app int) *ApplicationSpec {
	if s := p.specs[app]; s.Size > 0 {
		return s
	}
	return nil
}

// readSmall makes one small read of an application at its i-th place, and continues after its pause until the
// application ends there.
func (p *play) readSmall(app, i int, spec *ApplicationSpec) {
	c, turn := p.cluster, p.turn[app]
	a, d := c.apps[app], c.places[p.on[app][i]].device
	var next func()
	next = func() {
		if turn != p.turn[app] {
			return
		}
		began := c.Now()
		d.begin(a, disk.Read, c.rand.Int64N(1<<40), int64(spec.Size), 0, 0, func() {
			if len(a.reads) < mostReads/len(c.apps) {
				a.reads = append(a.reads, smallRead{c.Now(), c.Now() - began})
			}
			c.After(time.Duration(spec.Pause), next)
		})
	}
	c.After(time.Duration(c.rand.Int64N(int64(spec.Pause))), next)
}

// moves sets when tasks move to other nodes.
func (p *play) moves() {
	for app, spec := range p.specs {
		for at := time.Duration(spec.Move); at > 0 && at < time.Duration(p.scenario.Length); at += time.Duration(spec.Move) {
			p.cluster.At(at, func() { p.move(app) })
			p.changed = append(p.changed, change{at, p.cluster.apps[app].Name + " moves"})
		}
	}
}

func (p *play) move(app int) {
	c, spec, before := p.cluster, p.specs[app], p.on[app]
	p.stop(app)
	if spec.On == nil {
		p.on[app] = c.draw(nil, spec.Spread)
	} else {
		p.on[app] = nil
		for _, n := range before {
			p.on[app] = append(p.on[app], (n+len(before))%len(c.places))
		}
	}
	p.start(app)
}
