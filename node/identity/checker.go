package identity

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"penstock/node/loglimit"
	"penstock/node/mounts"
)

// Users returns the user of an application, as the ResourceManager reports it.
type Users interface {
	// User does not block. It returns false if the application is unknown.
	User(application string) (user string, ok bool)
}

// Settings of a Checker. Zero values select the defaults.
type Settings struct {
	Mode Mode
	// LocalDirs are the NodeManager's local directories, SparkDirs the work directories of
	// Spark's standalone workers.
	LocalDirs, SparkDirs []string
	// Cgroup is the NodeManager's cgroups.hierarchy; default hadoop-yarn.
	Cgroup string
	// Services are the users that DataNodes and balancers run as: their names, as in block tokens.
	// ServiceUIDs are the ids of those users that exist on this machine.
	Services    []string
	ServiceUIDs []uint32
	Rules       []Rule // of named services; SetRules replaces them
	Users       Users  // nil: only the local directories are evidence
	Remote      Remote // nil: peers on other nodes are unknown
	// Written returns the flow and the user of the block that a DataNode of this machine writes, once they are
	// verified; "" if they are not, not before ctx ends, or if the asker is this operation itself (Claim.Writing). nil: they are not known.
	Written func(ctx context.Context, pid int, block string, asker int64) (flow, user string)
	// Containers are those of Kubernetes and Mesos; nil: they are not known.
	Containers Containers
	Log        *slog.Logger
	Calls      *mounts.Calls // on local directories, which may hang; nil: calls of its own

	Proc     string        // /proc
	Workers  int           // concurrent lookups on this machine; 2
	Asking   int           // concurrent questions to other nodes; 8
	Queue    int           // waiting lookups, and waiting questions, at most so many of each; 1024
	Waiters  int           // claims that wait for the same lookup; 1024
	Cache    int           // verdicts kept; 8192
	Budget   time.Duration // for one lookup on this machine; 500 ms
	Patience time.Duration // for one question to another node; 2 s
}

// How long a verdict is kept. A verdict found through a local socket ends with the socket; the age
// is only a second limit. A verdict from another node ends with the DataNode's end of the
// connection. If that end is not found, only the addresses are known, and another process on that
// node may soon get the same port.
const (
	socketAge  = time.Minute
	otherAge   = 10 * time.Second
	remoteAge  = time.Second
	unknownAge = 2 * time.Second
)

const maxServers = 256

// Checker checks claims. Its methods are safe for concurrent use.
type Checker struct {
	Stats Stats

	settings Settings
	proc     proc
	records  *records
	inspect  inspector
	log      limitedLog
	uids     map[uint32]bool
	accounts map[string]bool // names of the services' users, for processes on other nodes
	rights   rights

	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	looking atomic.Int32 // examinations of processes in progress

	mu            sync.Mutex
	closed        bool
	localLookups  pool // lookups on this machine
	nodeQuestions pool // questions to other nodes, which may take long
	pending       map[Claim]*lookup
	cache         *simplelru.LRU[Claim, *entry]
	servers       map[serving]int // number of connections of each
	hints         []hint          // processes found by lookups, the latest first
	rules         []Rule          // of named services; never changed, only replaced
	ruleSet       int             // number of times that they were replaced
	stamps        []string        // of applications that were confirmed, the latest first
}

// lookup is one lookup in progress, with the callers that wait for its result.
type lookup struct {
	claim    Claim
	waiters  []func(Verdict)
	asksNode bool // another node is asked, or another claim's verdict is awaited
	server   Peer // the DataNode of this machine whose claim's verdict is awaited, if PID is not 0
	own      hold // this machine's end of the connection, if another node is asked
	ruleSet  int  // see Checker
}

// pool is a set of workers and their queue.
type pool struct {
	workers int // at most
	running int
	queue   []*lookup // the first is the next
	do      func(*lookup)
}

// entry is a cached verdict.
type entry struct {
	verdict Verdict
	until   time.Time
	hold    hold
}

// hold is the descriptor by which a verdict was found; inode 0: none.
type hold struct {
	pid, fd int
	inode   uint64
}

