// Package coordination is a node's side of the broker. About once a second it reports the service
// of the node's devices. It then puts into force the parts that core/coord computes from the
// broker's totals.
//
// The broker may be unreachable at any time. Parts stay in force for a few periods without an
// answer. Then the node uses local shares, with the weights that the broker sent last, and logs
// this. I/O never waits for anything in this package.
package coordination

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"penstock/core/arbiter"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/core/sfq"
	"penstock/wire/cluster"
)

const (
	// stale is how many periods parts stay in force without an answer. With several brokers they
	// stay longer: with the usual session of three periods, a new broker leads after at most four
	// and a half periods, and the node has to find it.
	stale        = 5
	staleSeveral = stale + 3
	// underWay is the maximum number of reports without an answer; then no more are sent.
	underWay = 5
	// forget is the number of reports in a row without an application after which its entry is
	// freed. The entry's number is reused after as many further reports: by then, no answer can
	// arrive that uses the number for the old entry.
	forget = 30
	// unanswered is the number of periods (but at least unansweredLeast) for which a node with
	// several brokers waits for an answer before it tries another one.
	unanswered      = 2
	unansweredLeast = time.Second
	// asks is how many times a node asks a broker that names an unresponsive leader, before it
	// tries that leader again.
	asks = 4
	// fence is the time after an answer during which answers of smaller epochs are refused. No
	// deposed leader lives longer. After that time a smaller epoch is accepted, because the clock
	// that gave the larger epoch may have been wrong.
	fence = 10 * time.Minute
	// connectWait limits the wait for a machine to accept a connection, and shakeWait the wait for
	// the broker to authenticate the connection. When a broker starts, all nodes wait for their
	// turn, and a node that gave up early would only come back at the end of the queue. With
	// several brokers, severalWait limits both waits, because the node can ask another broker.
	connectWait = 3 * time.Second
	shakeWait   = 20 * time.Second
	severalWait = 2 * time.Second
)

// Use is a flow's account at a device; durations never decrease.
type Use struct {
	Flow            string
	Service, Wanted time.Duration
	Bytes           int64 // read from and written to the device
	LimitWaits      int64 // requests that waited for the flow's limit
	// Streams and Waited are sums over streams of the time for which they were open, and for which they waited. Contended
	// is the time for which the flow had a request and the device served others.
	Streams, Waited, Contended time.Duration
}

// Device is one of the node's devices.
type Device interface {
	Name() string
	// Uses returns the accounts of all flows, and the rate that the device can guarantee in all, in bytes per second (0: not
	// known). ok is false if the device does not answer.
	Uses() (uses []Use, capacity int64, ok bool)
	// SetParts puts parts into force; without parts, the rules' weights apply. It must not block
	// for long.
	SetParts(Parts)
	// SetTotals puts the device's parts of the applications' total rates into force, in place of the earlier
	// ones. It must not block for long.
	SetTotals(map[string]policy.Total)
}

// Parts replace weights at every level of the queue tree. They are on the same scale as weights: a
// member of a queue that has no part keeps its own weight, and competes with the others' parts. If
// both maps are nil, no parts are in force.
type Parts struct {
	Flows  map[string]float64 // by flow: its part in its queue
	Queues map[string]float64 // by a queue's path from the root, such as "/a/b": its part in its parent
}

// Right holds what the policy grants an application.
type Right struct {
	Weight float64 // in the last of Queues
	Limit  int64   // bytes per second at one device; 0: none
	// Reserve is the guaranteed rate at one device.
	Reserve reserve.Rate
	// Total holds the node's parts of the application's total rates. Client divides them among the devices.
	Total policy.Total
	// Latency is the goal of the p99 of small reads; 0: none.
	Latency time.Duration
	// Order is the place of the application's rule in the policy.
	Order int
	// Queues is the path from the root to the application's queue.
	Queues []sfq.Level
}

// Options of a Client.
type Options struct {
	Node string // name of the node

	Brokers []string // addresses, tried in turn; the leader answers
	// TLS is called for each connection, so that changed certificates are used; nil: unencrypted.
	TLS     func() (*tls.Config, error)
	Period  time.Duration
	Devices func() []Device
	// Rights receives the policy's grants for the flows of this node, whenever some of them
	// change. It receives all of them, including those of flows that have been idle for a while.
	Rights func(map[string]Right)
	// Bound receives the strongest mode that the node may have, when it changes; nil: not wanted. A bound stays when
	// no broker answers.
	Bound func(arbiter.Mode)
	// Mode returns the mode in force at the node, for the broker; nil: not known.
	Mode func() arbiter.Mode
	// LimitLease is how long limits of the policy stay in force without an answer from a broker; 0: without end.
	LimitLease time.Duration
	Log        *slog.Logger
}

// State is the state of a Client, for the status.
type State struct {
	Broker   string        // of the stream; empty: none
	Answered time.Time     // the last answer; zero: none yet
	Delay    time.Duration // from the report to that answer
	InForce  bool          // the totals are in force; otherwise local shares
	Policy   uint64        // version
	Entries  int           // applications that are reported
	LeftOut  int           // applications that are not reported, because of the bounds on entries and queues
	Mistake  string        // why there is no stream
	Epoch    uint64        // the largest epoch of an accepted answer
	Refused  uint64        // answers of smaller epochs, which were refused
	Canary   bool          // the policy is a canary's
	Bound    arbiter.Mode  // the strongest mode that the node may have
	Lapsed   bool          // the policy's limits have ended, because no broker has answered for LimitLease
}

