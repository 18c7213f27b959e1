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
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

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
	// retryLeast and retryMost bound the wait between attempts to get a stream; with several
	// brokers it is a period at most.
	retryLeast = 100 * time.Millisecond
	retryMost  = 3 * time.Second
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
	// SetParts puts parts into force; nil takes them back. It must not block for long.
	SetParts(map[string]float64)
}

// Right is what the policy gives an application.
type Right struct {
	Weight float64
	Limit  int64 // bytes a second at one device; 0: none
	// Queues is the way from the root to where the application stands while local shares are
	// in force, and Own what it weighs there; 0: the broker does not say, and Weight holds.
	Queues []sfq.Level
	Own    int
}

// Options of a Client.
type Options struct {
	Node string // its name

	Brokers []string // addresses, tried in turn; the one that leads answers
	// TLS is asked for at each connection, so that changed certificates are taken; nil: plain.
	TLS     func() (*tls.Config, error)
	Period  time.Duration
	Devices func() []Device
	// Rights is told what the policy gives the flows of this node, each time some of it is
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
	LeftOut  int           // that are not, for the bound on entries
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

	reports  uint64 // so far, over all streams
	entries  map[string]*entry
	byNumber []*entry
	freed    []freed // oldest first
	devices  map[string]*tracked
	looks    map[string]*look // under way, by the device's name
	rights   rights
}

// freed is a number that nobody has, since a report.
type freed struct {
	number uint32
	since  uint64
}

// entry is an application of this node.
type entry struct {
	name   string
	number uint32
	unseen int // reports in a row without it
	// What the broker knows of it, on this stream.
	named bool
	sent  coord.Service
	total coord.Service // as it has said
	sum   coord.Service
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
	return &Client{o: o, entries: map[string]*entry{}, devices: map[string]*tracked{}, looks: map[string]*look{},
		rights: newRights(cluster.MaxEntries)}, nil
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
	wait := retryLeast
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
		most := retryMost
		if len(c.o.Brokers) > 1 {
			most = min(most, max(c.o.Period, retryLeast)) // one of them may lead by now
		}
		// Who leads is taken from a broker, but only among those that this node was told of. A
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
		c.o.Log.Warn("no stream to the broker", "broker", broker, "error", err)
		if lasted := time.Since(began); lasted > stale*c.o.Period || lasted > c.o.Period && answered {
			wait = retryLeast
		}
		c.expire()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, most)
		c.expire()
	}
}

// Dial returns a connection to a broker, which is made when it is first used; secure is nil
// for a plain one.
func Dial(broker string, secure *tls.Config, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	return grpc.NewClient(broker, append([]grpc.DialOption{grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cluster.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectWait + shakeWait}),
		grpc.WithContextDialer(Connect),
		grpc.WithStaticStreamWindowSize(cluster.Window), grpc.WithStaticConnWindowSize(2 * cluster.Window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second})}, more...)...)
}

// Connect makes the connection below a Dial.
func Connect(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: connectWait}).DialContext(ctx, "tcp", address)
}

// notLeading is the refusal of a broker that does not lead.
type notLeading struct {
	error
	leader string // as it knows; may be empty
}

// open opens a stream. While the broker is still to be reached, what is in force may come
// to its end.
func (c *Client) open(ctx context.Context, nodes cluster.NodesClient) (s cluster.Nodes_ExchangeClient, err error) {
	opened := make(chan struct{})
	go func() {
		s, err = nodes.Exchange(ctx)
		close(opened)
	}()
	ticker := time.NewTicker(c.o.Period)
	defer ticker.Stop()
	for {
		select {
		case <-opened:
			return s, err
		case <-ticker.C:
			c.expire()
		}
	}
}

