// Package broker adds up what the nodes of a cluster serve and tells each node the totals
// of the applications that it serves, and what the policy gives them (IBIS, section 5).
//
// All it keeps of nodes is soft: each says anew what it serves when its stream begins, so a
// broker that was started again knows everything within a period, and one that is gone
// costs nodes nothing but the coordination: they go on by local shares. A stream that has
// been silent for a few periods counts no more; a node that opens a second one has lost the
// first.
package broker

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"penstock/broker/leadership"
	"penstock/broker/store"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

const (
	maxNodes = 20_000
	maxApps  = 100_000
	// maxQueues is more than one policy may have, with its groups.
	maxQueues = 100_000
	// silent is how many of its periods a node may say nothing.
	silentPeriods = 5
	minPeriod     = time.Second // shorter ones are told as this: a machine may be slow for a moment
	maxPeriod     = 30 * time.Second
	// settling is how long after its start not all nodes may have reported, two of the usual
	// periods: a node that waited for it comes within three quarters of one, where its machine
	// refused the connection until then, and reports with rates one after that.
	startupWait = 2 * time.Second
	// succession is the same for a broker among several: a leader that was stopped or cut off
	// is left by its nodes after up to three periods without an answer, and they report with
	// rates one or two later.
	failoverWait = 5 * time.Second
	// round is how often what the policy gives is worked out anew, for who is at work.
	rightsInterval = 500 * time.Millisecond
	// settleAtOnce is up to how many applications that is also done for each that is new; with
	// more of them it may take a twentieth of the time, or names made up would take it all.
	maxImmediateApps = 1000
	// matchAtOnce is how many applications the policy's rules are matched for in one go: a report
	// with more that are new is answered without some of their rights, which come with a round.
	matchBatch = 256
)

// Broker is one broker's state.
type Broker struct {
	cluster.UnimplementedNodesServer
	options      Options
	log          *slog.Logger
	leadership   leadership.Leadership
	writeMu      sync.Mutex // of a version, from what it is made from to its being in force
	refreshMu    sync.Mutex // the newest version into force
	connections  *connLimiter
	metrics      *metrics
	peerLog      *logLimiter // what peers do wrong
	nodeLog      *logLimiter // and who comes and goes
	reportLimits reportLimiters
	created      time.Time // what nodes were heard after is counted from; the clock may be set meanwhile

	mu             sync.Mutex
	started        time.Time // or began to lead
	startup        coord.Startup
	epoch          uint64 // that sessions are of; 0: it does not lead
	totals         *coord.Totals
	queues         *coord.Totals
	sessions       map[string]*session // by the node's name
	nodesByAddress map[netip.Addr]map[*session]struct{}
	policy         *policy.Policy
	version        uint64                  // of the policy; 0: the store has none
	current        store.Version           // the same, as the store had it
	lastActive     map[string]time.Time    // when an application with a set weight was last at work, or its weight came
	rights         map[string]right        // by application, of the last round
	grants         map[string]policy.Grant // by application, of the policy in force
	staleGrants    map[string]struct{}     // of them those for whom something else is known than before
	paths          queuePaths
	factsVersion   uint64 // how often facts were others than before

	rightsAt   time.Time     // the last settle's end
	rightsTime time.Duration // its length
}

// right is what an application has of the policy.
type right struct {
	weight    float64
	limit     int64
	ownWeight int // weight in the last queue of the way
	path      *queuePath
}

// session is a node's stream.
type session struct {
	node          *cluster.Node
	location      location
	apps          entryTable
	queues        entryTable
	period        time.Duration // of its reports
	maxSilence    time.Duration // that is too long
	lastReport    atomic.Int64  // when the last report came, booked or not, in nanoseconds since the broker was born
	sequence      uint64
	policyVersion uint64         // version in force there, by its last report
	conn          *conn          // nil: not one that was accepted here
	answer        cluster.Answer // the last one: its lists are used again
	queueTotals   cluster.Queues // of queues, in that answer
}

// book is what a session has in a Totals.
type entryTable struct {
	totals *coord.Totals
	member coord.Member
	byName map[string]int // entries, by name
	sent   []sentEntry    // by entry
}

// sent is what the node knows of an entry.
type sentEntry struct {
	name  string // empty: it is free
	total coord.Service
	right right
}

// Options of a Broker.
type Options struct {
	Name string // this broker's, for operators
	Log  *slog.Logger
	// Facts tells what is known of an application, and must not block. It is called by
	// several goroutines. nil: nothing but its name is known.
	Facts func(flow string) policy.Facts
	// State tells operators an application's, as its cluster manager says it; as Facts.
	State func(flow string) string
	Store store.Store // of the policy's versions; nil: in memory
	// Lead says who leads; nil: this broker does, alone.
	Leadership leadership.Leadership
}