// New returns a Checker. It has no goroutine while there are no lookups. Close ends it.
func New(s Settings) *Checker {
	or := func(v *int, value int) {
		if *v <= 0 {
			*v = value
		}
	}
	or(&s.Workers, 2)
	or(&s.Asking, 8)
	or(&s.Queue, 1024)
	or(&s.Waiters, 1024)
	or(&s.Cache, 8192)
	if s.Budget <= 0 {
		s.Budget = 500 * time.Millisecond
	}
	if s.Patience <= 0 {
		s.Patience = 2 * time.Second
	}
	if s.Proc == "" {
		s.Proc = "/proc"
	}
	if s.Cgroup == "" {
		s.Cgroup = "hadoop-yarn"
	}
	if s.Calls == nil {
		s.Calls = &mounts.Calls{}
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Services = slices.Clone(s.Services)
	for i := range s.Services {
		s.Services[i] = ShortName(s.Services[i])
	}
	c := &Checker{
		settings: s, proc: proc(s.Proc), records: newRecords(proc(s.Proc), s.Calls), uids: map[uint32]bool{}, accounts: map[string]bool{},
		pending: map[Claim]*lookup{}, servers: map[serving]int{}, rules: slices.Clone(s.Rules),
	}
	c.cache, _ = simplelru.NewLRU[Claim, *entry](s.Cache, nil) // fails only for a size below 1
	c.localLookups, c.nodeQuestions = pool{workers: s.Workers, do: c.lookHere}, pool{workers: s.Asking, do: c.askNode}
	c.log, c.rights.log = limitedLog{loglimit.New(s.Log)}, s.Log
	c.records.denied = c.rights.records
	c.records.setDirs(s.LocalDirs, s.SparkDirs)
	c.inspect = inspector{c.proc, s.Cgroup, c.records, s.Users, c.isServer, s.Containers}
	for _, uid := range s.ServiceUIDs {
		c.uids[uid] = true
	}
	for _, name := range s.Services {
		c.accounts[name] = true
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Mode returns the mode in force.
func (c *Checker) Mode() Mode { return c.settings.Mode }

// SetDirs replaces the directories of the NodeManager and of Spark. Agents may report directories
// while the daemon runs.
func (c *Checker) SetDirs(local, spark []string) { c.records.setDirs(local, spark) }

// Close ends the lookups. Callers that wait get Unknown.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	left := append(c.localLookups.queue, c.nodeQuestions.queue...)
	c.localLookups.queue, c.nodeQuestions.queue = nil, nil
	for _, l := range left {
		delete(c.pending, l.claim)
	}
	c.mu.Unlock()
	c.cancel()
	for _, l := range left {
		c.answer(l, unknown("the daemon is stopping"))
	}
	c.workers.Wait()
}

// Check returns the verdict and true if it is known or needs no lookup. Otherwise it calls done
// with the verdict once, later, from another goroutine and with no lock held; done must not block
// for long. Check itself makes at most one system call.
func (c *Checker) Check(claim Claim, done func(Verdict)) (Verdict, bool) {
	if c.Mode() == Trust {
		return Verdict{}, true
	}
	if v, ok := c.known(claim); ok {
		c.Stats.Hits.Add(1)
		c.Stats.count(v)
		return v, true
	}
	if class := classOf(claim.Flow); class == classOther ||
		claim.withoutConnection() && (claim.User == "" || class != classApplication) {
		v := c.facts(claim).verdict(claim.Flow)
		c.Stats.count(v)
		return v, true
	}
	v, ok := c.enqueue(claim, done)
	if ok {
		c.Stats.Overflows.Add(1)
		c.Stats.count(v)
	}
	return v, ok
}

func (c *Checker) known(claim Claim) (Verdict, bool) {
	c.mu.Lock()
	e, ok := c.cache.Get(claim)
	c.mu.Unlock()
	if !ok {
		return Verdict{}, false
	}
	if time.Now().Before(e.until) && (e.hold.inode == 0 || c.proc.holdsStill(e.hold.pid, e.hold.fd, e.hold.inode)) {
		return e.verdict, true
	}
	c.mu.Lock()
	if now, _ := c.cache.Peek(claim); now == e {
		c.cache.Remove(claim)
	}
	c.mu.Unlock()
	return Verdict{}, false
}

// enqueue adds the claim to a lookup in progress for the same claim, or begins a lookup. It
// returns Unknown and true if there is no room.
func (c *Checker) enqueue(claim Claim, done func(Verdict)) (Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.pending[claim]; ok {
		if len(l.waiters) >= c.settings.Waiters {
			return unknown("too many wait for the same answer"), true
		}
		l.waiters = append(l.waiters, done)
		return Verdict{}, false
	}
	if c.closed || len(c.localLookups.queue) >= c.settings.Queue {
		return unknown("too many lookups wait"), true
	}
	l := &lookup{claim: claim, waiters: []func(Verdict){done}, ruleSet: c.ruleSet}
	c.pending[claim] = l
	c.begin(&c.localLookups, l)
	return Verdict{}, false
}

// begin gives a lookup to a pool. c.mu is held.
func (c *Checker) begin(p *pool, l *lookup) {
	p.queue = append(p.queue, l)
	if p.running < p.workers {
		p.running++
		c.workers.Go(func() { c.work(p) })
	}
}

func (c *Checker) work(p *pool) {
	for {
		c.mu.Lock()
		if len(p.queue) == 0 {
			p.queue = nil // releases the memory of a long queue
			p.running--
			c.mu.Unlock()
			return
		}
		l := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		c.mu.Unlock()
		p.do(l)
	}
}

// lookHere looks on this machine. It passes a peer on another machine to the pool that asks other
// nodes.
func (c *Checker) lookHere(l *lookup) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, c.settings.Budget)
	type finding struct {
		v     Verdict
		h     hold
		later *Peer
	}
	f, ok := bounded(ctx, c, func() (f finding) {
		f.v, f.h, f.later = c.find(ctx, l.claim)
		return f
	})
	if !ok {
		f.v = unknown("%v", errTime)
	}
	v, h, later := f.v, f.h, f.later
	if ctx.Err() != nil {
		c.Stats.Slow.Add(1)
	}
	cancel()
	c.Stats.Lookups.Add(1)
	c.Stats.Nanoseconds.Add(int64(time.Since(began)))
	if later == nil {
		c.end(l, v, h)
		return
	}
	c.mu.Lock()
	closed, full := c.closed, len(c.nodeQuestions.queue) >= c.settings.Queue
	switch {
	case closed:
	case full:
		delete(c.pending, l.claim)
	default:
		l.asksNode, l.own, l.server = true, h, *later
		c.begin(&c.nodeQuestions, l)
	}
	c.mu.Unlock()
	switch {
	case closed:
		c.end(l, unknown("the daemon is stopping"), hold{})
	case full: // questions about local clients have a limit of their own
		c.Stats.Overflows.Add(1)
		c.answer(l, unknown("too many questions to other nodes wait"))
	}
}

