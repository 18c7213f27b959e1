package sim

import (
	"strconv"
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
)

// Exchange describes the communication between nodes and broker.
type Exchange struct {
	Period   time.Duration // between a node's reports; 0: there is no broker
	DelayMin time.Duration // delay of a message in one direction
	DelayMax time.Duration
	Loss     float64 // fraction of the messages that never arrive
	// Rule is how nodes use totals: ruleParts or ruleDSFQ.
	Rule string
	// Session is the length of a leading broker's session. A standby broker takes over when the
	// session has expired. 0: there is no standby.
	Session time.Duration
}

// Constants of daemons and brokers (node/coordination, broker).
const (
	stale      = 5               // periods without an answer after which parts expire
	several    = 8               // the same if there is a standby broker
	settling   = 2 * time.Second // least time from a broker's start until its totals are complete
	succession = 5 * time.Second // the same for a standby broker that takes over
	retryMin   = 100 * time.Millisecond
	retryMost  = 3 * time.Second
)

// broker is a broker with the production code's totals. Messages to it are modelled.
type broker struct {
	totals *coord.Totals
	begun  coord.Startup
	served []time.Duration // by application, with ruleDSFQ
	life   int             // counts starts: messages to an earlier life are lost
	down   bool
	rates  []*coord.TotalRate // by application; nil if no application has total rates
}

func (b *broker) start(c *Cluster) {
	b.totals = coord.NewTotals(MaxNodes, MaxApplications, max(1, len(c.apps)))
	b.served = make([]time.Duration, len(c.apps))
	b.begun.Least, b.down = settling, false
	if c.exchange.Session > 0 {
		b.begun.Least = succession
	}
	b.begun.Reset(c.now)
	b.life++
	b.forgetRates(c)
}

// settled reports whether the broker's totals are regarded as complete.
func (c *Cluster) settled() bool {
	return c.broker.begun.Complete(c.now, c.exchange.Period)
}

// stop ends the broker. Every node sees the end of its stream. A standby takes over when the
// session expires; the broker's last renewal was up to a third of the session ago.
func (c *Cluster) stop() {
	if c.broker.down {
		return
	}
	c.broker.down = true
	for _, n := range c.nodes {
		n.cut()
	}
	if s := c.exchange.Session; s > 0 {
		life := c.broker.life
		c.After(s-time.Duration(c.rand.Int64N(int64(s)/3+1)), func() {
			if c.broker.down && c.broker.life == life {
				c.broker.start(c)
			}
		})
	}
}

// node is a node daemon.
type node struct {
	cluster *Cluster
	device  *device
	name    string
	gone    bool

	streaming bool // the node believes that it has a stream
	life      int  // counts streams: messages of an earlier stream are lost
	member    coord.Member
	joined    bool  // the broker has accepted the stream
	room      int64 // that the broker knows of the node's disk
	free      int64 // of room, what no total rate has
	first     bool  // the next report is the stream's first
	sequence  uint64
	inForce   bool
	answered  time.Duration
	wait      time.Duration     // time before the next attempt to open a stream
	named     []bool            // applications named in the stream; nil before the first stream
	delays    delays            // with ruleDSFQ
	parts     []*coord.RatePart // the broker's, by application; nil if no application has total rates
	given     []policy.Total    // the parts of total rates in the last answer, by application
}

// entry is an application in a message: its service on a node in a report, its total in an answer.
type entry struct {
	app     int
	service coord.Service
	total   policy.Total // the node's parts, in an answer
}

func newNode(c *Cluster, d *device) *node {
	n := &node{cluster: c, device: d, name: strconv.Itoa(len(c.nodes)), wait: retryMin}
	if c.exchange.Period > 0 {
		c.After(time.Duration(c.rand.Int64N(int64(c.exchange.Period))), n.connect)
	}
	return n
}

// leave disconnects a node: the node serves no application, and the broker sees the end of its
// stream.
func (n *node) leave() {
	if n.gone {
		return
	}
	n.gone, n.device.stopped = true, true
	n.cut()
	n.life++ // stops attempts to connect
}

// join starts the node again, without any memory.
func (n *node) join() {
	if !n.gone {
		return
	}
	n.gone, n.inForce, n.wait, n.device.stopped = false, false, retryMin, false
	n.device.local()
	n.device.turn()
	if n.cluster.exchange.Period > 0 {
		n.connect()
	}
}

// cut ends the node's stream, if it has one.
func (n *node) cut() {
	n.parts = nil
	if n.joined && !n.cluster.broker.down {
		if err := n.cluster.broker.totals.Leave(n.member); err != nil {
			panic(err)
		}
	}
	n.joined = false
	if n.streaming {
		n.streaming = false
		n.retry()
	}
}