// New returns a broker with the store's newest policy in force. Errors: the store does not
// answer, or that policy is none for this program.
func New(ctx context.Context, o Options) (*Broker, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Facts == nil {
		o.Facts = func(flow string) policy.Facts { return policy.Facts{Flow: flow} }
	}
	if o.State == nil {
		o.State = func(string) string { return "" }
	}
	if o.Store == nil {
		o.Store = store.NewMemory()
	}
	if o.Leadership == nil {
		o.Leadership = leadership.NewStandalone("")
	}
	settles := startupWait
	if _, alone := o.Leadership.(*leadership.Standalone); !alone {
		settles = failoverWait
	}
	b := &Broker{options: o, log: o.Log, leadership: o.Leadership, startup: coord.Startup{Least: settles}, created: time.Now(), started: time.Now(), peerLog: newLogLimiter(), nodeLog: newLogLimiter(), reportLimits: reportLimiters{byNode: map[string]*rate.Limiter{}}, totals: coord.NewTotals(maxNodes, maxApps, cluster.MaxEntries),
		queues:   coord.NewQueueTotals(maxNodes, maxQueues, cluster.MaxQueues, policy.MaxWay),
		sessions: map[string]*session{}, nodesByAddress: map[netip.Addr]map[*session]struct{}{}, policy: &policy.Policy{Default: 1}, lastActive: map[string]time.Time{},
		rights: map[string]right{}, grants: map[string]policy.Grant{}, staleGrants: map[string]struct{}{}}
	b.metrics = newMetrics(b)
	b.connections = newConnLimiter(PerAddress, b.connClosed)
	if err := b.refresh(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Run keeps rights up to date, takes new versions of the policy and drops who is silent,
// until ctx ends.
func (b *Broker) Run(ctx context.Context) {
	b.updateLeadership()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { b.watchStore(ctx) })
	ticker := time.NewTicker(rightsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.leadership.Changes():
			b.updateLeadership()
		case now := <-ticker.C:
			b.matchPending()
			b.mu.Lock()
			b.computeRights()
			b.noteActivity(now)
			var dropped []*session
			for name, s := range b.sessions {
				if b.silentFor(s) > s.maxSilence { // its stream ends with its next report, or by gRPC's keepalive
					dropped = append(dropped, s)
					b.drop(name, s)
				}
			}
			b.mu.Unlock()
			for _, s := range dropped { // nobody waits for the log
				if left, say := b.peerLog.allow(now); say {
					b.log.Warn("a node says nothing: its service counts no more", "node", s.node.GetName(), "since", b.lastReportAt(s), "unsaid", left)
				}
			}
			b.connections.sweep(now)
			b.reportLimits.sweep(now)
		}
	}
}

// hear notes that a node has said something.
func (b *Broker) noteReport(s *session) { s.lastReport.Store(int64(time.Since(b.created))) }

// quietFor is how long a node has said nothing.
func (b *Broker) silentFor(s *session) time.Duration {
	return time.Since(b.created) - time.Duration(s.lastReport.Load())
}

// heardAt is when that began, by the clock as it is now.
func (b *Broker) lastReportAt(s *session) time.Time { return time.Now().Add(-b.silentFor(s)) }

// matchAll matches applications that have no grant yet, or an old one, as many as half a round
// has time for; the others have their turn with the next rounds.
func (b *Broker) matchPending() {
	began := time.Now()
	var names []string
	b.mu.Lock()
	b.totals.Each(func(_ coord.App, name string, _ int, _ coord.Service) {
		if b.needsGrant(name) {
			names = append(names, name)
		}
	})
	b.mu.Unlock()
	for chunk := range slices.Chunk(names, matchBatch) {
		b.matchRules(chunk)
		if time.Since(began) > rightsInterval/2 {
			return
		}
	}
}

// wants tells whether an application's grant is to be found. b.mu is held.
func (b *Broker) needsGrant(name string) bool {
	_, stale := b.staleGrants[name]
	_, known := b.grants[name]
	return stale || !known
}

// match finds what the policy gives some applications. Thousands of rules take a while, which
// reports do not wait for: b.mu is not held.
func (b *Broker) matchRules(names []string) {
	b.mu.Lock()
	p, regrants := b.policy, b.factsVersion
	b.mu.Unlock()
	grants := make([]policy.Grant, len(names))
	for i, name := range names {
		grants[i] = p.Grant(b.options.Facts(name))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.policy != p || b.factsVersion != regrants { // of an older policy, or of older facts
		return
	}
	for i, name := range names {
		b.grants[name] = grants[i]
		delete(b.staleGrants, name)
	}
}

// settle works out what the policy gives everybody at work whose grant is known. b.mu is held.
func (b *Broker) computeRights() {
	began := time.Now()
	defer func() {
		b.rightsAt, b.rightsTime = time.Now(), time.Since(began)
		b.metrics.rightsSeconds.Observe(b.rightsTime.Seconds())
	}()
	var names []string
	var grants []policy.Grant
	b.totals.Each(func(_ coord.App, name string, _ int, _ coord.Service) {
		if g, known := b.grants[name]; known {
			names, grants = append(names, name), append(grants, g)
		}
	})
	weights := b.policy.Weights(grants)
	clear(b.rights)
	if len(b.grants) > 2*len(names)+1000 { // most are of applications that are gone
		maps.DeleteFunc(b.grants, func(name string, _ policy.Grant) bool {
			_, there := b.totals.Of(name)
			return !there
		})
		maps.DeleteFunc(b.staleGrants, func(name string, _ struct{}) bool {
			_, known := b.grants[name]
			return !known
		})
	}
	for i, name := range names {
		b.rights[name] = right{weight: weights[i], limit: grants[i].Limit, ownWeight: grants[i].Weight, path: b.paths.pathOf(b.policy, grants[i])}
	}
}
