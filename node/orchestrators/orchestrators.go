// Package orchestrators follows which applications the containers of this machine belong to, as the kubelet
// and the Mesos agent report it.
//
// Problem: the kernel's cgroup path of a process names the UID of a pod, or the UUID of a Mesos container, and
// nothing else (package owner). The kubelet and the agent of the machine know the rest, and their answers change
// all the time. Choice: each is asked once a period, and at once when a container appears that nobody knows
// (at most once in wakePause). All else only reads what is known, so nothing waits for an answer. A server that
// does not answer is asked less and less often; meanwhile its last answer counts, except for the pods' addresses, which
// other pods get.
//
// What a name proves: root of this machine has chosen the cgroup's path, so the container is certain. The
// container's application is what the orchestrator says. On Kubernetes that is a label, which whoever may create
// pods in a namespace chooses: a pod with the labels of another's application joins that application.
package orchestrators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"penstock/core/policy"
	"penstock/node/monitor/owner"
	"penstock/wire/jsonstream"
	"penstock/wire/orchestrator"
)

// Limits of what is read and kept.
const (
	// MaxContainers is the maximum number of pods or containers of one orchestrator on this machine. A kubelet
	// runs 110 pods by default. Of further ones, only the path's names are known.
	MaxContainers = 4096
	maxBody       = 32 << 20 // bytes of an answer
	answerTimeout = 10 * time.Second
	maxBackOff    = time.Minute
	// keepFor is how long a container stays known after it is gone: its last writes reach the disk later.
	keepFor = 10 * time.Minute
	// wakePause is the least time between two requests. A container that was not in an answer causes no other request
	// while it is seen again within missedFor: further answers come anyway.
	wakePause = time.Second
	missedFor = time.Minute
	maxMissed = 1024
	// absentFor is how long what a container has requested counts while answers lack the container, or for three periods if
	// these are longer.
	absentFor = 2 * time.Minute
	// addressesFor is how long the addresses of the last answer count, or for two periods if these are longer. The
	// address of a pod that has ended gets another pod, which an orchestrator that does not answer cannot report.
	addressesFor = 30 * time.Second
)

// Source says how an orchestrator of this machine is asked.
type Source struct {
	URL    string // of the list itself, such as https://127.0.0.1:10250/pods or http://127.0.0.1:5051/state
	Access orchestrator.Access
	Period time.Duration
	// Resource is the name of the resource that counts as bandwidth, in MB/s.
	Resource string
	// Applications are patterns (policy.Match) for NAMESPACE/NAME of workloads or for names of frameworks whose
	// containers are applications with flows of their own. Spark's applications on Kubernetes always are.
	Applications []string
}

// Options configures a Directory. A nil source does not exist.
type Options struct {
	Kubernetes, Mesos *Source
	// Running returns the owners of the cgroups of pods and Mesos containers that have processes; nil: it is not known
	// which have. The caller does not change the result.
	Running func() map[string]owner.Owner
	// Changed is called when what applications have requested has changed; nil: nobody wants to know. It may call
	// Requested.
	Changed func()
	Log     *slog.Logger
}

// Container is what is known of a container.
type Container struct {
	// Application is the name of the application: an id of Spark or of a framework, or kubernetes:NAMESPACE/NAME.
	Application string
	// Flow reports that the application has a flow of its own: its I/O is not that of the flow clients.
	Flow  bool
	Title string // the application's name for people
	Kind  string // Spark, Deployment, Framework, ...
	Name  string // of the container, for people: NAMESPACE/NAME of its pod, or the executor's id
	// What it has requested: MB/s, and of Mesos also cores and MB.
	Bandwidth int64
	CPUs      float64
	Memory    int64
}

// Application adds up the containers of an application on this machine.
type Application struct {
	Name, Title, Kind string
	Flow              bool
	Containers        int
	Bandwidth         int64 // MB/s
	CPUs              float64
	Memory            int64 // MB
}

// State is the state of one orchestrator.
type State struct {
	Kind     owner.Kind
	URL      string
	Answered time.Time // zero: never
	Error    string    // of the last request; empty: none
	Failures int       // requests that have failed since the last answer
	// SlowFiles counts the requests that were not made because a file with a token, a credential or certificates
	// could not be read in time.
	SlowFiles uint64
	// Containers are those of the last answer; Skipped of them have invalid names or a UID of several pods, and
	// LeftOut are beyond MaxContainers. The answer lacks Absent others, which still count.
	Containers, Skipped, LeftOut, Absent int
	Offered                              int64 // MB/s that the agent offers (Mesos)
	Applications                         []Application
}

