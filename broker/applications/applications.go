// Package applications is a directory of who is who: queue, user, name, type and tags of
// applications, by the names of their flows, and what they hold of a resource of YARN's.
//
// A node knows an application by its id only; a policy speaks of queues, users and tags.
// YARN's ResourceManager and Spark's master know both. They are asked, each by a goroutine
// of its own, and never by who wants to know: Facts answers at once with what is known,
// which is the flow's name if nothing is, and what arrives later is told (Run's changed).
//
// Each period a source lists those at work, few of all that it remembers, since what a
// container holds changes. An application that a node serves and the last list has not,
// because it has just begun or ended, is looked up alone, so many a second.
//
// Facts outlive their source: one that is down has said nothing new, and an application
// that is gone from a list may have data on its way still. One that has just taken over says
// of what is held less than there is. Weights that fell back because a ResourceManager is
// started again would be an outage of ours.
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

	"penstock/core/policy"
)

// Bounds of a directory.
const (
	// MaxApplications are kept. Those beyond are known by their flows' names only.
	MaxApplications = 100_000
	maxPending      = 10_000 // flows to be looked up
	// lookUps is how many a second there may be.
	lookupsPerSecond = 20
	// keep is how long an application stays known that its source has at work no more.
	retention = 10 * time.Minute
	// period is the time between two lists, and rest how many times what a list kept its source
	// busy is at least between it and the next: a slow ResourceManager is to have its rest. Not
	// so a standby, which may become the active one at any moment: it is asked at each tick.
	period      = 5 * time.Second
	pauseFactor = 4
	// settle is how long a source that has just begun may not know all who are at work, and all
	// that they hold: one answers before it has read its own store, and hears of containers from
	// NodeManagers, which look for it every 15 to 45 s, and at the one that has died in between
	// (yarn.client.failover-sleep-base-ms).
	settleTime = 2 * time.Minute
)

// Application is what is known of one.
type Application struct {
	policy.Facts
	State       string // as its source says it: ACCEPTED, RUNNING, FINISHED
	Ended       bool   // it is at work no more
	activeSince int64  // when who tells of it began to be active, ms; 0: it does not say
}

// Source is the state of one source.
type Source struct {
	Name         string // YARN, Spark
	Address      string // that has answered last; empty: none
	Answered     time.Time
	Error        string // of the last try; empty: it went well
	Applications int
}

// Directory is safe for use by several goroutines.
type Directory struct {
	log     *slog.Logger
	sources []*source
	// Shorter in tests.
	tick, period time.Duration

	mu      sync.Mutex
	apps    map[string]*entry
	pending map[string]bool // flows that were asked for and are not known
}

// asked is a cluster manager.
type clusterManager interface {
	name() string
	// owns tells whether a flow's name may be an application of it.
	owns(flow string) bool
	// list gives add each application at work, and some that are not. When it returns nil,
	// these were all.
	list(ctx context.Context, add func(Application)) error
	// address answered last.
	address() string
	// spent is how long the source was kept busy since the last call.
	takeBusyTime() time.Duration
}

// finder is one that can look a single application up.
type finder interface {
	find(ctx context.Context, flow string) (a Application, known bool, err error)
}

// source is one that is asked, by one goroutine. What follows asked is under the
// directory's lock.
type source struct {
	clusterManager
	round       uint64 // of lists
	swept       uint64 // the round in which room was made
	answered    time.Time
	err         error
	activeSince int64     // when the one that tells began to be active, ms; 0: none has said
	settledAt   time.Time // from when on it tells all; before, what was known stands beside it
}

type entry struct {
	Application
	from  *source
	round uint64    // of the source's last list that had it
	ended time.Time // when it was seen that it is at work no more; zero: it is
}

// Options say who is asked.
type Options struct {
	ResourceManagers []string // base URLs of YARN's, an HA pair's both
	SparkMasters     []string // base URLs of Spark's standalone masters
	// Resource is the resource type of YARN's whose held amount is an application's
	// bandwidth; empty: DefaultResource.
	Resource string
	Log      *slog.Logger
}