func (n *node) retry() {
	n.life++
	life := n.life
	c := n.cluster
	c.After(n.wait/2+time.Duration(c.rand.Int64N(int64(n.wait))), func() {
		if life == n.life && !n.gone {
			n.connect()
		}
	})
	n.wait = min(max(c.exchange.Period/2, retryMin), retryMost) // if there is no broker; otherwise the first answer resets the wait
}

// connect opens a stream, if the broker is running.
func (n *node) connect() {
	n.expire()
	if n.cluster.broker.down {
		n.retry()
		return
	}
	n.life++
	n.streaming, n.first, n.sequence = true, true, 0
	if n.named == nil {
		n.named = make([]bool, len(n.cluster.apps))
	}
	clear(n.named)
	n.device.coord.Forget()
	n.turn(n.life)
}

// expire returns to local shares when no answer has arrived for some periods.
func (n *node) expire() {
	c, periods := n.cluster, time.Duration(stale)
	if c.exchange.Session > 0 {
		periods = several
	}
	if n.inForce && c.Now()-n.answered > periods*c.exchange.Period {
		n.inForce = false
		n.device.local()
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

// turn is called once per period: the node reports, and the next call is scheduled.
func (n *node) turn(life int) {
	if life != n.life {
		return
	}
	c := n.cluster
	c.After(c.exchange.Period, func() { n.turn(life) })
	if c.exchange.Rule == ruleDSFQ {
		n.tell(life)
		return
	}
	n.expire()
	n.forgetUnseen()
	n.sequence++
	var report []entry
	if n.first { // service before the stream is not reported
		n.first = false
		n.device.close()
		for _, u := range n.device.uses {
			if u.Served > 0 || u.Wanted > 0 {
				report = append(report, entry{app: u.App})
			}
		}
	} else {
		uses, out := n.device.report(n.sequence)
		report = make([]entry, 0, len(uses))
		for i, u := range uses {
			report = append(report, entry{app: u.App, service: out[i]})
		}
		n.device.addDemands(report)
	}
	room := n.device.room
	n.applyTotals()
	if c.lost() {
		return
	}
	sequence, broker := n.sequence, c.broker.life
	c.After(c.delay(), func() {
		if life == n.life && broker == c.broker.life && !c.broker.down {
			n.room = room
			n.arrive(life, sequence, report)
		}
	})
}

// arrive is called when a report arrives at the broker. The broker answers it.
func (n *node) arrive(life int, sequence uint64, report []entry) {
	c := n.cluster
	t := c.broker.totals
	if !n.joined {
		m, err := t.Join()
		if err != nil {
			panic(err)
		}
		n.member, n.joined = m, true
		c.broker.begun.Join(n.name, c.now, c.exchange.Period)
	}
	for _, e := range report {
		if c.apps[e.app].ended || n.device.flows[e.app] == nil { // the node has forgotten it since
			continue
		}
		if !n.named[e.app] {
			if _, err := t.Name(n.member, e.app, c.apps[e.app].Name); err != nil {
				panic(err)
			}
			n.named[e.app] = true
		}
		if err := t.Report(n.member, e.app, e.service); err != nil {
			panic(err)
		}
	}
	for i := range report {
		_, _, report[i].service, _ = t.Entry(n.member, report[i].app)
		report[i].total = n.takePart(report[i].app)
	}
	if c.lost() {
		return
	}
	settled := c.settled()
	c.After(c.delay(), func() {
		if life == n.life {
			n.take(sequence, settled, report)
		}
	})
}

// take is called when the answer arrives at the node.
func (n *node) take(sequence uint64, settled bool, totals []entry) {
	c := n.cluster
	n.answered, n.wait = c.Now(), retryMin
	n.takeTotals(totals)
	if !settled {
		return // the previous parts may still be in force
	}
	at := 0
	if n.device.answer(sequence, func(app int) (coord.Right, bool) {
		for at < len(totals) && totals[at].app < app { // both are ordered by application
			at++
		}
		if at == len(totals) || totals[at].app != app {
			return coord.Right{}, false
		}
		return coord.Right{Weight: c.apps[app].Weight, Total: totals[at].service}, true
	}) {
		n.inForce = true
	}
}

// end frees the entry of an application that has ended on this node.
func (n *node) end(app int) {
	if n.joined && n.named[app] {
		if _, err := n.cluster.broker.totals.Name(n.member, app, ""); err != nil {
			panic(err)
		}
		n.named[app] = false
		if n.parts != nil {
			n.parts[app] = nil
		}
	}
	n.device.forget(app)
}