// Client maintains the stream to the broker.
type Client struct {
	Version string // of the program; set before Run
	Address string // address that answers other nodes' questions, empty: none; set before Run

	o Options

	mu    sync.Mutex
	state State

	broker cluster.NodesClient // of the stream; nil: none

	reports uint64 // so far, over all streams
	apps    entries
	queues  entries
	devices map[string]*tracked
	looks   map[string]*look // in progress, by the device's name
	rights  rights
	totals  map[string]struct{} // applications with total rates

	complaints map[string]complaint // by broker
}

// tracked is a device and its accounts at the last report.
type tracked struct {
	device   Device
	capacity int64 // bytes per second that the device can guarantee; 0: not known
	coord    coord.Device
	before   map[string]Use
	at       time.Time
	parts    bool                       // some parts are in force
	demands  map[string]coord.RateMeter // by application
	totals   map[string]policy.Total    // parts of total rates that are in force, by application
}

// New returns a client; Run starts it.
func New(o Options) (*Client, error) {
	if o.Node == "" || len(o.Node) > cluster.MaxName {
		return nil, fmt.Errorf("the node's name has 1 to %d bytes", cluster.MaxName)
	}
	if len(o.Brokers) == 0 {
		return nil, errors.New("give at least one broker's address")
	}
	if o.Period < 100*time.Millisecond || o.Period > 30*time.Second {
		return nil, fmt.Errorf("period %v: use 100ms to 30s", o.Period)
	}
	return &Client{o: o, state: State{Bound: arbiter.Enforce}, apps: newEntries(cluster.MaxEntries, cluster.MaxName), queues: newEntries(cluster.MaxQueues, cluster.MaxQueue), devices: map[string]*tracked{}, looks: map[string]*look{},
		totals: map[string]struct{}{}, complaints: map[string]complaint{}, rights: newRights(cluster.MaxEntries)}, nil
}

// State returns the client's state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Run exchanges reports and answers until ctx ends.
func (c *Client) Run(ctx context.Context) {
	defer c.localShares()
	retry := Retry{Period: c.o.Period}
	if len(c.o.Brokers) > 1 {
		retry.Most = min(retryMost, max(c.o.Period, retryLeast)) // another broker may lead by now
	}
	var gone string // a broker that did not answer
	trust := 0      // remaining attempts before that broker is tried again
	again := false  // ask this broker a second time, since it may still be the leader
	for i := 0; ; {
		broker := c.o.Brokers[i]
		began := time.Now()
		err := c.stream(ctx, broker)
		if ctx.Err() != nil {
			return
		}
		// A broker may name the leader, but only the addresses in this node's settings count.
		// Brokers may name a leader that is gone, until they notice that it is; the node then asks
		// again.
		var refusal notLeading
		refused := errors.As(err, &refusal)
		named := slices.Index(c.o.Brokers, refusal.leader)
		answered := c.State().Answered.After(began)
		if answered && time.Since(began) > stale*c.o.Period {
			again = false
		}
		switch {
		case !refused && answered && !again && !errors.Is(err, errSilent) && !errors.Is(err, errEpoch):
			again = true // the connection was cut, or the broker refused this stream
		case refused && named >= 0 && refusal.leader == gone && trust > 0:
			trust--
		case refused && named >= 0 && refusal.leader != broker:
			i, again = named, false
		case refused && named == i && !again:
			again = true // once: another broker may know the leader
		default:
			again = false
			if !refused {
				gone, trust = broker, asks
			}
			i = (i + 1) % len(c.o.Brokers)
		}
		c.mu.Lock()
		c.state.Broker, c.state.Mistake = "", err.Error()
		c.mu.Unlock()
		if answered {
			clear(c.complaints) // the next outage is logged again
		}
		c.complain(broker, err)
		if lasted := time.Since(began); lasted > stale*c.o.Period || lasted > c.o.Period && answered {
			retry.Reset()
		}
		c.expire()
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry.After(len(c.o.Brokers) > 1 || !errors.Is(err, errNotReached))):
		}
		c.expire()
	}
}

// complain logs why there is no stream. It logs a new reason at most once in ten seconds, since a
// broker that is down is asked twice per period and some reasons contain the time. It logs the
// same reason once a minute.
func (c *Client) complain(broker string, err error) {
	since := time.Minute
	said, before := c.complaints[broker]
	if said.text != err.Error() {
		since = 10 * time.Second
	}
	if before && time.Since(said.at) < since {
		return
	}
	c.complaints[broker] = complaint{err.Error(), time.Now()}
	c.o.Log.Warn("no stream to the broker", "broker", broker, "error", err)
}

// complaint is the last logged reason for a broker.
type complaint struct {
	text string
	at   time.Time
}

// expire returns to local shares if no answer has arrived for some periods.
func (c *Client) expire() {
	c.endLimits()
	c.divideTotals()
	c.mu.Lock()
	periods := time.Duration(stale)
	if len(c.o.Brokers) > 1 {
		periods = staleSeveral
	}
	old := c.state.InForce && time.Since(c.state.Answered) > periods*c.o.Period
	if old {
		c.state.InForce = false
	}
	c.mu.Unlock()
	if old {
		c.o.Log.Warn("no answer from a broker: local shares are in force", "since", c.State().Answered)
		c.localShares()
	}
}

// localShares puts the policy's weights into force unchanged, in their queues.
func (c *Client) localShares() {
	for _, t := range c.devices {
		if t.parts {
			t.coord = coord.Device{}
			t.device.SetParts(Parts{})
		}
	}
}
