// Package sim plays a cluster on a virtual clock: the production scheduler, depth
// controller and coordination (core/) on every node, the broker's own account of totals,
// and models of what is around them: disks, applications, messages that are late or lost.
//
// What is asked of it is what no machine at hand can show: whether shares hold on 10,000
// nodes, how soon they do after a change, and what a broker's failure costs. So what
// decides is never modelled, only driven; and a run depends on its scenario and seed alone.
package sim

import (
	"math/rand/v2"
	"time"

	"penstock/core/coord"
)

// App is an application.
type App struct {
	Name   string
	Weight float64 // over the whole cluster
	kind   string  // of the scenario
	index  int
}

// Exchange is how nodes and broker talk.
type Exchange struct {
	Period   time.Duration // between a node's reports; 0: there is no broker
	DelayMin time.Duration // of a message, each way
	DelayMax time.Duration
	Loss     float64 // part of the messages that never arrive
}

// Cluster is a run under way.
type Cluster struct {
	Engine
	rand     *rand.Rand
	exchange Exchange
	apps     []*App
	nodes    []*node
	broker   broker
}

// broker is the production account behind messages.
type broker struct {
	totals *coord.Totals
	down   bool
}

type node struct {
	cluster  *Cluster
	devices  []*device
	member   coord.Member
	joined   bool
	gone     bool
	sequence uint64
	answered time.Duration
	named    []bool
	sums     []coord.Service // by application
	there    []bool          // a flow of the application is on the node
}

// stale is how many periods a node goes on by totals without an answer, as daemons do.
const stale = 5

func newCluster(seed uint64, exchange Exchange, apps []*App) *Cluster {
	c := &Cluster{rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), exchange: exchange, apps: apps}
	for i, a := range apps {
		a.index = i
	}
	c.broker.totals = coord.NewTotals(MaxNodes, MaxApplications, len(apps))
	return c
}

// addNode adds a node with one device.
func (c *Cluster) addNode(cfg DeviceConfig) error {
	d, err := newDevice(&c.Engine, cfg, len(c.apps))
	if err != nil {
		return err
	}
	n := &node{cluster: c, devices: []*device{d},
		named: make([]bool, len(c.apps)), sums: make([]coord.Service, len(c.apps)), there: make([]bool, len(c.apps))}
	c.nodes = append(c.nodes, n)
	if c.exchange.Period > 0 {
		c.After(time.Duration(c.rand.Int64N(int64(c.exchange.Period))), n.exchange)
	}
	return nil
}

// feed gives an application work on a node that does not end.
func (c *Cluster) feed(node, app int) {
	d := c.nodes[node].devices[0]
	f := d.add(c.apps[app])
	f.offset = c.rand.Int64N(1 << 40) // each file somewhere else on the disk
	f.work = -1
	d.feed(f)
}

// leave cuts a node off: it serves nobody, and the broker sees its stream end.
func (n *node) leave() {
	if n.gone {
		return
	}
	n.gone = true
	for _, d := range n.devices {
		d.stopped = true
	}
	if n.joined {
		if err := n.cluster.broker.totals.Leave(n.member); err != nil {
			panic(err)
		}
	}
	n.joined = false
}

// join starts the node again; it remembers nothing.
func (n *node) join() {
	if !n.gone {
		return
	}
	n.gone = false
	for _, d := range n.devices {
		d.stopped = false
		d.local()
		d.kick()
	}
}

func (c *Cluster) delay() time.Duration {
	spread := c.exchange.DelayMax - c.exchange.DelayMin
	if spread <= 0 {
		return c.exchange.DelayMin
	}
	return c.exchange.DelayMin + time.Duration(c.rand.Int64N(int64(spread)))
}

func (c *Cluster) lost() bool { return c.exchange.Loss > 0 && c.rand.Float64() < c.exchange.Loss }

// exchange is a node's turn: it reports, and the next turn is set.
func (n *node) exchange() {
	c := n.cluster
	c.After(c.exchange.Period, n.exchange)
	if n.gone {
		return
	}
	if n.answered > 0 && c.Now()-n.answered > stale*c.exchange.Period {
		n.answered = 0
		for _, d := range n.devices {
			d.local()
		}
	}
	n.sequence++
	clear(n.sums)
	clear(n.there)
	for _, d := range n.devices {
		for i, u := range d.report(n.sequence) {
			n.sums[u.App].Rate += d.out[i].Rate
			n.sums[u.App].Room += d.out[i].Room
			n.there[u.App] = true
		}
	}
	if c.lost() {
		return
	}
	sequence, sums, there := n.sequence, append([]coord.Service(nil), n.sums...), append([]bool(nil), n.there...)
	c.After(c.delay(), func() { n.arrive(sequence, sums, there) })
}

// arrive is the broker's turn.
func (n *node) arrive(sequence uint64, sums []coord.Service, there []bool) {
	c := n.cluster
	if c.broker.down || n.gone {
		return
	}
	t := c.broker.totals
	if !n.joined {
		m, err := t.Join()
		if err != nil {
			panic(err)
		}
		n.member, n.joined = m, true
		clear(n.named)
	}
	totals := make([]coord.Service, len(sums))
	for i := range sums {
		if !there[i] {
			continue
		}
		if !n.named[i] {
			if _, err := t.Name(n.member, i, c.apps[i].Name); err != nil {
				panic(err)
			}
			n.named[i] = true
		}
		if err := t.Report(n.member, i, sums[i]); err != nil {
			panic(err)
		}
	}
	for i := range sums {
		if there[i] {
			_, _, totals[i], _ = t.Entry(n.member, i)
		}
	}
	if c.lost() {
		return
	}
	c.After(c.delay(), func() {
		if n.gone {
			return
		}
		n.answered = c.Now()
		for _, d := range n.devices {
			d.answer(sequence, func(app int) (coord.Right, bool) {
				return coord.Right{Weight: c.apps[app].Weight, Total: totals[app]}, there[app]
			})
		}
	})
}
