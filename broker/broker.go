// Package broker implements the cluster's broker. It adds up the service that nodes report,
// answers each report with the cluster-wide totals of the node's applications, and sends the
// policy's weights and limits (IBIS, section 5).
//
// The state about nodes is soft. A node reports completely when its stream begins, so a broker
// that restarts has the whole picture within a reporting period. While there is no broker, nodes
// keep scheduling by their local shares. A stream that is silent for several periods is dropped
// from the totals. If a node opens a second stream, the first one ends.
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

	"penstock/broker/audit"
	"penstock/broker/leadership"
	"penstock/broker/roles"
	"penstock/broker/store"
	"penstock/core/coord"
	"penstock/core/forecast"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/wire/cluster"
)

const (
	maxNodes = 20_000
	maxApps  = 100_000
	// maxQueues is above the number of queues and groups that one policy can have.
	maxQueues = 100_000
	// A node that is silent for silentPeriods of its periods is dropped.
	silentPeriods = 5
	minPeriod     = time.Second // shortest period by which silence is measured: a machine may be slow for a moment
	maxPeriod     = 30 * time.Second
	// startupWait is the time after the broker's start in which some nodes may not have reported
	// yet. It is two reporting periods of the usual length. A node that was refused a connection
	// reconnects within three quarters of a period, and reports rates one period later.
	startupWait = 2 * time.Second
	// failoverWait replaces startupWait if there are several brokers. The nodes of a failed leader
	// leave it after up to three periods without an answer. They report rates to the new leader one
	// or two periods later.
	failoverWait = 5 * time.Second
	// rightsInterval is the time between two computations of all rights.
	rightsInterval = 500 * time.Millisecond
	// With up to maxImmediateApps applications, each new application causes an immediate
	// computation of all rights. With more applications, these computations may take at most a
	// twentieth of the time, because a node that makes up names could otherwise keep the processor
	// busy.
	maxImmediateApps = 1000
	// The same bound holds if a computation takes longer than maxImmediateTime: with total rates, it also grows with the nodes.
	maxImmediateTime = 5 * time.Millisecond
	// matchBatch is the number of applications that are matched with the policy's rules at once. If
	// a report names more new applications, the rights of the remaining applications follow later.
	matchBatch = 256
)

// Broker is a broker with its state.
type Broker struct {
	cluster.UnimplementedNodesServer
	options      Options
	log          *slog.Logger
	leadership   leadership.Leadership
	writeMu      sync.Mutex // held while a new version is written and put in force
	refreshMu    sync.Mutex // held while the store's newest version is put in force
	connections  *connLimiter
	metrics      *metrics
	peerLog      *logLimiter // limits lines about misbehaving peers
	nodeLog      *logLimiter // limits lines about nodes that connect and disconnect
	reportLimits reportLimiters
	created      time.Time // origin of session.lastReport, on the monotonic clock

	mu             sync.Mutex
	started        time.Time // when the broker started or began to lead
	startup        coord.Startup
	epoch          uint64 // the epoch of all sessions; 0: this broker does not lead
	totals         *coord.Totals
	queues         *coord.Totals
	sessions       map[string]*session // by node name
	nodesByAddress map[netip.Addr]map[*session]struct{}
	policy         *policy.Policy
	canary         *canary                     // nil: all nodes follow policy
	version        uint64                      // number of the policy in force; 0: the store has no version
	current        store.Version               // the version in force
	lastActive     map[string]time.Time        // by application with a set weight: when it was last at work, or its weight was set
	rights         map[string]right            // by application, as last computed
	grants         map[string]policy.Grant     // by application, under the policy in force
	staleGrants    map[string]struct{}         // applications whose facts have changed since their grants were computed
	totalRates     map[string]*coord.TotalRate // by application
	forecasts      map[string]*forecaster      // by application
	history        forecast.History            // from the store, and of this broker, also from times when it led before
	learning       learning                    // the state of history's record in the store
	deadlines      map[string]*goal            // by application
	orders         orders
	slowdowns      slowdowns
	paths          queuePaths
	factsVersion   uint64 // incremented when facts change

	rightsAt   time.Time     // when the last computation of rights ended
	rightsTime time.Duration // how long that computation took
}

// rightOf returns the right that a grant gives. weight is the weight among all applications at work.
func rightOf(g policy.Grant, weight float64, path *queuePath) right {
	return right{weight: weight, limit: g.Limit, reserve: g.Reserve, total: g.Total, latency: g.Latency, order: max(0, g.Rule), ownWeight: g.Weight, path: path}
}

