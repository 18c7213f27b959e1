package identity

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"penstock/node/loglimit"
)

// Users knows the users of applications, as the ResourceManager does.
type Users interface {
	// User does not block; false if it does not know the application.
	User(application string) (user string, ok bool)
}

// Settings of a Checker. Zero values are the defaults.
type Settings struct {
	Mode Mode
	// LocalDirs are the NodeManager's local directories, SparkDirs the work directories of
	// Spark's standalone workers.
	LocalDirs, SparkDirs []string
	// Cgroup is the NodeManager's cgroups.hierarchy; hadoop-yarn.
	Cgroup string
	// Services are the users that DataNodes and balancers run as: their names, as block
	// tokens have them, and the numbers of those that this machine knows.
	Services    []string
	ServiceUIDs []uint32
	Users       Users  // nil: only what the local directories tell
	Remote      Remote // nil: peers on other nodes are unknown
	Log         *slog.Logger

	Proc     string        // /proc
	Workers  int           // lookups on this machine at once; 2
	Asking   int           // questions to other nodes at once; 8
	Queue    int           // lookups that wait, and questions that do; 1024 each
	Waiters  int           // claims that wait for one lookup; 1024
	Cache    int           // verdicts kept; 8192
	Budget   time.Duration // for one lookup on this machine; 500 ms
	Patience time.Duration // for one question to another node; 2 s
}

// How long a verdict is kept. One that was found by a local socket ends with the
// socket; the age is only a second bound. One that another node gave ends with the
// DataNode's end of the connection; where that is not found, addresses are all there is, and the
// next process there may get the same port.
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
	accounts map[string]bool // the services' names, by which other nodes know users
	rights   rights

	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	here    pool // lookups on this machine
	abroad  pool // those that have come to be questions to other nodes: they may take long
	pending map[Claim]*lookup
	cache   *simplelru.LRU[Claim, *entry]
	servers map[serving]int // their connections
	hints   []hint          // those whose connections were looked up, the latest first
}

// lookup is one question under way, with those who wait for its answer.
type lookup struct {
	claim   Claim
	waiters []func(Verdict)
	abroad  bool // another node is asked
	own     hold // this machine's end of the connection, then
}

// pool are workers and what they have to do.
type pool struct {
	workers int // at most
	running int
	queue   []*lookup // the first is the next
	do      func(*lookup)
}

// entry is a verdict that is kept.
type entry struct {
	verdict Verdict
	until   time.Time
	hold    hold
}

// hold is the descriptor that a verdict was found by; inode 0: by none.
type hold struct {
	pid, fd int
	inode   uint64
}

// New gives a Checker. It has no goroutine while nothing is asked; Close ends it.
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
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Services = slices.Clone(s.Services)
	for i := range s.Services {
		s.Services[i] = ShortName(s.Services[i])
	}
	c := &Checker{
		settings: s, proc: proc(s.Proc), records: newRecords(proc(s.Proc)), uids: map[uint32]bool{}, accounts: map[string]bool{},
		pending: map[Claim]*lookup{}, servers: map[serving]int{},
	}
	c.cache, _ = simplelru.NewLRU[Claim, *entry](s.Cache, nil) // fails for a size below 1 only
	c.here, c.abroad = pool{workers: s.Workers, do: c.lookHere}, pool{workers: s.Asking, do: c.askAbroad}
	c.log, c.rights.log = limitedLog{loglimit.New(s.Log)}, s.Log
	c.records.denied = c.rights.records
	c.records.setDirs(s.LocalDirs, s.SparkDirs)
	c.inspect = inspector{c.proc, s.Cgroup, c.records, s.Users, c.isServer}
	for _, uid := range s.ServiceUIDs {
		c.uids[uid] = true
	}
	for _, name := range s.Services {
		c.accounts[name] = true
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Mode is the one in force.
func (c *Checker) Mode() Mode { return c.settings.Mode }

// SetDirs replaces the NodeManager's and Spark's directories, which are known late
// where an agent tells of them.
func (c *Checker) SetDirs(local, spark []string) { c.records.setDirs(local, spark) }

// Close ends the lookups. Those who wait get Unknown.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	left := append(c.here.queue, c.abroad.queue...)
	c.here.queue, c.abroad.queue = nil, nil
	for _, l := range left {
		delete(c.pending, l.claim)
	}
	c.mu.Unlock()
	c.cancel()
	for _, l := range left {
		c.answer(l, unknown("the daemon stops"))
	}
	c.workers.Wait()
}

// Check gives the verdict if it is known or can be had without asking anybody, and
// true. Otherwise done is called with it once, later, from another goroutine and with no
// lock held; it must not block for long. Check itself asks the kernel one question at
// most.
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
		claim.nobody() && (claim.User == "" || class != classApplication) {
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

// enqueue puts the claim to the others that wait for the same, or begins a lookup; true
// if there is no room for it.
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
	if c.closed || len(c.here.queue) >= c.settings.Queue {
		return unknown("too many lookups wait"), true
	}
	l := &lookup{claim: claim, waiters: []func(Verdict){done}}
	c.pending[claim] = l
	c.begin(&c.here, l)
	return Verdict{}, false
}

// begin has a pool do a lookup. c.mu is held.
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
			p.queue = nil // let go of what it has grown to
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

