package ipc

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"penstock/wire"
)

// Slots for connections. Servers have slots of their own. A single user may fill all other slots,
// since all tasks have the same user under YARN's DefaultContainerExecutor; a single container may
// fill only its part. If all are taken, a newcomer may displace another connection: if its user has
// at least two connections fewer than the user with the most, it takes the slot of that user's
// newest connection. Containers of the same user are compared in the same way. The gates of the
// displaced agent open, and it connects again. So the slots are evened out, and no peer excludes
// others by being first. The difference must be at least two: with a difference of one, two peers
// would displace each other for ever.

// Agents returns the accepted connections, oldest first; at most MaxConnections.
func (s *Server) Agents() []Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.agents), func(a, b Agent) int { return a.Since.Compare(b.Since) })
}

// enter adds a connection to the accepted ones if its role has a free slot.
func (s *Server) enter(c *connection, a Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents == nil {
		s.agents = map[*connection]Agent{}
	}
	t := s.tally(Serves(a.Role))
	if !Serves(a.Role) && t.containers[a.owner()] >= MaxContainerConnections {
		return fmt.Errorf("%w: already %d connections of this container", ErrBound, MaxContainerConnections)
	}
	bound, kind := s.bounds.Servers, "DataNodes, NodeManagers and Workers"
	if !Serves(a.Role) {
		bound, kind = s.bounds.Connections-s.bounds.Servers, "tasks and executors"
	}
	if t.all >= bound {
		victim := t.victim(s.agents, a)
		if victim == nil {
			return fmt.Errorf("%w: there are already %d connections of %s", ErrBound, bound, kind)
		}
		delete(s.agents, victim)
		s.Stats.Displaced.Add(1)
		victim.c.Close()
	}
	s.agents[c] = a
	return nil
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, c)
}

func (a Agent) owner() Owner { return Owner{a.UID, a.Container} }

// tally counts the connections of servers, or of all others.
type tally struct {
	serves     bool
	all        int
	users      map[uint32]int
	containers map[Owner]int
}

func (s *Server) tally(serves bool) tally {
	t := tally{serves, 0, map[uint32]int{}, map[Owner]int{}}
	for _, a := range s.agents {
		if Serves(a.Role) == serves {
			t.all++
			t.users[a.UID]++
			t.containers[a.owner()]++
		}
	}
	return t
}

// victim returns the connection that loses its slot to a newcomer; nil: none.
func (t tally) victim(agents map[*connection]Agent, newcomer Agent) *connection {
	most := newcomer.UID
	for uid, n := range t.users {
		if n > t.users[most] || n == t.users[most] && uid < most {
			most = uid
		}
	}
	if t.users[newcomer.UID]+2 > t.users[most] {
		most = newcomer.UID
	}
	var victim *connection
	var of Agent
	for c, a := range agents {
		if Serves(a.Role) != t.serves || a.UID != most {
			continue
		}
		n, largest := t.containers[a.owner()], t.containers[of.owner()]
		if victim == nil || n > largest || n == largest && a.Since.After(of.Since) {
			victim, of = c, a
		}
	}
	if victim != nil && most == newcomer.UID && t.containers[newcomer.owner()]+2 > t.containers[of.owner()] {
		return nil
	}
	return victim
}

// greeting is a connection that has not sent its hello.
type greeting struct {
	owner Owner
	c     net.Conn
}

// beginGreeting adds a connection to those without a hello. A peer may delay its hello for a while.
// If a bound is reached, the oldest of the connections that count towards this bound is closed,
// since agents send their hello at once.
func (s *Server) beginGreeting(g *greeting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	users, containers := map[uint32]int{}, 0
	for _, other := range s.greetings {
		users[other.owner.UID]++
		if other.owner == g.owner {
			containers++
		}
	}
	oldest := func(of func(*greeting) bool) {
		if i := slices.IndexFunc(s.greetings, of); i >= 0 {
			s.greetings[i].c.Close()
			s.greetings = slices.Delete(s.greetings, i, i+1)
			s.Stats.Refused.Add(1)
		}
	}
	switch {
	// The container of a connection by loopback is not known yet.
	case g.owner.Container != "" && containers >= maxContainerGreets:
		oldest(func(o *greeting) bool { return o.owner == g.owner })
	case users[g.owner.UID] >= maxUserGreets:
		oldest(func(o *greeting) bool { return o.owner.UID == g.owner.UID })
	case len(s.greetings) >= s.bounds.Greetings:
		most := g.owner.UID
		for uid, n := range users {
			if n > users[most] {
				most = uid
			}
		}
		oldest(func(o *greeting) bool { return o.owner.UID == most })
	}
	s.greetings = append(s.greetings, g)
}