// Directory knows the containers. Its methods may be called by several goroutines; those of a nil Directory know
// nothing.
type Directory struct {
	log     *slog.Logger
	running func() map[string]owner.Owner
	changed func()
	sources []*source
}

// source is an orchestrator of this machine. One goroutine asks it.
type source struct {
	Source
	kind owner.Kind
	read func(*json.Decoder) (answer, error)
	wake chan struct{} // holds one element
	http *http.Client  // nil before the first request, and after an error

	mu         sync.Mutex
	containers map[string]kept // by the pod's UID or the container's UUID
	addresses  map[netip.Addr]string
	last       answer           // without its containers
	requested  map[string]int64 // MB/s, by application; never changed, only replaced
	current    int              // containers of the last answer
	absent     int              // containers that the last answer lacks, and that still count
	answered   time.Time
	err        error
	failures   int
	slowFiles  uint64
	missed     map[string]time.Time
}

// kept is a container that is known. Answers that lack it do so since missing; zero: the last answer has it. While it
// counts, it is treated as if the last answer had it.
type kept struct {
	Container
	missing time.Time
	counts  bool
}

// answer is what an orchestrator has answered.
type answer struct {
	containers       map[string]Container
	addresses        map[netip.Addr]string // of pods, with the key of the pod
	ended            map[string]bool       // keys of containers that have ended or are ambiguous; at most MaxContainers
	skipped, leftOut int
	offered          int64
}

// New returns a directory that knows nothing yet.
func New(o Options) *Directory {
	d := &Directory{log: o.Log, running: o.Running, changed: o.Changed}
	add := func(s *Source, kind owner.Kind, read func(*json.Decoder) (answer, error)) {
		d.sources = append(d.sources, &source{Source: *s, kind: kind, read: read, wake: make(chan struct{}, 1),
			containers: map[string]kept{}, missed: map[string]time.Time{}})
	}
	if s := o.Kubernetes; s != nil {
		add(s, owner.Kubernetes, s.readPods)
	}
	if s := o.Mesos; s != nil {
		add(s, owner.Mesos, s.readAgent)
	}
	return d
}

// matches reports whether one of the patterns of Applications matches.
func (s *Source) matches(name string) bool {
	for _, pattern := range s.Applications {
		if policy.Match(pattern, name) {
			return true
		}
	}
	return false
}

func (s *Source) readPods(d *json.Decoder) (answer, error) {
	a := answer{containers: map[string]Container{}, addresses: map[netip.Addr]string{}, ended: map[string]bool{}}
	end := func(uid string) {
		if len(a.ended) < MaxContainers {
			a.ended[uid] = true
		}
	}
	twice := map[string]bool{} // UIDs of several pods: mirrors of static pods that somebody has made up
	rest, err := orchestrator.ReadPods(d, s.Resource, func(p orchestrator.Pod) error {
		_, other := a.containers[p.UID]
		switch {
		case p.Ended:
			end(p.UID)
			return nil
		case other || twice[p.UID]:
			delete(a.containers, p.UID)
			end(p.UID)
			twice[p.UID] = true
			return nil
		case len(a.containers) >= MaxContainers:
			a.leftOut++
			return nil
		}
		c := Container{Application: p.Application, Title: p.Title, Kind: p.Kind, Name: p.Namespace + "/" + p.Name, Bandwidth: p.Bandwidth}
		c.Flow = p.Role != "" || s.matches(strings.TrimPrefix(p.Application, orchestrator.WorkloadPrefix))
		a.containers[p.UID] = c
		for _, address := range p.Addresses {
			if other, twice := a.addresses[address]; twice && other != p.UID {
				a.addresses[address] = "" // two pods: it is not known whose it is
				continue
			}
			a.addresses[address] = p.UID
		}
		return nil
	})
	if a.skipped = rest.Skipped + len(twice); err == nil && rest.Continue != "" {
		err = errors.New("the list has several pages: name this node in the URL (fieldSelector=spec.nodeName=NODE)")
	}
	return a, err
}

func (s *Source) readAgent(d *json.Decoder) (answer, error) {
	a := answer{containers: map[string]Container{}}
	agent, err := orchestrator.ReadAgent(d, s.Resource, func(f orchestrator.Framework) error {
		for _, e := range f.Executors {
			if len(a.containers) >= MaxContainers {
				a.leftOut++
				continue
			}
			a.containers[e.Container] = Container{Application: f.ID, Flow: s.matches(f.Name), Title: f.Name, Kind: "Framework", Name: e.ID,
				Bandwidth: e.Resources.Bandwidth, CPUs: e.Resources.CPUs, Memory: e.Resources.Memory}
		}
		return nil
	})
	a.skipped, a.offered = agent.Skipped, agent.Total.Bandwidth
	return a, err
}