// New returns a directory that nobody has told anything yet.
func New(o Options) (*Directory, error) {
	d := &Directory{log: o.Log, tick: time.Second, period: period, apps: map[string]*entry{}, pending: map[string]bool{}}
	if len(o.ResourceManagers) > 0 {
		s, err := newYARN(o.ResourceManagers, cmp.Or(o.Resource, DefaultResource), o.Log)
		if err != nil {
			return nil, fmt.Errorf("the ResourceManager's address: %w", err)
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
	return d, nil
}

// Facts is what is known of a flow, at least its name. What is not known and may be will
// be asked for.
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

// State is a flow's, as its source said it last; empty: it is not known.
func (d *Directory) State(flow string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.apps[flow]; e != nil {
		return e.State
	}
	return ""
}

// List is all that is known, by flow.
func (d *Directory) List() []Application {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Application, 0, len(d.apps))
	for _, flow := range slices.Sorted(maps.Keys(d.apps)) {
		list = append(list, d.apps[flow].Application)
	}
	return list
}

// Sources is the state of each source.
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

// Run asks the sources until ctx ends. It calls changed, from several goroutines, with the
// flows of which something else is known than before; changed may call Facts.
func (d *Directory) Run(ctx context.Context, changed func(flows []string)) {
	var group sync.WaitGroup
	for _, s := range d.sources {
		group.Go(func() { d.poll(ctx, s, changed) })
	}
	group.Wait()
}

// follow asks one source.
func (d *Directory) poll(ctx context.Context, s *source, changed func([]string)) {
	ticker := time.NewTicker(d.tick)
	defer ticker.Stop()
	var due time.Time // of the next list
	for {
		begin := time.Now()
		var flows []string
		if !begin.Before(due) {
			s.clusterManager.takeBusyTime() // by look-ups
			flows = d.list(ctx, s)
			due = time.Now()
			if !d.noActiveServer(s) {
				due = due.Add(max(d.period, pauseFactor*s.clusterManager.takeBusyTime()))
			}
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

// noneActive tells whether the last try found no server that is at work.
func (d *Directory) noActiveServer(s *source) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Is(s.err, errNoneActive)
}

// list takes who is at work now. What is known of those that are not on a whole list
// stays, but that they hold nothing, and is forgotten after a while.
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
		if back { // with an empty list
			s.restarted(d.period)
		}
		for flow, e := range d.apps {
			if e.from != s {
				continue
			}
			if e.round < s.round && e.ended.IsZero() && !now.Before(s.settledAt) {
				e.Ended, e.ended = true, now
				if e.Bandwidth != 0 {
					e.Bandwidth = 0
					changed = append(changed, flow)
				}
			}
			if !e.ended.IsZero() && now.Sub(e.ended) > retention {
				delete(d.apps, flow)
			}
		}
		if _, can := s.clusterManager.(finder); !can { // who was not on the list is not known there
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

// put keeps what a source says of an application, in the list of this round or alone. It
// tells whether the facts are others, and whether there is no room. d.mu is held.
func (d *Directory) update(s *source, a Application) (different, full bool) {
	if a.activeSince != 0 {
		if s.activeSince != 0 && s.activeSince != a.activeSince { // a standby has taken over, or it was started again
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
			return false, false // a list of those that were: nobody has asked
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

// begins notes that the source has begun anew, as far as can be seen: what was known stands
// beside what it tells until it has settled. In between it is believed for a list at least, or
// one that begins again and again would never take anything back. Directory.mu is held.
func (s *source) restarted(period time.Duration) {
	if now := time.Now(); !now.Before(s.settledAt.Add(2 * period)) {
		s.settledAt = now.Add(settleTime)
	}
}

// makeRoom forgets, once they are in the way, who has ended, and who was in none of the
// last two lists, which were not whole then. d.mu is held.
func (d *Directory) makeRoom(s *source) {
	for flow, e := range d.apps {
		if e.Ended || e.from == s && e.round+1 < s.round {
			delete(d.apps, flow)
		}
	}
}

// same compares facts; nil tags are none.
func same(a, b policy.Facts) bool {
	tags := slices.Equal(a.Tags, b.Tags)
	return tags && a.Flow == b.Flow && a.Queue == b.Queue && a.User == b.User && a.Name == b.Name && a.Type == b.Type && a.Bandwidth == b.Bandwidth
}

// lookUp asks for some of those that are wanted, unless the source has failed last. One
// that it does not know is asked for again when somebody wants to know again.
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
			break // it stays wanted
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

// next is a flow that is wanted of a source; empty: none.
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

// said books how a try went, and logs what is new of it.
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
		d.log.Info("who is who: a source answers", "source", s.name(), "address", s.address(), "applications", known)
	case err != nil && before == nil:
		d.log.Warn("who is who: a source fails; what it has said before stays in force", "source", s.name(), "error", err)
	}
}