// lookHere looks on this machine, and leaves a peer of another one to those who ask there.
func (c *Checker) lookHere(l *lookup) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, c.settings.Budget)
	v, h, remote := c.find(ctx, l.claim)
	if ctx.Err() != nil {
		c.Stats.Slow.Add(1)
	}
	cancel()
	c.Stats.Lookups.Add(1)
	c.Stats.Nanoseconds.Add(int64(time.Since(began)))
	if !remote {
		c.end(l, v, h)
		return
	}
	c.mu.Lock()
	closed, full := c.closed, len(c.abroad.queue) >= c.settings.Queue
	switch {
	case closed:
	case full:
		delete(c.pending, l.claim)
	default:
		l.abroad, l.own = true, h
		c.begin(&c.abroad, l)
	}
	c.mu.Unlock()
	switch {
	case closed:
		c.end(l, unknown("the daemon stops"), hold{})
	case full: // claims from here have a bound of their own
		c.Stats.Overflows.Add(1)
		c.answer(l, unknown("too many questions to other nodes wait"))
	}
}

// end tells what a lookup has come to.
func (c *Checker) end(l *lookup, v Verdict, h hold) {
	if v.State == Refuted {
		c.log.refuted(l.claim.Flow, v, "client", l.claim.Client)
	}
	c.keep(l, v, h)
	c.answer(l, v)
}

// keep puts a verdict into the cache and ends its lookup.
func (c *Checker) keep(l *lookup, v Verdict, h hold) {
	claim, age := l.claim, otherAge
	switch {
	case v.State == Unknown:
		age, h = unknownAge, hold{}
	case l.abroad && h.inode == 0:
		age = remoteAge
	case !l.abroad && h.inode != 0:
		age = socketAge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, claim)
	c.cache.Add(claim, &entry{v, time.Now().Add(age), h})
}

// answer calls those who wait. The lookup is no longer among the pending ones, so
// that nobody joins it.
func (c *Checker) answer(l *lookup, v Verdict) {
	for _, done := range l.waiters {
		c.Stats.count(v)
		done(v)
	}
}

// facts are the ones that need no look at the peer.
func (c *Checker) facts(claim Claim) facts {
	c.mu.Lock()
	uids, accounts := c.uids, c.accounts
	c.mu.Unlock()
	f := facts{
		own: claim.Own, why: "the ends of its connection are not known, as of a domain socket",
		tokenUser: ShortName(claim.User), services: c.settings.Services, serviceUIDs: uids, accounts: accounts,
	}
	if f.own {
		f.why = "the DataNode does it for itself"
	}
	return f
}

// nobody reports whether there is no peer to look for.
func (c Claim) nobody() bool { return c.Own || c.Client == "" && c.Server == "" }

// loopback reports whether the client can be on no other machine.
func (c Claim) loopback() bool {
	client, err := parseAddress(c.Client)
	return err == nil && client.Addr().IsLoopback()
}

// find is one lookup on this machine; remote if another one is to be asked, and h is of this
// machine's end of the connection then.
func (c *Checker) find(ctx context.Context, claim Claim) (v Verdict, h hold, remote bool) {
	f := c.facts(claim)
	if f.tokenUser != "" && classOf(claim.Flow) == classApplication {
		f.owner = c.inspect.user(claim.Flow)
	}
	if !claim.nobody() {
		var err error
		if f.peer, h, err = c.peer(ctx, claim); errors.Is(err, errElsewhere) && c.settings.Remote != nil && !claim.loopback() {
			return Verdict{}, h, true
		} else if err != nil {
			f.why = err.Error()
		} else {
			f.known = true
		}
	}
	return f.verdict(claim.Flow), h, false
}

// Process holds a flow that a local process names against what is known of the process:
// for the agents and plug-ins of tasks and executors, whose pid and user the kernel tells
// (SO_PEERCRED). It reads a few files and so may take some milliseconds, at most the
// settings' Budget and the time of one system call, or of reading the NodeManager's records.
func (c *Checker) Process(pid int32, uid uint32, flow string) Verdict {
	if c.Mode() == Trust {
		return Verdict{}
	}
	p, err := c.local(pid, uid)
	f := facts{known: err == nil, peer: p}
	if err != nil {
		f.why = err.Error()
	}
	v := judge(flow, f)
	if errors.Is(err, errGone) {
		// Whoever asks for a connection and ends may have made it for somebody else.
		v = Verdict{State: Refuted, Evidence: NoEvidence, Detail: f.why}
	}
	c.Stats.count(v)
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
	p, err := c.inspect.inspect(ctx, int(pid), time.Now())
	c.rights.process(err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = errGone // between two looks at it
	}
	if err == nil && p.UID != uid {
		return Peer{}, errGone // what connected has ended, or has changed its user
	}
	return p, err
}

// AddServer makes a process known as a DataNode or NodeManager, so that what it does at
// other DataNodes may be `replication` and the like. A process in a container, or one
// that has ended since it connected, is not accepted: the verdict is then Refuted.
// remove takes it back; it is never nil.
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
	c.servers[this]++ // one that connects again is known twice for a while
	return Verdict{State: Confirmed, Evidence: Server}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.servers[this]--; c.servers[this] <= 0 {
			delete(c.servers, this)
		}
	}
}

// serving is a DataNode's or a NodeManager's process.
type serving struct {
	pid   int
	start uint64 // see life
}

func (c *Checker) isServer(l life) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[serving{l.pid, l.start}] > 0
}

// AddServiceUID makes a user one of the services', as far as processes outside of
// containers go: the one that a DataNode here runs as.
func (c *Checker) AddServiceUID(uid uint32) {
	name, named := userName(uid) // which reads a file
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uids[uid] {
		return
	}
	c.uids, c.accounts = maps.Clone(c.uids), maps.Clone(c.accounts) // lookups under way have the old ones
	if c.uids[uid] = true; named {                                  // a number is this machine's own
		c.accounts[name] = true
	}
}