// A look at a process may hang, for example while one of its threads waits for a disk and holds a lock of the kernel. Such a
// look is given up overrun after its time, and occupies a thread until it ends.
const (
	overrun    = time.Second
	maxLooking = 256 // looks in progress, including those that were given up
)

// bounded returns the result of look, unless look lasts longer than ctx and overrun, or too many looks
// hang.
func bounded[T any](ctx context.Context, c *Checker, look func() T) (found T, ok bool) {
	if c.looking.Add(1) > maxLooking {
		c.looking.Add(-1)
		return found, false
	}
	got := make(chan T, 1)
	go func() {
		defer c.looking.Add(-1)
		got <- look()
	}()
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(overrun, func() { close(late) }) })
	defer stop()
	select {
	case found = <-got:
		return found, true
	case <-late:
		return found, false
	}
}

// end records the result of a lookup and answers its callers.
func (c *Checker) end(l *lookup, v Verdict, h hold) {
	if v.State == Refuted {
		c.log.refuted(l.claim.Flow, v, "client", l.claim.Client)
	}
	c.noteStamp(v)
	c.keep(l, v, h)
	c.answer(l, v)
}

// keep caches a verdict and ends its lookup.
func (c *Checker) keep(l *lookup, v Verdict, h hold) {
	claim, age := l.claim, otherAge
	switch {
	case v.State == Unknown:
		age, h = unknownAge, hold{}
	case l.asksNode && h.inode == 0:
		age = remoteAge
	case !l.asksNode && h.inode != 0:
		age = socketAge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, claim)
	if l.ruleSet == c.ruleSet { // else the verdict may come from rules that are no longer in force
		c.cache.Add(claim, &entry{v, time.Now().Add(age), h})
	}
}

// answer calls the waiting callers. The lookup is no longer pending, so no caller can join it.
func (c *Checker) answer(l *lookup, v Verdict) {
	for _, done := range l.waiters {
		c.Stats.count(v)
		done(v)
	}
}

// facts returns the facts that are known without examining the peer.
func (c *Checker) facts(claim Claim) facts {
	c.mu.Lock()
	uids, accounts, rules := c.uids, c.accounts, c.rules
	c.mu.Unlock()
	f := facts{
		rules: rules, name: claim.Name,
		own: claim.Own, why: "the ends of its connection are not known, as of a domain socket",
		tokenUser: ShortName(claim.User), services: c.settings.Services, serviceUIDs: uids, accounts: accounts,
	}
	if f.own {
		f.why = "the DataNode does it for itself"
	}
	return f
}

// nobody reports whether there is no peer to look up.
func (c Claim) withoutConnection() bool { return c.Own || c.Client == "" && c.Server == "" }

// loopback reports whether the client must be on this machine.
func (c Claim) loopback() bool {
	client, err := parseAddress(c.Client)
	return err == nil && client.Addr().IsLoopback()
}