func (s *Server) endGreeting(g *greeting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.greetings, g); i >= 0 {
		s.greetings = slices.Delete(s.greetings, i, i+1)
	}
}

// Rates of new connections. A refused agent connects again twice a second. When the daemon
// starts, all agents of the machine connect at once. For a user that may connect as a server,
// only the rate of each process is limited: tasks of the same user must not keep a DataNode out.
const (
	connectsOfProcess = 4 // per second
	processBurst      = 2 * MaxContainerConnections
	connectsOfUser    = 100
	userBurst         = 2 * MaxConnections
	ratesKept         = 4096
)

// rateLimiters are token buckets by user and by owner. Peers may appear as any number of users and
// owners, so only the most recently used buckets are kept. The methods are not safe for concurrent
// use.
type rateLimiters struct {
	users  *simplelru.LRU[uint32, *rate.Limiter]
	owners *simplelru.LRU[Owner, *rate.Limiter]
}

func newRateLimiters() rateLimiters {
	users, _ := simplelru.NewLRU[uint32, *rate.Limiter](ratesKept, nil) // fails only for a size below 1
	owners, _ := simplelru.NewLRU[Owner, *rate.Limiter](ratesKept, nil)
	return rateLimiters{users, owners}
}

// user reports whether the user may connect now.
func (r rateLimiters) user(uid uint32, now time.Time) bool {
	return bucket(r.users, uid, connectsOfUser, userBurst).AllowN(now, 1)
}

// owner reports whether the process or container may connect now.
func (r rateLimiters) owner(o Owner, now time.Time) bool {
	return bucket(r.owners, o, connectsOfProcess, processBurst).AllowN(now, 1)
}

// bucket returns the token bucket of a key. A new bucket is full.
func bucket[K comparable](of *simplelru.LRU[K, *rate.Limiter], key K, perSecond rate.Limit, burst int) *rate.Limiter {
	l, ok := of.Get(key)
	if !ok {
		l = rate.NewLimiter(perSecond, burst)
		of.Add(key, l)
	}
	return l
}

// Rates of frames from tasks and executors. Beyond these rates, the daemon does not read the
// connection for a while, which delays only the connection's own streams. A connection has at most
// one request waiting at its user's limiter, so the connections of a user take turns. A task that
// reads or writes 1 GB/s sends 16,000 frames per second, since it reports every 64 KiB at most.
const (
	framesOfContainer = 20_000 // per second
	containerFrames   = 65_536 // at once: an executor may open 4,096 files
	framesOfUser      = 100_000
	userFrames        = 400_000
	framesAtOnce      = 64 // frames that are accounted together
	openFrames        = 10 // cost of an OPEN, in frames
)

// frameRates returns the limits for a connection; nil for the connection of a server.
func (s *Server) frameRates(role wire.Role, o Owner) []*rate.Limiter {
	if Serves(role) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.framesOf == nil {
		r := newRateLimiters()
		s.framesOf = &r
	}
	return []*rate.Limiter{
		bucket(s.framesOf.owners, o, framesOfContainer, containerFrames),
		bucket(s.framesOf.users, o.UID, framesOfUser, userFrames),
	}
}

// pay waits until the given number of frames may be received.
func (c *connection) pay(ctx context.Context, frames int) error {
	if c.paid -= frames; c.paid >= 0 {
		return nil
	}
	for _, l := range c.rates {
		if err := l.WaitN(ctx, framesAtOnce); err != nil {
			return err
		}
	}
	c.paid += framesAtOnce
	return nil
}

// ownerOf returns the user and the container that a connection belongs to.
func (s *Server) ownerOf(pid int32, uid uint32) Owner {
	o := Owner{UID: uid}
	if s.Container != nil {
		o.Container = s.Container(pid)
	}
	if o.Container == "" {
		o.Container = "process " + strconv.Itoa(int(pid))
	}
	return o
}