// right holds what the policy grants an application at work.
type right struct {
	weight    float64
	limit     int64
	reserve   reserve.Rate
	total     policy.Total  // in a sentEntry: the node's parts
	latency   time.Duration // goal of small reads
	order     int           // the place of the rule in the policy
	ownWeight int           // weight in the last queue of the path
	path      *queuePath
}

// session is the stream of one node.
type session struct {
	node          *cluster.Node
	location      location
	apps          entryTable
	queues        entryTable
	period        time.Duration // between reports
	maxSilence    time.Duration // the node is dropped after this time without a report
	lastReport    atomic.Int64  // time of the last report, in nanoseconds since Broker.created
	sequence      uint64
	parts         map[string]*coord.RatePart // of total rates, by application
	capacity      int64                      // bytes per second that the node can guarantee; 0: not known
	free          int64                      // of capacity, what no total rate has (coord.DivideReserves)
	policyVersion uint64                     // version in force at the node
	mode          cluster.Mode               // in force at the node
	place         int                        // its place among the nodes for canaries (placeOf)
	conn          *conn                      // nil: not accepted by a listener of this broker
	answer        cluster.Answer             // the last answer; its slices are reused
	queueTotals   cluster.Queues             // part of answer
}

// entryTable is the part of a session that belongs to one coord.Totals.
type entryTable struct {
	totals *coord.Totals
	member coord.Member
	byName map[string]int // entry by name
	sent   []sentEntry    // what was last sent to the node, by entry
}

// sentEntry holds what was last sent to the node about an entry.
type sentEntry struct {
	name  string // empty: the entry is free
	total coord.Service
	right right
}

// Options configures a Broker.
type Options struct {
	Name string // the broker's name, shown to operators
	Log  *slog.Logger
	// Facts returns the facts about an application. It must not block, and is called by several
	// goroutines. nil: only names are known.
	Facts func(flow string) policy.Facts
	// State returns an application's state as reported by its cluster manager; empty: not known. It
	// is called under the same conditions as Facts.
	State func(flow string) string
	// Progress returns the part of an application that is done, 0 to 1, as reported by its cluster manager; below
	// 0: not known. It is called under the same conditions as Facts.
	Progress func(flow string) float64
	// Life returns what is known of an application's run, as of one moment, for forecasts and deadlines. It is called under the same
	// conditions as Facts. nil: only the progress.
	Life func(flow string) Life
	// Tasks returns the number of an application's running tasks, as reported by its cluster manager; 0: not known. It
	// is called under the same conditions as Facts.
	Tasks func(flow string) int
	// ApplicationSeries is the number of applications that have metrics of their own, those with most service; 0: none.
	ApplicationSeries int
	Store             store.Store // keeps the policy's versions; nil: in memory
	// Leadership reports which broker leads; nil: this broker always leads.
	Leadership leadership.Leadership
	// Roles states what each operator may do; nil: everything.
	Roles *roles.File
	// Audit records what operators do; nil: it is logged.
	Audit *audit.Log
	// LimitAll accepts a policy file with a limit for all applications.
	LimitAll bool
}

// Life is what a cluster manager reports of an application's run.
type Life struct {
	Progress float64 // part that is done, 0 to 1; below 0: not known
	// Work and Boundary are those of forecast.Observation.
	Work, Boundary float64
	Submitted      int64 // Unix ms; 0: not known
	Ended          bool
	Succeeded      bool  // it has ended well. This may be known some seconds after Ended
	Finished       int64 // Unix ms; 0: not known
}