// Run asks the orchestrators until ctx ends.
func (d *Directory) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, s := range d.sources {
		group.Go(func() { s.follow(ctx, d) })
	}
	group.Wait()
}

func (s *source) follow(ctx context.Context, d *Directory) {
	defer func() {
		if s.http != nil {
			s.http.CloseIdleConnections()
		}
	}()
	for {
		begun := time.Now()
		s.ask(ctx, d)
		wait := time.NewTimer(s.pause() - time.Since(begun))
		woken := false
		for !woken {
			select {
			case <-ctx.Done():
				wait.Stop()
				return
			case <-wait.C:
				woken = true
			case <-s.wake:
				// A server that does not answer is not asked earlier.
				if s.healthy() {
					wait.Reset(wakePause - time.Since(begun))
				}
			}
		}
	}
}

// pause returns the time from the start of a request to that of the next one.
func (s *source) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == 0 {
		return s.Period
	}
	return max(s.Period, min(s.Period<<min(s.failures, 20), maxBackOff))
}

func (s *source) healthy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures == 0
}

// ask asks once, and stores the answer.
func (s *source) ask(ctx context.Context, d *Directory) {
	a, err := s.request(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && s.http != nil {
		s.http.CloseIdleConnections()
		s.http = nil // the certificates may have been replaced
	}
	running := map[string]bool(nil)
	if d.running != nil {
		running = s.keys(d.running())
	}
	absent := s.absentNow()
	first, changed, before := s.store(a, err, running, time.Now())
	if changed && d.changed != nil {
		d.changed()
	}
	switch now := s.absentNow(); {
	case now > 0 && absent == 0:
		d.log.Info("an orchestrator's answer lacks containers; they count for a while", "kind", s.kind, "url", s.URL, "containers", now, "at_most", s.absentFor())
	case now == 0 && absent > 0:
		d.log.Info("no container is missing from the orchestrator's answer any more, or the missing ones have ended", "kind", s.kind, "url", s.URL)
	}
	switch {
	case err == nil && (before != nil || first):
		d.log.Info("orchestrator answers", "kind", s.kind, "url", s.URL, "containers", len(a.containers))
	case err != nil && before == nil && first:
		d.log.Warn("orchestrator does not answer; its containers are named by their ids", "kind", s.kind, "url", s.URL, "error", err)
	case err != nil && before == nil:
		d.log.Warn("orchestrator does not answer; its last answer counts", "kind", s.kind, "url", s.URL, "error", err)
	}
}

func (s *source) request(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if s.http == nil {
		client, err := s.Access.Client()
		if err != nil {
			return answer{}, err
		}
		s.http = client
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	if err := s.Access.Authorize(req); err != nil {
		return answer{}, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		var wrapped *url.Error // it repeats the address, which the message has anyway
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	if err := s.Access.StatusError(resp); err != nil {
		return answer{}, err
	}
	a, err := s.read(json.NewDecoder(&jsonstream.Capped{R: resp.Body, Left: maxBody}))
	switch {
	case errors.Is(err, jsonstream.ErrTooLong):
		err = fmt.Errorf("%w: over %d bytes (with Kubernetes, let the URL select fewer pods)", jsonstream.ErrTooLong, maxBody)
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("the answer took more than %v: %w", answerTimeout, err)
	}
	return a, err
}

// keys returns the keys of the containers of this kind that have processes.
func (s *source) keys(running map[string]owner.Owner) map[string]bool {
	all := map[string]bool{}
	for _, o := range running {
		if o.Kind == s.kind {
			all[keyOf(o)] = true
		}
	}
	return all
}

// keyOf returns the key of a container: a pod's UID, or a Mesos container's UUID.
func keyOf(o owner.Owner) string {
	if o.Kind == owner.Mesos {
		return o.ID
	}
	return o.Pod
}

func (s *source) absentNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent
}

func (s *source) absentFor() time.Duration { return max(absentFor, 3*s.Period) }

// store stores an answer, or an error. running are the keys of the containers that have processes; nil: not known. It
// returns whether this was the first answer, whether what applications have requested has changed, and the error before.
func (s *source) store(a answer, err error, running map[string]bool, now time.Time) (first, changed bool, before error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, first = s.err, s.answered.IsZero()
	if s.err = err; err != nil {
		s.failures++
		if errors.Is(err, orchestrator.ErrSlowFile) {
			s.slowFiles++
		}
		return first, false, before
	}
	s.failures, s.answered, s.current, s.absent = 0, now, len(a.containers), 0
	for key, c := range s.containers {
		if _, is := a.containers[key]; is {
			continue
		}
		if c.missing.IsZero() {
			c.missing = now
		}
		if now.Sub(c.missing) > max(keepFor, s.absentFor()) || len(s.containers) > 2*MaxContainers {
			delete(s.containers, key)
			continue
		}
		// A container that has ended does not count again.
		if c.counts = c.counts && !a.ended[key] && (running == nil || running[key]) && now.Sub(c.missing) <= s.absentFor(); c.counts {
			s.absent++
		}
		s.containers[key] = c
	}
	for key, c := range a.containers {
		s.containers[key] = kept{Container: c, counts: true}
		delete(s.missed, key)
	}
	requested := map[string]int64{}
	for _, c := range s.containers {
		if c.counts && c.Bandwidth > 0 && c.Flow {
			requested[c.Application] += c.Bandwidth
		}
	}
	if changed = !maps.Equal(requested, s.requested); changed {
		s.requested = requested
	}
	// Another pod may have the address of a container that is missing, unless the container's processes run.
	addresses := map[netip.Addr]string{}
	for address, key := range s.addresses {
		if c := s.containers[key]; c.counts && !c.missing.IsZero() && running[key] {
			addresses[address] = key
		}
	}
	maps.Copy(addresses, a.addresses)
	s.addresses, s.last = addresses, a
	s.last.containers, s.last.addresses, s.last.ended = nil, nil, nil
	return first, changed, before
}

// Requested returns the MB/s that the containers of this machine have requested, by application, as far as
// applications have flows of their own. The last answers count.
func (d *Directory) Requested() map[string]int64 {
	if d == nil {
		return nil
	}
	all := map[string]int64{}
	for _, s := range d.sources {
		s.mu.Lock()
		maps.Copy(all, s.requested) // applications of two orchestrators have different names
		s.mu.Unlock()
	}
	return all
}

// Knowledge is what a directory knows of a container.
type Knowledge uint8

const (
	NotAsked Knowledge = iota // no orchestrator of this kind is asked
	Missing                   // the orchestrator has not reported it (yet)
	Known
)

// Of returns the container of an owner. The names of a delegated cgroup are no evidence, so they are not looked
// up. If the container is missing, the orchestrator is asked soon.
func (d *Directory) Of(o owner.Owner) (Container, Knowledge) {
	if d == nil || o.Delegated {
		return Container{}, NotAsked
	}
	for _, s := range d.sources {
		if s.kind == o.Kind {
			return s.of(keyOf(o), time.Now())
		}
	}
	return Container{}, NotAsked
}

func (s *source) of(key string, now time.Time) (Container, Knowledge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, known := s.containers[key]; known {
		return c.Container, Known
	}
	at, was := s.missed[key]
	if !was && len(s.missed) >= maxMissed {
		clear(s.missed)
	}
	s.missed[key] = now
	if was && now.Sub(at) < missedFor {
		return Container{}, Missing
	}
	select {
	case s.wake <- struct{}{}:
	default: // it is about to be asked
	}
	return Container{}, Missing
}

// Application returns the name of the application of an owner; empty: it is not known.
func (d *Directory) Application(o owner.Owner) string {
	c, _ := d.Of(o)
	return c.Application
}

// At returns the container that has an address of its own on this machine. Old answers do not count.
func (d *Directory) At(address netip.Addr) (Container, bool) {
	if d == nil {
		return Container{}, false
	}
	address = address.Unmap().WithZone("")
	for _, s := range d.sources {
		if c, ok := s.at(address, time.Now()); ok {
			return c, true
		}
	}
	return Container{}, false
}

func (s *source) at(address netip.Addr, now time.Time) (Container, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.answered) > max(addressesFor, 2*s.Period) {
		return Container{}, false
	}
	c, ok := s.containers[s.addresses[address]]
	return c.Container, ok && c.counts
}

// States returns the state of each orchestrator.
func (d *Directory) States() []State {
	if d == nil {
		return nil
	}
	var all []State
	for _, s := range d.sources {
		all = append(all, s.state())
	}
	return all
}

func (s *source) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Kind: s.kind, URL: s.URL, Answered: s.answered, Failures: s.failures, SlowFiles: s.slowFiles, Containers: s.current, Absent: s.absent, Skipped: s.last.skipped, LeftOut: s.last.leftOut, Offered: s.last.offered}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	var current []Container
	for _, c := range s.containers {
		if c.counts {
			current = append(current, c.Container)
		}
	}
	out.Applications = sum(current)
	return out
}
