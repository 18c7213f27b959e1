// Package sim plays a cluster on a virtual clock. Each node runs the production code (core/) of
// scheduler, depth controller and coordination, and the broker computes its totals with production
// code. Everything else is modelled: disks, applications, jobs with their tasks, and messages that
// are late or lost.
//
// The simulator answers questions that no available machine can answer: whether shares are right on
// 10,000 nodes, how soon they are right after a change, and what a broker's failure costs. The code
// that makes decisions is never modelled; it is the production code. A run depends only on its
// scenario and its seed.
package sim

import (
	"math/rand/v2"
	"time"

	"penstock/lab/disk"
)

// App is an application.
type App struct {
	Name    string
	Weight  float64 // over the whole cluster
	kind    string  // name of its entry in the scenario
	index   int
	service time.Duration // sum over all devices
	read    int64         // bytes, sum over all devices
	written int64
	ended   bool

	guarantee *guarantee // nil: the policy gives it a weight only
	reads     []smallRead
}

// Cluster is a run in progress.
type Cluster struct {
	Engine
	rand     *rand.Rand
	exchange Exchange
	apps     []*App
	nodes    []*node
	places   []place // by number in the scenario
	disks    int
	broker   broker
	// deadlines is the part of the broker for jobs with deadlines; nil: there are none.
	deadlines *deadlines
}

// place is a node or a virtual datanode: anything that has a number in a scenario.
type place struct {
	node   *node
	device *device
	disk   int // number of the physical disk
}

func newCluster(seed uint64, exchange Exchange, apps []*App) *Cluster {
	c := &Cluster{rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), exchange: exchange, apps: apps}
	for i, a := range apps {
		a.index = i
	}
	c.broker.start(c)
	return c
}

// addHost adds a physical machine with one disk and the given number of datanodes. If "each" is
// true, every datanode has its own node daemon, with a scheduler that does not know about the other
// schedulers. Otherwise, one node daemon serves all datanodes.
func (c *Cluster) addHost(cfg DeviceConfig, datanodes int, each bool) error {
	if c.exchange.Rule == ruleDSFQ {
		cfg.Debt = uncapped
	}
	s := newSpindle(&c.Engine, cfg.Model)
	var n *node
	for i := range datanodes {
		if i == 0 || each {
			d, err := newDevice(s, cfg, c.apps)
			if err != nil {
				return err
			}
			n = newNode(c, d)
			c.nodes = append(c.nodes, n)
		}
		c.places = append(c.places, place{node: n, device: n.device, disk: c.disks})
	}
	c.disks++
	return nil
}

// feed gives an application endless work at a place; window is as in stream.
func (c *Cluster) feed(at, app int, op disk.Op, window int) *stream {
	// Each file is at a different place on the disk.
	return c.places[at].device.begin(c.apps[app], op, c.rand.Int64N(1<<40), -1, window, 0, nil)
}