// New returns a broker with the store's newest policy in force, and with what forecasts have learned. It fails if the store does not
// answer, or if this program cannot read that policy.
func New(ctx context.Context, o Options) (*Broker, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		var err error
		if o.Audit, err = audit.Open("", o.Name, o.Log); err != nil {
			return nil, err
		}
	}
	if o.Facts == nil {
		o.Facts = func(flow string) policy.Facts { return policy.Facts{Flow: flow} }
	}
	if o.State == nil {
		o.State = func(string) string { return "" }
	}
	if o.Progress == nil {
		o.Progress = func(string) float64 { return -1 }
	}
	if o.Life == nil {
		o.Life = func(flow string) Life { return Life{Progress: o.Progress(flow)} }
	}
	if o.Tasks == nil {
		o.Tasks = func(string) int { return 0 }
	}
	if o.Store == nil {
		o.Store = store.NewMemory()
	}
	if o.Leadership == nil {
		o.Leadership = leadership.NewStandalone("")
	}
	settles := startupWait
	_, alone := o.Leadership.(*leadership.Standalone)
	if !alone {
		settles = failoverWait
	}
	b := &Broker{options: o, log: o.Log, leadership: o.Leadership, startup: coord.Startup{Least: settles}, created: time.Now(), started: time.Now(), peerLog: newLogLimiter(), nodeLog: newLogLimiter(), reportLimits: reportLimiters{byNode: map[string]*rate.Limiter{}}, totals: coord.NewTotals(maxNodes, maxApps, cluster.MaxEntries),
		queues:   coord.NewQueueTotals(maxNodes, maxQueues, cluster.MaxQueues, policy.MaxWay),
		sessions: map[string]*session{}, nodesByAddress: map[netip.Addr]map[*session]struct{}{}, policy: &policy.Policy{Default: 1}, lastActive: map[string]time.Time{},
		rights: map[string]right{}, grants: map[string]policy.Grant{}, staleGrants: map[string]struct{}{}}
	b.metrics = newMetrics(b)
	b.connections = newConnLimiter(Limits{}, b.connClosed)
	if err := b.refresh(ctx); err != nil {
		return nil, err
	}
	b.learning.shared = !alone
	if alone { // others read when they begin to lead
		if err := b.readLearned(ctx); err != nil {
			b.log.Warn("what forecasts have learned cannot be read yet", "error", err)
		}
	}
	return b, nil
}

// Run computes rights, puts new versions of the policy in force and drops silent nodes, until ctx
// ends.
func (b *Broker) Run(ctx context.Context) {
	b.updateLeadership()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { b.watchStore(ctx) })
	watching.Go(func() { b.keepLearned(ctx) })
	watching.Go(func() { b.sweepAudit(ctx) }) // its disk may be slow
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
				if b.silentFor(s) > s.maxSilence { // the stream itself ends at its next report, or when gRPC's keepalive fails
					dropped = append(dropped, s)
					b.drop(name, s)
				}
			}
			b.mu.Unlock()
			for _, s := range dropped { // outside of the lock: logging may block
				if left, say := b.peerLog.allow(now); say {
					b.log.Warn("node is silent; dropped from the totals", "node", s.node.GetName(), "last_report", b.lastReportAt(s), "suppressed", left)
				}
			}
			b.connections.sweep(now)
			b.reportLimits.sweep(now)
		}
	}
}

// noteReport records that a report has arrived.
func (b *Broker) noteReport(s *session) { s.lastReport.Store(int64(time.Since(b.created))) }

// silentFor returns the time since the node's last report.
func (b *Broker) silentFor(s *session) time.Duration {
	return time.Since(b.created) - time.Duration(s.lastReport.Load())
}

// lastReportAt returns the time of the node's last report by the wall clock.
func (b *Broker) lastReportAt(s *session) time.Time { return time.Now().Add(-b.silentFor(s)) }

// matchPending matches applications that have no grant, or an outdated one, with the policy's
// rules, for at most half an interval. The remaining applications follow in the next interval.
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

// needsGrant reports whether an application has no grant, or an outdated one. b.mu is held.
func (b *Broker) needsGrant(name string) bool {
	_, stale := b.staleGrants[name]
	_, known := b.grants[name]
	return stale || !known
}

// matchRules finds the grants of some applications. b.mu is not held during the matching, because
// thousands of rules take a while and reports must not wait.
func (b *Broker) matchRules(names []string) {
	b.mu.Lock()
	p, trial, facts := b.policy, b.canary, b.factsVersion
	b.mu.Unlock()
	grants := make([]policy.Grant, len(names))
	trials := make([]policy.Grant, len(names))
	for i, name := range names {
		f := b.options.Facts(name)
		grants[i] = p.Grant(f)
		if trial != nil {
			trials[i] = trial.policy.Grant(f)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.policy != p || b.factsVersion != facts { // these grants are already outdated
		return
	}
	for i, name := range names {
		b.grants[name] = grants[i]
		if trial != nil {
			trial.grants[name] = trials[i]
		}
		delete(b.staleGrants, name)
	}
}

// computeRights computes the rights of all applications at work whose grants are known. b.mu is
// held.
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
	b.applyOrders(names, grants)
	b.applyDeadlines(names, grants)
	b.applySlowdowns(names, grants)
	weights := b.policy.Weights(grants)
	clear(b.rights)
	if len(b.grants) > 2*len(names)+1000 { // most grants belong to applications that have ended
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
		b.rights[name] = rightOf(grants[i], weights[i], b.paths.pathOf(b.policy, grants[i]))
	}
	b.canary.computeRights(names, b.grants)
	b.divideTotals(names, grants)
	b.observeProgress(names)
}
