package sim

import (
	"math"
	"slices"
	"time"

	"penstock/lab/disk"
	"penstock/lab/sim/optimum"
)

// play is a scenario in progress.
type play struct {
	scenario *Scenario
	cluster  *Cluster
	on       [][]int            // application -> its places
	streams  [][]*stream        // application -> its endless streams; nil while it is off
	turn     []int              // by application: counts its ends and moves
	specs    []*ApplicationSpec // by application
	watched  []watched          // applications with expectations
	ops      []disk.Op          // by application
	before   []time.Duration
	ideal    []float64 // fractions of all service, by application
	stale    bool      // ideal is outdated
	changed  []change
}

// change is an event that changes the optimum, or prevents the cluster from reaching it.
type change struct {
	at   time.Duration
	what string
}

func newPlay(s *Scenario, seed uint64) (*play, error) {
	p := &play{scenario: s}
	var apps []*App
	for k, a := range s.Applications {
		for i := range a.Count {
			apps = append(apps, &App{Name: a.nameOf(i), Weight: a.Weight, kind: a.Name, guarantee: a.guarantee(k)})
			p.ops, p.specs = append(p.ops, a.op()), append(p.specs, &s.Applications[k])
		}
	}
	p.cluster = newCluster(seed, s.exchange(), apps)
	if err := p.cluster.populate(s); err != nil {
		return nil, err
	}
	p.streams, p.turn = make([][]*stream, len(apps)), make([]int, len(apps))
	p.place()
	for _, ev := range s.Events {
		p.cluster.At(time.Duration(ev.At), func() { p.happen(ev) })
		p.changed = append(p.changed, change{time.Duration(ev.At), ev.String()})
	}
	p.toggle()
	p.moves()
	slices.SortStableFunc(p.changed, func(a, b change) int { return int(a.at - b.at) })
	p.watchAll()
	p.before = p.services()
	return p, nil
}

// populate adds the scenario's machines.
func (c *Cluster) populate(s *Scenario) error {
	for _, n := range s.Nodes {
		cfg, err := n.config()
		if err != nil {
			return err
		}
		for range n.Count {
			if err := c.addHost(cfg, n.Datanodes, n.Scheduler == eachDatanode); err != nil {
				return err
			}
		}
	}
	return nil
}

// place draws the applications' places and starts the applications that are on from the beginning.
func (p *play) place() {
	c := p.cluster
	index := 0
	for _, a := range p.scenario.Applications {
		for range a.Count {
			p.on = append(p.on, c.draw(a.On, a.Spread))
			if a.Begin == 0 {
				p.start(index)
			}
			index++
		}
	}
}

// draw returns the list if there is one. Otherwise it returns a random fraction spread of all
// places or, if spread is 0, all places.
func (c *Cluster) draw(list []int, spread float64) []int {
	var on []int
	switch {
	case list != nil:
		return list
	case spread > 0:
		for n := range c.places {
			if c.rand.Float64() < spread {
				on = append(on, n)
			}
		}
		if len(on) == 0 {
			on = []int{c.rand.IntN(len(c.places))}
		}
	default:
		for n := range c.places {
			on = append(on, n)
		}
	}
	return on
}

func (p *play) start(app int) {
	p.stale = true
	p.streams[app] = make([]*stream, 0, len(p.on[app]))
	small := p.small(app)
	for i, at := range p.on[app] {
		if small != nil {
			p.streams[app] = append(p.streams[app], nil)
			p.readSmall(app, i, small)
			continue
		}
		p.streams[app] = append(p.streams[app], p.cluster.feed(at, app, p.ops[app], 0))
	}
}

func (p *play) stop(app int) {
	p.stale = true
	for _, s := range p.streams[app] {
		if s != nil {
			s.end()
		}
	}
	p.turn[app]++ // ends small reads
	p.streams[app] = nil
}

