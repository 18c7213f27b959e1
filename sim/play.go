package sim

import (
	"math"
	"time"

	"penstock/core/coord"
	"penstock/sim/optimum"
)

// play is a scenario under way.
type play struct {
	scenario *Scenario
	cluster  *Cluster
	on       [][]int // application -> nodes
	before   []time.Duration
	ideal    []float64 // parts, by application
	stale    bool      // ideal is that of what was before
	changed  []time.Duration
}

func newPlay(s *Scenario, seed uint64) (*play, error) {
	e := s.Exchange
	exchange := Exchange{Period: time.Duration(e.Period), DelayMin: time.Duration(e.DelayMin),
		DelayMax: time.Duration(max(e.DelayMin, e.DelayMax)), Loss: e.Loss}
	if e.Off {
		exchange.Period = 0
	}
	var apps []*App
	for _, a := range s.Applications {
		for i := range a.Count {
			apps = append(apps, &App{Name: a.nameOf(i), Weight: a.Weight, kind: a.Name})
		}
	}
	p := &play{scenario: s, cluster: newCluster(seed, exchange, apps)}
	for _, n := range s.Nodes {
		cfg, err := n.config()
		if err != nil {
			return nil, err
		}
		for range n.Count {
			if err := p.cluster.addNode(cfg); err != nil {
				return nil, err
			}
		}
	}
	p.place()
	for _, ev := range s.Events {
		p.cluster.At(time.Duration(ev.At), func() { p.happen(ev) })
		p.changed = append(p.changed, time.Duration(ev.At))
	}
	p.before = p.services()
	return p, nil
}

// place puts the applications on their nodes.
func (p *play) place() {
	c := p.cluster
	index := 0
	for _, a := range p.scenario.Applications {
		for range a.Count {
			var on []int
			switch {
			case a.On != nil:
				on = a.On
			case a.Spread > 0:
				for n := range c.nodes {
					if c.rand.Float64() < a.Spread {
						on = append(on, n)
					}
				}
				if len(on) == 0 {
					on = []int{c.rand.IntN(len(c.nodes))}
				}
			default:
				for n := range c.nodes {
					on = append(on, n)
				}
			}
			p.on = append(p.on, on)
			for _, n := range on {
				c.feed(n, index)
			}
			index++
		}
	}
}

func (p *play) happen(ev EventSpec) {
	c := p.cluster
	p.stale = true
	switch {
	case ev.Broker == "down":
		c.broker.down = true
	case ev.Broker == "up":
		c.broker.down = false
		c.broker.totals = coord.NewTotals(MaxNodes, MaxApplications, len(c.apps))
		for _, n := range c.nodes {
			n.joined = false
		}
	case ev.Leave != nil:
		c.nodes[*ev.Leave].leave()
	case ev.Join != nil:
		c.nodes[*ev.Join].join()
	default:
		for _, a := range c.apps {
			if a.kind == ev.Application {
				a.Weight = ev.Weight
			}
		}
		if c.exchange.Period == 0 {
			for _, n := range c.nodes {
				for _, d := range n.devices {
					d.local()
				}
			}
		}
	}
}

// judges tells whether a window that begins then counts.
func (p *play) judges(from time.Duration) bool {
	if from < time.Duration(p.scenario.Settle) {
		return false
	}
	window, recovery := time.Duration(p.scenario.Window), time.Duration(p.scenario.Expect.Recovery)
	for _, at := range p.changed {
		if from+window > at && from < at+recovery {
			return false
		}
	}
	return true
}

// services are the applications' on nodes that are there, in seconds so far.
func (p *play) services() []time.Duration {
	all := make([]time.Duration, len(p.cluster.apps))
	for _, n := range p.cluster.nodes {
		for _, d := range n.devices {
			for i, f := range d.flows {
				if f != nil {
					all[i] += f.service
				}
			}
		}
	}
	return all
}

// judge compares what was had since the last time with what the placement allows; parts of
// all service.
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

// know works the optimum out, if something has happened since.
func (p *play) know() (err error) {
	if p.ideal == nil || p.stale {
		p.ideal, err = p.best()
		p.stale = false
	}
	return err
}

// best is the optimum, in parts of all service.
func (p *play) best() ([]float64, error) {
	c := p.cluster
	capacity := make([]float64, len(c.nodes))
	for i, n := range c.nodes {
		if !n.gone {
			capacity[i] = 1
		}
	}
	seekers := make([]optimum.Seeker, len(c.apps))
	for i, a := range c.apps {
		seekers[i] = optimum.Seeker{Weight: a.Weight, Devices: p.on[i]}
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
		totals[i] /= sum
	}
	return totals, nil
}
