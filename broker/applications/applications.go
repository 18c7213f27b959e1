// Package applications is a directory of the cluster's applications, by the names of their flows.
// For each application it has the queue, user, name, type, tags, and the amount of a YARN resource
// that the application holds.
//
// A node knows only the id of an application, while a policy refers to queues, users and tags.
// YARN's ResourceManager and Spark's master know the ids and these facts. One goroutine polls each
// of them. Facts never waits for a poll: it returns the facts known so far, at least the flow's
// name. Run reports later changes.
//
// Each poll lists the applications at work, since the containers that they hold change. An
// application that a node serves may be missing in the last list, because it has just begun or
// ended. It is then looked up individually, at a limited rate.
//
// Facts outlive their source. A source that is down changes nothing, and an application that is
// gone from a list may still have data to write. A source that has just taken over may report less
// than is allocated. If weights fell back at each restart of a ResourceManager, its outage would
// become an outage of Penstock.
package applications

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/broker/kerberos"
	"penstock/core/policy"
)

// Limits of a directory.
const (
	// MaxApplications is the maximum number of applications that are kept. Of any further
	// application, only the flow's name is known.
	MaxApplications = 100_000
	maxPending      = 10_000 // flows to be looked up
	// lookupsPerSecond is the maximum rate of single look-ups.
	lookupsPerSecond = 20
	// retention is how long an application stays known after its end.
	retention = 10 * time.Minute
	// period is the largest time between two lists of a source that answers quickly. The pause after
	// a list is briskFactor times as long as the list kept the source busy, but at most period. So a
	// cluster with few applications is polled at each tick. To spare a slow ResourceManager, the pause is
	// at least pauseFactor times as long as that. After an error, which may come at once, the pause is
	// at least period. A standby is polled at each tick, because it may become active at any moment.
	period      = 5 * time.Second
	briskFactor = 50
	pauseFactor = 4
	// settleTime is the time after a source's start in which it may not know all applications at
	// work and all their resources. A ResourceManager answers before it has read its state store.
	// The ResourceManager learns about containers from NodeManagers, which look for an active
	// ResourceManager every 15 to 45 s and try the failed one first
	// (yarn.client.failover-sleep-base-ms).
	settleTime = 2 * time.Minute
)

// Application holds the facts about an application.
type Application struct {
	policy.Facts
	Progress    float64 // part that is done, 0 to 1; below 0: not reported
	Submitted   int64   // Unix ms; 0: not reported
	Tasks       int     // running tasks: containers other than the application master's; 0: not reported
	State       string  // as its source reports it: ACCEPTED, RUNNING, FINISHED
	Ended       bool    // it is no longer at work
	Succeeded   bool    // it has ended, and its source reports that it has done what it should
	Finished    int64   // when it ended, in Unix ms; 0: not reported
	activeSince int64   // start of the source's active phase, in Unix ms; 0: not reported
}

// Source is the state of a source.
type Source struct {
	Name         string // YARN, Spark, Kubernetes, Mesos
	Address      string // of the server that answered last; empty: none
	Answered     time.Time
	Error        string // of the last request; empty: none
	Applications int
}

// Directory is safe for use by several goroutines.
type Directory struct {
	log     *slog.Logger
	sources []*source
	// tick and period are shorter in tests.
	tick, period time.Duration

	mu      sync.Mutex
	apps    map[string]*entry
	pending map[string]bool // flows to be looked up
	// followed are the applications whose own servers are asked, by flow; at most maxFollowed.
	followed map[string]*followed
}

// clusterManager is a source of applications.
type clusterManager interface {
	name() string
	// owns reports whether a flow's name has the form of this cluster manager's application ids.
	owns(flow string) bool
	// list calls add for each application at work, and possibly for others. If list returns nil,
	// the list was complete.
	list(ctx context.Context, add func(Application)) error
	// address returns the address of the server that answered last.
	address() string
	// takeBusyTime returns how long the source was busy with requests since the last call.
	takeBusyTime() time.Duration
}