// toggle sets when applications go on and off.
func (p *play) toggle() {
	index := 0
	for _, a := range p.scenario.Applications {
		on, off := time.Duration(a.OnFor), time.Duration(a.OffFor)
		for i := range a.Count {
			app := index + i
			note := func(at time.Duration, what string, do func(int)) {
				p.cluster.At(at, func() { do(app) })
				p.changed = append(p.changed, change{at, a.nameOf(i) + what})
			}
			at := time.Duration(a.Begin)
			if at > 0 {
				note(at, " begins", p.start)
			}
			for on > 0 && at < time.Duration(p.scenario.Length) {
				note(at+on, " is off", p.stop)
				at += on + off
				note(at, " is on", p.start)
			}
		}
		index += a.Count
	}
}

func (p *play) happen(ev EventSpec) {
	c := p.cluster
	p.stale = true
	switch {
	case ev.Application != "":
		for _, a := range c.apps {
			if a.kind == ev.Application {
				a.Weight = ev.Weight
			}
		}
		for _, n := range c.nodes {
			if !n.inForce { // without totals the policy's weights are in force
				n.device.local()
			}
		}
	default:
		c.happen(ev)
	}
}

// happen performs an event that concerns nodes or the broker.
func (c *Cluster) happen(ev EventSpec) {
	switch {
	case ev.Broker == "down":
		c.stop()
	case ev.Broker == "up":
		c.stop()
		c.broker.start(c)
	case ev.Leave != nil:
		c.places[*ev.Leave].node.leave()
	case ev.Join != nil:
		c.places[*ev.Join].node.join()
	case ev.Slow != nil:
		for _, n := range ev.Slow {
			c.places[n].device.spindle.disk.SetSpeed(ev.Factor)
		}
	}
}

// judges reports whether the window that begins at from counts.
func (p *play) judges(from time.Duration) bool {
	if from < time.Duration(p.scenario.Settle) {
		return false
	}
	window, recovery := time.Duration(p.scenario.Window), time.Duration(p.scenario.Expect.Recovery)
	for _, ch := range p.changed {
		if from+window > ch.at && from < ch.at+recovery {
			return false
		}
	}
	return true
}

// services returns the applications' services so far.
func (p *play) services() []time.Duration {
	all := make([]time.Duration, len(p.cluster.apps))
	for i, a := range p.cluster.apps {
		all[i] = a.service
	}
	return all
}

// judge compares the applications' service since the last call with the optimum for their
// placement. had and due are fractions of all service.
func (p *play) judge() (misplaced float64, had, due []float64) {
	now := p.services()
	had = make([]float64, len(now))
	all := 0.0
	for i := range now {
		had[i] = (now[i] - p.before[i]).Seconds()
		all += had[i]
	}
	p.before = now
	if all == 0 {
		return 0, nil, nil
	}
	for i := range had {
		had[i] /= all
		misplaced += math.Abs(had[i]-p.ideal[i]) / 2
	}
	return misplaced, had, p.ideal
}

// know computes the optimum if something has changed since the last call.
func (p *play) know() (err error) {
	if p.ideal == nil || p.stale {
		p.ideal, err = p.best()
		p.stale = false
	}
	return err
}

// best returns the optimum, in fractions of all service. It divides physical disks, regardless of
// the number of datanodes that share a disk.
func (p *play) best() ([]float64, error) {
	c := p.cluster
	capacity := make([]float64, c.disks)
	for _, at := range c.places {
		if !at.node.gone {
			capacity[at.disk] = 1
		}
	}
	seekers := make([]optimum.Seeker, len(c.apps))
	for i, a := range c.apps {
		seekers[i].Weight = a.Weight
		if p.streams[i] == nil {
			continue
		}
		last := -1
		for _, n := range p.on[i] {
			if at := c.places[n]; !at.node.gone && at.disk != last {
				seekers[i].Devices = append(seekers[i].Devices, at.disk)
				last = at.disk
			}
		}
	}
	totals, err := optimum.Totals(seekers, capacity)
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for _, t := range totals {
		sum += t
	}
	for i := range totals {
		totals[i] /= max(sum, 1e-12)
	}
	return totals, nil
}