// stream is one stream with one broker, to its end.
func (c *Client) stream(ctx context.Context, broker string) (err error) {
	var secure *tls.Config
	if c.o.TLS != nil {
		if secure, err = c.o.TLS(); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	var more []grpc.DialOption
	if len(c.o.Brokers) > 1 {
		more = append(more, grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: severalWait}))
	}
	conn, err := Dial(broker, secure, more...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := cluster.NewNodesClient(conn)
	s, err := c.open(ctx, nodes)
	if err != nil {
		return err
	}
	c.setBroker(nodes)
	defer c.setBroker(nil)
	defer func() {
		// Only a stream that the broker ended has a trailer.
		if code := status.Code(err); code == codes.FailedPrecondition || code == codes.Unavailable {
			if named := s.Trailer().Get(cluster.LeaderKey); len(named) == 1 {
				err = notLeading{err, named[0]}
			}
		}
	}()
	for _, e := range c.entries { // a new stream knows nothing
		e.named, e.sent, e.total = false, coord.Service{}, coord.Service{}
	}
	for _, t := range c.devices { // what was done without a stream is nobody's business now
		t.coord.Forget()
		t.at = time.Time{}
	}
	answers, failed := make(chan *cluster.Answer, 1), make(chan error, 1)
	go func() {
		for {
			a, err := s.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case answers <- a:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticker := time.NewTicker(c.o.Period)
	defer ticker.Stop()
	var sequence, answered uint64
	heard := time.Now()
	sent := map[uint64]time.Time{}
	heed := func(a *cluster.Answer) error {
		if a.GetSequence() <= answered || a.GetSequence() > sequence {
			return fmt.Errorf("answer %d after %d of %d reports", a.GetSequence(), answered, sequence)
		}
		if err := c.follow(a.GetEpoch()); err != nil {
			return err
		}
		inForce, err := c.take(a)
		if err != nil {
			return err
		}
		answered, heard = a.GetSequence(), time.Now()
		c.mu.Lock()
		c.state.Broker, c.state.Mistake = broker, ""
		c.state.Answered = time.Now()
		c.state.Delay = time.Since(sent[answered])
		c.state.Policy = a.GetPolicy()
		c.state.InForce = inForce
		c.mu.Unlock()
		for n := range sent {
			if n <= answered {
				delete(sent, n)
			}
		}
		return nil
	}
	for {
		if sequence-answered < underWay { // else the broker is slow: it has enough to do
			sequence++
			r := c.report(sequence)
			if sequence == 1 {
				r.Node = &cluster.Node{Name: c.o.Node, Version: c.Version, PeriodMs: uint32(c.o.Period.Milliseconds()), Address: c.Address, Hosts: hosts()}
			}
			sent[sequence] = time.Now()
			if err := s.Send(r); err != nil {
				select {
				case err = <-failed: // it says more
				case <-time.After(time.Second):
				}
				return err
			}
		}
		// What came meanwhile is no silence.
		for waiting := true; waiting; {
			select {
			case a := <-answers:
				if err := heed(a); err != nil {
					return err
				}
			default:
				waiting = false
			}
		}
		c.expire()
		if silence := time.Since(heard); len(c.o.Brokers) > 1 && silence > max(unanswered*c.o.Period, unansweredLeast) {
			return fmt.Errorf("%w for %v", errSilent, silence.Round(time.Millisecond))
		}
	wait:
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-failed:
				return err
			case a := <-answers:
				if err := heed(a); err != nil {
					return err
				}
			case <-ticker.C:
				break wait
			}
		}
	}
}