// finder is a cluster manager that can look up a single application.
type finder interface {
	find(ctx context.Context, flow string) (a Application, known bool, err error)
}

// source is a cluster manager with its state. One goroutine polls it. Directory.mu protects
// all fields except clusterManager.
type source struct {
	clusterManager
	round       uint64 // number of lists so far
	swept       uint64 // the round in which makeRoom was last called
	answered    time.Time
	err         error
	activeSince int64     // start of the server's active phase, in Unix ms; 0: not known
	settledAt   time.Time // from then on the source's lists are complete; before, they only add facts
}

type entry struct {
	Application
	from  *source
	round uint64    // number of the last list that contained it
	ended time.Time // when its end was noticed; zero: it is at work
	asked bool      // RunOf was called, so its outcome is looked up when it is missing in a list
}

// Options configures the sources.
type Options struct {
	ResourceManagers []string        // base URLs of YARN's ResourceManagers (both of an HA pair)
	Hadoop           kerberos.Access // to the ResourceManagers
	SparkMasters     []string        // base URLs of Spark's standalone masters
	// Resource is the YARN resource type whose allocated amount is an application's bandwidth;
	// empty: DefaultResource.
	Resource   string
	Kubernetes Kubernetes
	Mesos      Mesos
	Log        *slog.Logger
}

// New returns an empty directory.
func New(o Options) (*Directory, error) {
	d := &Directory{log: o.Log, tick: time.Second, period: period, apps: map[string]*entry{}, pending: map[string]bool{}, followed: map[string]*followed{}}
	if len(o.ResourceManagers) > 0 {
		s, err := newYARN(o.ResourceManagers, o.Hadoop, cmp.Or(o.Resource, DefaultResource), o.Log)
		if err != nil {
			return nil, fmt.Errorf("the ResourceManager: %w", err)
		}
		d.sources = append(d.sources, &source{clusterManager: s})
	}
	if len(o.SparkMasters) > 0 {
		s, err := newSpark(o.SparkMasters)
		if err != nil {
			return nil, fmt.Errorf("the Spark master's address: %w", err)
		}
		d.sources = append(d.sources, &source{clusterManager: s})
	}
	if err := o.Kubernetes.addTo(d); err != nil {
		return nil, fmt.Errorf("the API server of Kubernetes: %w", err)
	}
	if err := o.Mesos.addTo(d); err != nil {
		return nil, fmt.Errorf("the Mesos master: %w", err)
	}
	return d, nil
}

// Facts returns the facts about a flow, at least its name. If a source may know more, the flow is
// looked up.
func (d *Directory) Facts(flow string) policy.Facts {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.apps[flow]; e != nil {
		return e.Facts
	}
	if len(d.pending) < maxPending && slices.ContainsFunc(d.sources, func(s *source) bool { return s.owns(flow) }) {
		d.pending[flow] = true
	}
	return policy.Facts{Flow: flow}
}

// State returns the last reported state of a flow's application; empty: not known.
func (d *Directory) State(flow string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.apps[flow]; e != nil {
		return e.State
	}
	return ""
}

// Progress returns the last progress of a flow's application that its source reported, 0 to 1; below 0: not known. RunOf knows that of Spark
// applications, too.
func (d *Directory) Progress(flow string) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.apps[flow]; e != nil {
		return e.Progress
	}
	return -1
}

// Tasks returns the last reported number of running tasks of a flow's application; 0: not known.
func (d *Directory) Tasks(flow string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.apps[flow]; e != nil {
		return e.Tasks
	}
	return 0
}

// List returns all known applications, sorted by flow.
func (d *Directory) List() []Application {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Application, 0, len(d.apps))
	for _, flow := range slices.Sorted(maps.Keys(d.apps)) {
		list = append(list, d.apps[flow].Application)
	}
	return list
}