// find is one lookup on this machine. If later is not nil, there is no verdict yet: if later is a DataNode of this
// machine, the verdict depends on another claim; otherwise another node must be asked. h is then an end of the
// connection on this machine.
func (c *Checker) find(ctx context.Context, claim Claim) (v Verdict, h hold, later *Peer) {
	f := c.facts(claim)
	if f.tokenUser != "" && classOf(claim.Flow) == classApplication {
		f.owner = c.inspect.user(claim.Flow)
	}
	if !claim.withoutConnection() {
		var err error
		var p Peer
		if p, h, err = c.peer(ctx, claim); errors.Is(err, errElsewhere) && c.settings.Remote != nil && !claim.loopback() {
			return Verdict{}, h, &Peer{}
		} else if err != nil {
			f.why = err.Error()
		} else if p.Server && claim.Block != "" && c.settings.Written != nil && forwardable(claim.Flow) {
			return Verdict{}, h, &p
		} else {
			f.examined(p)
		}
	}
	return f.verdict(claim.Flow), h, nil
}

// Process checks the flow that a local process names against evidence about the process. It is for
// the agents and plug-ins of tasks and executors, whose pid and user come from the kernel
// (SO_PEERCRED). It reads a few files. This may take some milliseconds: at most the settings'
// Budget and overrun.
func (c *Checker) Process(pid int32, uid uint32, flow string) Verdict {
	if c.Mode() == Trust {
		return Verdict{}
	}
	p, err := c.local(pid, uid)
	f := facts{rules: c.Rules()}
	if err != nil {
		f.why = err.Error()
	} else {
		f.examined(p)
	}
	v := judge(flow, f)
	if errors.Is(err, errGone) {
		// A process that connects and ends may have passed the connection on to another process.
		v = Verdict{State: Refuted, Evidence: NoEvidence, Detail: f.why}
	}
	c.Stats.count(v)
	c.noteStamp(v)
	if v.State == Refuted {
		c.log.refuted(flow, v, "agent", pid)
	}
	return v
}

func (c *Checker) local(pid int32, uid uint32) (Peer, error) {
	if pid <= 0 {
		return Peer{}, errNamespace
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.settings.Budget)
	defer cancel()
	type finding struct {
		p   Peer
		err error
	}
	f, ok := bounded(ctx, c, func() (f finding) {
		f.p, f.err = c.inspect.inspect(ctx, int(pid), time.Now())
		return f
	})
	if !ok {
		return Peer{}, errTime
	}
	p, err := f.p, f.err
	c.rights.process(err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = errGone // between two reads
	}
	if err == nil && p.UID != uid {
		return Peer{}, errGone // the process that connected has ended or has changed its user
	}
	return p, err
}

// AddServer registers a process as a DataNode or NodeManager, so that its operations at other
// DataNodes may belong to service flows such as `replication`. It does not accept a process in a
// container, or a process that has ended since it connected: the verdict is then Refuted. remove
// undoes the registration; it is never nil.
func (c *Checker) AddServer(pid int32, uid uint32) (v Verdict, remove func()) {
	p, err := c.local(pid, uid)
	if errors.Is(err, errGone) {
		v := Verdict{State: Refuted, Evidence: NoEvidence, Detail: err.Error()}
		c.log.refuted("a server", v, "agent", pid)
		return v, func() {}
	}
	if err != nil {
		return unknown("%v", err), func() {}
	}
	if p.Application != "" {
		v := Verdict{State: Refuted, Flow: p.Application, Evidence: p.Evidence, Detail: "a server in " + p.Container}
		c.log.refuted("a server", v, "agent", pid)
		return v, func() {}
	}
	l, err := c.proc.life(int(pid))
	if err != nil {
		return unknown("%v", err), func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	this := serving{l.pid, l.start}
	if c.servers[this] == 0 && len(c.servers) >= maxServers {
		return unknown("too many servers"), func() {}
	}
	c.servers[this]++ // a process that connects again counts twice for a while
	return Verdict{State: Confirmed, Evidence: Server}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.servers[this]--; c.servers[this] <= 0 {
			delete(c.servers, this)
		}
	}
}

// serving identifies the process of a DataNode or a NodeManager.
type serving struct {
	pid   int
	start uint64 // see life
}

func (c *Checker) isServer(l life) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[serving{l.pid, l.start}] > 0
}

// AddServiceUID adds uid, the user that a DataNode on this machine runs as, to the services' users.
// Only processes outside of containers are recognised by their user.
func (c *Checker) AddServiceUID(uid uint32) {
	name, named := userName(uid) // reads a file
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uids[uid] {
		return
	}
	c.uids, c.accounts = maps.Clone(c.uids), maps.Clone(c.accounts) // lookups in progress use the old ones
	if c.uids[uid] = true; named {                                  // a number is valid on this machine only
		c.accounts[name] = true
	}
}