// report says what the node's devices have done since the last one.
func (c *Client) report(sequence uint64) *cluster.Report {
	r := &cluster.Report{Sequence: sequence}
	for _, e := range c.entries {
		e.sum = coord.Service{}
		e.unseen++
	}
	c.reports++
	leftOut := 0
	there := map[string]bool{}
	devices := c.o.Devices()
	for _, l := range c.look(devices) {
		leftOut = max(leftOut, c.reportDevice(sequence, l))
	}
	for _, d := range devices {
		there[d.Name()] = true
	}
	for name := range c.devices {
		if !there[name] {
			delete(c.devices, name)
		}
	}
	for name := range c.looks {
		if !there[name] {
			delete(c.looks, name)
		}
	}
	for _, e := range slices.SortedFunc(valuesOf(c.entries), func(a, b *entry) int { return int(a.number) - int(b.number) }) {
		switch {
		case e.unseen > forget:
			if e.named {
				r.Names = append(r.Names, &cluster.Name{Entry: e.number})
			}
			delete(c.entries, e.name)
			c.rights.used(e.name)
			c.byNumber[e.number] = nil
			c.freed = append(c.freed, freed{e.number, c.reports})
			for _, t := range c.devices {
				t.coord.Drop(int(e.number))
			}
			continue
		case !e.named:
			r.Names = append(r.Names, &cluster.Name{Entry: e.number, Application: e.name})
			e.named = true
		}
		if e.sum != e.sent {
			r.Entries = append(r.Entries, e.number)
			r.Rates = append(r.Rates, uint64(e.sum.Rate))
			r.Rooms = append(r.Rooms, uint64(e.sum.Room))
			e.sent = e.sum
		}
	}
	c.mu.Lock()
	c.state.Entries, c.state.LeftOut = len(c.entries), leftOut
	r.Policy = c.state.Policy
	c.mu.Unlock()
	return r
}

// look is a question to a device for its accounts.
type look struct {
	device Device
	done   chan struct{}
	// Once it is done:
	uses []Use
	ok   bool
	at   time.Time
}

// look asks all devices at once, and gives the answers that are there within half a period. Who
// has not answered by then is not waited for again, nor asked anew, until he has: a disk that
// hangs must not keep the others' reports, nor the broker's answers.
func (c *Client) look(devices []Device) (answered []*look) {
	late := time.NewTimer(c.o.Period / 2)
	defer late.Stop()
	var all, awaited []*look
	for _, d := range devices {
		l := c.looks[d.Name()]
		if l == nil || l.device != d {
			l = &look{device: d, done: make(chan struct{})}
			c.looks[d.Name()] = l
			go func() {
				defer close(l.done)
				l.uses, l.ok = d.Uses()
				l.at = time.Now()
			}()
			awaited = append(awaited, l)
		}
		all = append(all, l)
	}
wait:
	for _, l := range awaited {
		select {
		case <-l.done:
		case <-late.C:
			break wait
		}
	}
	for _, l := range all {
		select {
		case <-l.done:
			delete(c.looks, l.device.Name())
			if l.ok {
				answered = append(answered, l)
			}
		default:
		}
	}
	return answered
}

func valuesOf(m map[string]*entry) func(func(*entry) bool) {
	return func(yield func(*entry) bool) {
		for _, e := range m {
			if !yield(e) {
				return
			}
		}
	}
}

// reportDevice adds one device's services to the entries'. The first look at a device, and
// the first of a stream, only says where its accounts stand.
func (c *Client) reportDevice(sequence uint64, l *look) (leftOut int) {
	d, uses, now := l.device, l.uses, l.at
	t := c.devices[d.Name()]
	if t == nil || t.device != d {
		t = &tracked{device: d}
		c.devices[d.Name()] = t
	}
	first, length := t.at.IsZero(), now.Sub(t.at)
	before := t.before
	t.at, t.before = now, make(map[string]Use, len(uses))
	for _, u := range uses {
		t.before[u.Flow] = u
	}
	if first || length <= 0 {
		return 0
	}
	var done []coord.Use
	var entries []*entry
	for _, u := range uses {
		// A flow that was forgotten and is back has begun anew.
		if was := before[u.Flow]; was.Service <= u.Service && was.Wanted <= u.Wanted {
			u.Service, u.Wanted = u.Service-was.Service, u.Wanted-was.Wanted
		}
		e := c.entries[u.Flow]
		if u.Service > 0 || u.Wanted > 0 {
			if e == nil {
				e = c.enter(u.Flow)
			}
			if e == nil {
				leftOut++
				continue
			}
			e.unseen = 0
		}
		if e != nil {
			done = append(done, coord.Use{App: int(e.number), Served: u.Service, Wanted: u.Wanted})
			entries = append(entries, e)
		}
	}
	for i, s := range t.coord.Report(sequence, length, done) {
		entries[i].sum.Rate += s.Rate
		entries[i].sum.Room += s.Room
	}
	return leftOut
}