// Sources returns the state of each source.
func (d *Directory) Sources() []Source {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Source
	for _, s := range d.sources {
		at := Source{Name: s.name(), Address: s.address(), Answered: s.answered}
		if s.err != nil {
			at.Error = s.err.Error()
		}
		for _, e := range d.apps {
			if e.from == s {
				at.Applications++
			}
		}
		list = append(list, at)
	}
	return list
}

// Run polls the sources until ctx ends. It calls changed with the flows whose facts have changed,
// from several goroutines. changed may call Facts.
func (d *Directory) Run(ctx context.Context, changed func(flows []string)) {
	var group sync.WaitGroup
	for _, s := range d.sources {
		group.Go(func() { d.poll(ctx, s, changed) })
		if by, can := s.clusterManager.(follower); can {
			group.Go(func() { d.follow(ctx, s, by) })
		}
	}
	group.Wait()
}

// poll polls one source.
func (d *Directory) poll(ctx context.Context, s *source, changed func([]string)) {
	ticker := time.NewTicker(d.tick)
	defer ticker.Stop()
	var due time.Time // of the next list
	for {
		begin := time.Now()
		var flows []string
		if !begin.Before(due) {
			s.clusterManager.takeBusyTime() // discard the time of look-ups
			flows = d.list(ctx, s)
			due = time.Now().Add(pause(s.clusterManager.takeBusyTime(), d.period, d.lastError(s)))
		}
		flows = append(flows, d.lookUp(ctx, s)...)
		if len(flows) > 0 {
			changed(flows)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// pause returns the pause after a list that kept the source busy for some time, and whose error was err.
func pause(busy, period time.Duration, err error) time.Duration {
	brisk := briskFactor * busy
	switch {
	case errors.Is(err, errNoneActive):
		return 0
	case err != nil:
		brisk = period
	}
	return max(min(brisk, period), pauseFactor*busy)
}

// lastError returns the error of the last request; nil: none.
func (d *Directory) lastError(s *source) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.err
}

// list updates the directory from a list of the applications at work. An application that is
// missing in a complete list has ended: it stays known for a while, but holds no resources.
func (d *Directory) list(ctx context.Context, s *source) (changed []string) {
	d.mu.Lock()
	s.round++
	back := s.err != nil
	d.mu.Unlock()
	beyond := 0
	err := s.clusterManager.list(ctx, func(a Application) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if back {
			back = false
			s.restarted(d.period)
		}
		different, full := d.update(s, a)
		if different {
			changed = append(changed, a.Flow)
		}
		if full {
			beyond++
		}
	})
	d.mu.Lock()
	if now := time.Now(); err == nil {
		if back { // the list was empty
			s.restarted(d.period)
		}
		for flow, e := range d.apps {
			if e.from != s {
				continue
			}
			if e.round < s.round && e.ended.IsZero() && !now.Before(s.settledAt) {
				e.Ended, e.ended = true, now
				if e.asked && len(d.pending) < maxPending {
					d.pending[flow] = true
				}
				if e.Bandwidth != 0 {
					e.Bandwidth = 0
					changed = append(changed, flow)
				}
			}
			if !e.ended.IsZero() && now.Sub(e.ended) > retention {
				delete(d.apps, flow)
			}
		}
		if _, can := s.clusterManager.(finder); !can { // the source knows no other applications
			maps.DeleteFunc(d.pending, func(flow string, _ bool) bool { return s.owns(flow) })
		}
	}
	d.mu.Unlock()
	if err == nil && beyond > 0 {
		err = fmt.Errorf("%d applications at work are known by their flows' names only: at most %d are kept", beyond, MaxApplications)
	}
	d.noteResult(ctx, s, err)
	return changed
}

// update stores what a source reports about an application in a list or a look-up. different
// reports whether the facts have changed, and full whether the directory had no room for the
// application. d.mu is held.
func (d *Directory) update(s *source, a Application) (different, full bool) {
	if a.activeSince != 0 {
		if s.activeSince != 0 && s.activeSince != a.activeSince { // another server has taken over, or the server was restarted
			s.restarted(d.period)
		}
		s.activeSince = a.activeSince
	}
	e := d.apps[a.Flow]
	switch {
	case a.Ended:
		a.Bandwidth = 0
	case e != nil && time.Now().Before(s.settledAt):
		a.Bandwidth = max(a.Bandwidth, e.Bandwidth)
	}
	if e == nil {
		if a.Ended && !d.pending[a.Flow] {
			return false, false // a finished application that was not requested
		}
		if len(d.apps) >= MaxApplications && s.swept < s.round {
			s.swept = s.round
			d.makeRoom(s)
		}
		if len(d.apps) >= MaxApplications {
			return false, true
		}
		e = &entry{from: s}
		d.apps[a.Flow] = e
		delete(d.pending, a.Flow)
	}
	different = !same(e.Facts, a.Facts)
	e.Application, e.from, e.round = a, s, s.round
	switch {
	case !a.Ended:
		e.ended = time.Time{}
	case e.ended.IsZero():
		e.ended = time.Now()
	}
	return different, false
}

// restarted records that the source seems to have restarted. Until it has settled, its lists only
// add facts. Between two such phases, at least one complete list takes full effect; otherwise a
// source that restarts again and again would never lower a value. Directory.mu is held.
func (s *source) restarted(period time.Duration) {
	if now := time.Now(); !now.Before(s.settledAt.Add(2 * period)) {
		s.settledAt = now.Add(settleTime)
	}
}

// makeRoom drops applications that have ended, and applications of s that were missing in the last
// two lists. (If those lists were complete, these applications have been marked as ended already.)
// d.mu is held.
func (d *Directory) makeRoom(s *source) {
	for flow, e := range d.apps {
		if e.Ended || e.from == s && e.round+1 < s.round {
			delete(d.apps, flow)
		}
	}
}

// same reports whether facts are equal. nil and empty tags are equal.
func same(a, b policy.Facts) bool {
	tags := slices.Equal(a.Tags, b.Tags)
	return tags && a.Flow == b.Flow && a.Queue == b.Queue && a.User == b.User && a.Name == b.Name && a.Type == b.Type && a.Bandwidth == b.Bandwidth
}

// lookUp looks up some pending flows, unless the last request to the source failed. If the source
// does not know a flow, the flow is looked up again when Facts is next called for it.
func (d *Directory) lookUp(ctx context.Context, s *source) (changed []string) {
	by, can := s.clusterManager.(finder)
	d.mu.Lock()
	failed := s.err != nil
	d.mu.Unlock()
	if failed || !can {
		return nil
	}
	for range lookupsPerSecond {
		flow := d.nextPending(s)
		if flow == "" {
			break
		}
		a, known, err := by.find(ctx, flow)
		if err != nil {
			d.noteResult(ctx, s, err)
			break // the flow stays pending
		}
		d.mu.Lock()
		if known {
			if different, _ := d.update(s, a); different {
				changed = append(changed, flow)
			}
		}
		delete(d.pending, flow)
		d.mu.Unlock()
	}
	return changed
}

// nextPending returns a pending flow of a source; empty: none.
func (d *Directory) nextPending(s *source) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for flow := range d.pending {
		if s.owns(flow) {
			return flow
		}
	}
	return ""
}

// noteResult records the outcome of a request to a source, and logs changes.
func (d *Directory) noteResult(ctx context.Context, s *source, err error) {
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	before := s.err
	s.err = err
	first := s.answered.IsZero()
	if err == nil {
		s.answered = time.Now()
	}
	known := len(d.apps)
	d.mu.Unlock()
	switch {
	case err == nil && (before != nil || first):
		d.log.Info("application directory: source answers", "source", s.name(), "address", s.address(), "applications", known)
	case err != nil && before == nil:
		d.log.Warn("application directory: source fails; its last answers stay in force", "source", s.name(), "error", err)
	}
}
