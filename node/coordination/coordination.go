// Package coordination is a node's side of the broker: it reports what the node's devices
// serve, about once a second, and puts into force what the totals make of it (core/coord).
//
// The broker may be away at any time. Parts stay in force for a few periods without an
// answer, and then the node goes on by local shares, with the weights that the broker gave
// last, and says so. Nothing here is waited for by anything that governs I/O.
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

	"penstock/core/coord"
	"penstock/core/sfq"
	"penstock/wire/cluster"
)

const (
	// stale is how many periods parts stay in force without an answer. With several brokers it is
	// longer: with the usual session of three periods another one leads after up to four and a
	// half, and the node has to find it.
	stale        = 5
	staleSeveral = stale + 3
	// underWay is how many reports wait for an answer before no more are sent.
	underWay = 5
	// forget is how many reports in a row an application is not at any device before its
	// entry is freed, and how many after that its number is given to another: by then no
	// answer that means the first one is under way.
	forget = 30
	// unanswered is for how many periods, but at least the time beside it, a node with several
	// brokers waits for an answer before it tries another one.
	unanswered      = 2
	unansweredLeast = time.Second
	// asks is how often a node asks a broker that names one as the leader which has not
	// answered, before it tries that one again.
	asks = 4
	// fence is for how long after an answer none of a smaller epoch is taken. No leader that was
	// deposed lives that long; but a clock that epochs were taken of may have been wrong.
	fence = 10 * time.Minute
	// connectWait bounds the wait for a machine to take a connection, and shakeWait that for the
	// broker to authenticate it: when a broker starts, all nodes wait in turn, and one that gave
	// up early would only come again, at the end of the line. With several brokers there is
	// another to ask, and severalWait bounds both.
	connectWait = 3 * time.Second
	shakeWait   = 20 * time.Second
	severalWait = 2 * time.Second
)

// Use is a flow's account at a device; durations grow only.
type Use struct {
	Flow            string
	Service, Wanted time.Duration
}

// Device is one of the node's devices.
type Device interface {
	Name() string
	// Uses returns the accounts of all flows; false if the device does not answer.
	Uses() ([]Use, bool)
	// SetParts puts parts into force; without any, the rules' weights are. It must not block for long.
	SetParts(Parts)
}

// Parts replace weights, at every level of the queue tree, on their scale: among the members of
// one queue a member without a part keeps its own weight. Both nil: none are in force.
type Parts struct {
	Flows  map[string]float64 // of a flow, in its queue
	Queues map[string]float64 // of a queue, in its parent; by its path from the root, "/a/b"
}

// Right is what the policy gives an application.
type Right struct {
	Weight float64 // in the last of Queues
	Limit  int64   // bytes a second at one device; 0: none
	// Queues is the path from the root to where the application stands.
	Queues []sfq.Level
}

// Options of a Client.
type Options struct {
	Node string // its name

	Brokers []string // addresses, tried in turn; the one that leads answers
	// TLS is asked for at each connection, so that changed certificates are taken; nil: plain.
	TLS     func() (*tls.Config, error)
	Period  time.Duration
	Devices func() []Device
	// Rights receives what the policy gives the flows of this node, each time some of it is
	// new: all of it, also of flows that have had nothing to do for a while.
	Rights func(map[string]Right)
	Log    *slog.Logger
}

// State is a Client's, for status.
type State struct {
	Broker   string        // that the stream is with; empty: none
	Answered time.Time     // the last answer; zero: none yet
	Delay    time.Duration // of that answer
	InForce  bool          // the totals are; else the node goes by local shares
	Policy   uint64        // version
	Entries  int           // applications that are reported
	LeftOut  int           // that are not, for the bounds on entries and queues
	Mistake  string        // why there is no stream
	Epoch    uint64        // the largest of a leadership whose answer was taken
	Refused  uint64        // answers of smaller epochs, which were not taken
}

// Client keeps the stream.
type Client struct {
	Version string // of the program; set before Run
	Address string // at which other nodes' questions are answered, empty: none; set before Run

	o Options

	mu    sync.Mutex
	state State

	broker cluster.NodesClient // of the stream; nil: there is none

	reports uint64 // so far, over all streams
	apps    entries
	queues  entries
	devices map[string]*tracked
	looks   map[string]*look // under way, by the device's name
	rights  rights

	complaints map[string]complaint // by broker
}

// tracked is a device and what it had done at the report before.
type tracked struct {
	device Device
	coord  coord.Device
	before map[string]Use
	at     time.Time
	parts  bool // some have been set
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
	return &Client{o: o, apps: newEntries(cluster.MaxEntries, cluster.MaxName), queues: newEntries(cluster.MaxQueues, cluster.MaxQueue), devices: map[string]*tracked{}, looks: map[string]*look{},
		complaints: map[string]complaint{}, rights: newRights(cluster.MaxEntries)}, nil
}

// State returns the client's state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Run exchanges until ctx ends.
func (c *Client) Run(ctx context.Context) {
	defer c.localShares()
	retry := Retry{Period: c.o.Period}
	if len(c.o.Brokers) > 1 {
		retry.Most = min(retryMost, max(c.o.Period, retryLeast)) // one of them may lead by now
	}
	var gone string // a broker that did not answer
	trust := 0      // attempts without going back to it
	again := false  // this broker is asked a second time, as it may well lead still
	for i := 0; ; {
		broker := c.o.Brokers[i]
		began := time.Now()
		err := c.stream(ctx, broker)
		if ctx.Err() != nil {
			return
		}
		// Who leads is taken from a broker, but only among those that this node has learnt of. A
		// broker may name one that is gone until the others know it: then it is asked again.
		var refusal notLeading
		refused := errors.As(err, &refusal)
		named := slices.Index(c.o.Brokers, refusal.leader)
		answered := c.State().Answered.After(began)
		if answered && time.Since(began) > stale*c.o.Period {
			again = false
		}
		switch {
		case !refused && answered && !again && !errors.Is(err, errSilent) && !errors.Is(err, errEpoch):
			again = true // it was cut, or the broker did not like this stream
		case refused && named >= 0 && refusal.leader == gone && trust > 0:
			trust--
		case refused && named >= 0 && refusal.leader != broker:
			i, again = named, false
		case refused && named == i && !again:
			again = true // once: another one may know better
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
			clear(c.complaints) // the next outage is news
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

// complain logs why there is no stream: when that is new, but not more than once in ten seconds, as
// a broker that is not there is asked twice a period and some reasons have the time in them; and
// the same once a minute.
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

// complaint is what was logged of a broker last.
type complaint struct {
	text string
	at   time.Time
}

// expire goes back to local shares when no answer has come for some periods.
func (c *Client) expire() {
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

// localShares puts the policy's weights into force as they are, in their queues.
func (c *Client) localShares() {
	for _, t := range c.devices {
		if t.parts {
			t.coord = coord.Device{}
			t.device.SetParts(Parts{})
		}
	}
}
