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

// Who may have a slot for a connection. Servers have slots of their own. Of the
// others one user may fill all, as all tasks have one user under YARN's
// DefaultContainerExecutor, and one container only its part. When all are taken, a peer of
// a user (or, of the same user, of a container) that has two fewer than another takes the
// slot of the newest connection of the one with the most: its gates open, and it connects
// again. So slots even out, and nobody keeps others out by being first; two fewer,
// as otherwise the two would displace each other for ever.

// Agents are those that are connected and accepted, oldest first; at most
// MaxConnections of them.
func (s *Server) Agents() []Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.agents), func(a, b Agent) int { return a.Since.Compare(b.Since) })
}

// enter takes a connection among those that are accepted, if its role has a slot.
func (s *Server) enter(c *connection, a Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents == nil {
		s.agents = map[*connection]Agent{}
	}
	t := s.tally(Serves(a.Role))
	if !Serves(a.Role) && t.containers[a.owner()] >= MaxContainerConnections {
		return fmt.Errorf("%w: %d connections of its container already", ErrBound, MaxContainerConnections)
	}
	bound := s.bounds.Servers
	if !Serves(a.Role) {
		bound = s.bounds.Connections - s.bounds.Servers
	}
	if t.all >= bound {
		victim := t.victim(s.agents, a)
		if victim == nil {
			return fmt.Errorf("%w: %d connections of its kind already", ErrBound, bound)
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

// victim is the connection whose slot a newcomer takes; nil: none has to go for it.
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

// greeting is a connection that has not said who it is.
type greeting struct {
	owner Owner
	c     *net.UnixConn
}

// beginGreeting takes a connection among those that have not said a hello, which a peer
// may keep back for a while. At a bound the oldest one goes: an agent says hello at once.
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
	case containers >= maxContainerGreets:
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

// Rates of new connections. An agent that is refused connects again twice a second; when
// the daemon is started, all agents of the machine come at once. A user that may connect
// as a server is held to its processes' rate only: tasks of the same user must not keep a
// DataNode out.
const (
	connectsOfProcess = 4 // a second
	processBurst      = 2 * MaxContainerConnections
	connectsOfUser    = 100
	userBurst         = 2 * MaxConnections
	ratesKept         = 4096
)

// rateLimiters are the token buckets of peers, by user and by owner. A peer may choose how many
// users and owners there are, so only the most recently used are kept. They are not safe for
// concurrent use.
type rateLimiters struct {
	users  *simplelru.LRU[uint32, *rate.Limiter]
	owners *simplelru.LRU[Owner, *rate.Limiter]
}

func newRateLimiters() rateLimiters {
	users, _ := simplelru.NewLRU[uint32, *rate.Limiter](ratesKept, nil) // fails for a size below 1 only
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

// bucket returns the token bucket of a key, which is full at first.
func bucket[K comparable](of *simplelru.LRU[K, *rate.Limiter], key K, perSecond rate.Limit, burst int) *rate.Limiter {
	l, ok := of.Get(key)
	if !ok {
		l = rate.NewLimiter(perSecond, burst)
		of.Add(key, l)
	}
	return l
}

// Rates of frames from tasks and executors. Past them the connection is not read for a
// while, which holds up nobody but its own streams; a connection has one claim to its
// user's rate at a time, so that they take turns. A task that reads or writes 1 GB/s sends
// 16,000 frames a second, as it reports every 64 KiB at most.
const (
	framesOfContainer = 20_000 // a second
	containerFrames   = 65_536 // at once: an executor may open 4,096 files
	framesOfUser      = 100_000
	userFrames        = 400_000
	framesAtOnce      = 64 // are paid for
	openFrames        = 10 // an OPEN counts as so many
)

// frameRates are those that a connection is held to; nil for a server's.
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

// pay waits until frames of that number may be taken.
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