// enter makes a flow's entry; nil where the bound is reached or its name is too long.
func (c *Client) enter(flow string) *entry {
	if flow == "" || len(flow) > cluster.MaxName {
		return nil
	}
	e := &entry{name: flow}
	switch {
	case len(c.freed) > 0 && c.reports-c.freed[0].since > forget:
		e.number = c.freed[0].number
		c.freed = c.freed[1:]
		c.byNumber[e.number] = e
	case len(c.byNumber) < cluster.MaxEntries:
		e.number = uint32(len(c.byNumber))
		c.byNumber = append(c.byNumber, e)
	default:
		return nil
	}
	c.entries[flow] = e
	return e
}

// errEpoch: another broker has led since.
var errEpoch = errors.New("an answer of a leadership that is over")

// errSilent: the broker has not answered for too long.
var errSilent = errors.New("no answer")

// follow holds an answer's epoch against the largest seen. A broker that answers though
// another one leads was cut off or stopped, and does not know it yet.
func (c *Client) follow(epoch uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch < c.state.Epoch && time.Since(c.state.Answered) < fence {
		c.state.Refused++
		return fmt.Errorf("%w: epoch %d after %d", errEpoch, epoch, c.state.Epoch)
	}
	c.state.Epoch = epoch
	return nil
}

// take puts an answer into force, and says whether it is: on some device shares are of the
// totals.
func (c *Client) take(a *cluster.Answer) (inForce bool, err error) {
	entries, rates, rooms := a.GetEntries(), a.GetRates(), a.GetRooms()
	if len(entries) != len(rates) || len(entries) != len(rooms) {
		return false, fmt.Errorf("an answer has %d entries with %d rates and %d rooms", len(entries), len(rates), len(rooms))
	}
	for i, n := range entries {
		// An entry that was freed meanwhile may be in an answer that was under way.
		if int(n) < len(c.byNumber) && c.byNumber[n] != nil && rates[i] <= math.MaxInt64 && rooms[i] <= math.MaxInt64 {
			c.byNumber[n].total = coord.Service{Rate: int64(rates[i]), Room: int64(rooms[i])}
		}
	}
	for _, r := range a.GetRights() {
		n := r.GetEntry()
		if int(n) >= len(c.byNumber) || c.byNumber[n] == nil || !(r.GetWeight() > 0) || r.GetWeight() > 1e12 || r.GetLimit() > math.MaxInt64 {
			continue
		}
		c.rights.set(c.byNumber[n].name, rightOf(r), c.isEntry)
	}
	if len(a.GetRights()) > 0 {
		c.o.Rights(c.rights.all())
	}
	before := c.State().InForce
	if a.GetSettling() {
		return before, nil // what was in force before it started may be, yet
	}
	answered := false
	for _, t := range c.devices {
		parts, ok := t.coord.Answer(a.GetSequence(), func(app int) (coord.Right, bool) {
			e := c.byNumber[app]
			if e == nil {
				return coord.Right{}, false
			}
			right, known := c.rights.of(e.name)
			return coord.Right{Weight: right.Weight, Total: e.total}, known
		})
		if !ok {
			continue
		}
		named := make(map[string]float64, len(parts))
		for _, p := range parts {
			if e := c.byNumber[p.App]; e != nil {
				named[e.name] = p.Weight
			}
		}
		t.device.SetParts(named)
		t.parts, answered = true, true
		inForce = inForce || len(named) > 0
	}
	if !answered && len(c.entries) > 0 { // a stream's first: it had the names only
		return before, nil
	}
	return inForce || len(c.entries) == 0, nil
}

// isEntry tells whether an application is reported.
func (c *Client) isEntry(name string) bool { return c.entries[name] != nil }

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

// localShares puts the policy's weights into force as they are: in their queues where the
// broker has told them.
func (c *Client) localShares() {
	var weights map[string]float64
	for name, right := range c.rights.all() {
		if right.Own == 0 {
			if weights == nil {
				weights = map[string]float64{}
			}
			weights[name] = right.Weight
		}
	}
	for _, t := range c.devices {
		if t.parts {
			t.coord = coord.Device{}
			t.device.SetParts(weights)
		}
	}
}
