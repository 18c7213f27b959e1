// Package connections watches the established connections between DataNodes and their clients: whose
// they are, how fast they move bytes, and their round trip times.
//
// Problem: the network part of an HDFS read or write happens in a connection, and neither the
// application nor the block is visible in it. The monitor-and-controller framework for Spark on
// Mesos watches each connection between a DataNode and a container for this reason. Choice: the
// kernel has the figures of all connections (inet_diag), and the DataNode's agent names the two ends
// of the connection that a stream serves, so the flow of the stream is the connection's. That needs
// no privileges and no packet.
//
// A DataNode port is a port that a DataNode's agent has named as a server's end. The watch relies on
// the agent for that: figures serve people, and nothing is governed by them. A connection whose
// stream has ended keeps its last flow while it stays open, because HDFS clients reuse connections.
package connections

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	maxUses        = 16384 // connections with a known flow
	maxPorts       = 64    // DataNode ports
	maxConnections = 16384 // connections looked at, of all ports
	// What one agent may use of these: agents name ports and connections freely.
	maxAgentUses  = maxUses / 4
	maxAgentPorts = 4
)

// Ends are the two ends of a connection. Addresses have no zone: link-local addresses of two
// interfaces that are equal count as one.
type Ends struct{ Server, Client netip.AddrPort }

// Agent is an agent whose streams are recorded. Its fields are protected by Watch.mu.
type Agent struct {
	watch *Watch
	pid   int
	ports map[uint16]bool
	uses  int
}

// Use is one stream's use of a connection. Its methods may be called on nil, for a stream whose
// connection is not watched.
type Use struct {
	watch *Watch
	ends  Ends
	open  bool // protected by Watch.mu
}

// Connection is an established connection.
type Connection struct {
	Socket
	Flow  string // of its present or last stream; empty if no stream was seen
	File  string // the block file of that stream
	Write bool   // the client writes the block
	Open  bool   // the stream has not ended
	PID   int    // of the DataNode that has served the stream; 0 if no stream was seen
	// SentRate and ReceivedRate are means between the last two calls of Look, in bytes per second.
	// A connection that began between them has moved all of its bytes since the first of them.
	SentRate, ReceivedRate float64
}

// Watch knows the connections of the machine's DataNodes. Its methods may be called from several
// goroutines, except Look, which one goroutine at a time may call.
type Watch struct {
	sockets func(port uint16, take func(Socket) bool) error

	mu     sync.Mutex
	ports  map[uint16]bool
	uses   map[Ends]*known
	looked time.Time
	last   map[Ends]Socket
	sorted []Connection // at the last call of Look, without what uses knows
	more   bool         // there were more connections than maxConnections
}

// known is what is known of a connection's streams.
type known struct {
	flow, file string // of the last stream
	write      bool
	last       *Use
	agent      *Agent // counts it
	streams    int    // open ones
	seen       bool   // by the last call of Look, or begun since
}

// New returns a watch that asks this machine's kernel.
func New() *Watch {
	return &Watch{sockets: sockets, ports: map[uint16]bool{}, uses: map[Ends]*known{}}
}

// NewAgent returns an agent without streams. pid is its process.
func (w *Watch) NewAgent(pid int) *Agent { return &Agent{watch: w, pid: pid, ports: map[uint16]bool{}} }

// Opened records that a stream of a flow serves a connection whose ends the agent has named, as
// ip:port. It returns nil if the ends are no addresses or a bound is reached. The caller must call
// Close.
func (a *Agent) Opened(server, client, flow, file string, write bool) *Use {
	s, err := netip.ParseAddrPort(server)
	c, err2 := netip.ParseAddrPort(client)
	if err != nil || err2 != nil {
		return nil
	}
	ends, w := Ends{unmapped(s), unmapped(c)}, a.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	port := s.Port()
	if !a.ports[port] && len(a.ports) >= maxAgentPorts || !w.ports[port] && len(w.ports) >= maxPorts {
		return nil
	}
	k := w.uses[ends]
	if k == nil {
		if a.uses >= maxAgentUses || len(w.uses) >= maxUses {
			return nil
		}
		k = &known{agent: a}
		w.uses[ends] = k
		a.uses++
	}
	a.ports[port], w.ports[port] = true, true
	u := &Use{watch: w, ends: ends, open: true}
	k.flow, k.file, k.write, k.last = flow, file, write, u
	k.streams, k.seen = k.streams+1, true
	return u
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// SetFlow records that the stream belongs to another flow than assumed.
func (u *Use) SetFlow(flow string) {
	if u == nil {
		return
	}
	u.watch.mu.Lock()
	defer u.watch.mu.Unlock()
	// A later stream of the connection has its own flow.
	if k := u.watch.uses[u.ends]; k != nil && k.last == u {
		k.flow = flow
	}
}

// Close records the end of the stream. Further calls have no effect.
func (u *Use) Close() {
	if u == nil {
		return
	}
	u.watch.mu.Lock()
	defer u.watch.mu.Unlock()
	if k := u.watch.uses[u.ends]; k != nil && u.open {
		k.streams--
	}
	u.open = false
}

// Look asks the kernel for the connections to all DataNode ports. It should be called every few
// seconds. An error leaves the last figures of a port in force.
func (w *Watch) Look(now time.Time) error {
	w.mu.Lock()
	ports, last := slices.Sorted(maps.Keys(w.ports)), w.last
	elapsed := now.Sub(w.looked).Seconds()
	w.mu.Unlock()
	found, more := make(map[Ends]Socket, len(last)), false
	var mistakes error
	for i, port := range ports {
		// A port with many connections leaves the others their part.
		room := (maxConnections - len(found)) / (len(ports) - i)
		err := w.sockets(port, func(s Socket) bool {
			if room == 0 {
				more = true
				return false
			}
			found[Ends{s.Server, s.Client}] = s
			room--
			return true
		})
		if err == nil {
			continue
		}
		mistakes = errors.Join(mistakes, err)
		for ends, s := range last {
			if ends.Server.Port() == port && len(found) < maxConnections {
				found[ends] = s
			}
		}
	}
	sorted := make([]Connection, 0, len(found))
	for ends, s := range found {
		c := Connection{Socket: s}
		if last != nil && elapsed > 0 {
			before := last[ends]
			if s.Sent < before.Sent || s.Received < before.Received {
				before = Socket{} // these are the counters of a new connection between the same ends
			}
			c.SentRate, c.ReceivedRate = float64(s.Sent-before.Sent)/elapsed, float64(s.Received-before.Received)/elapsed
		}
		sorted = append(sorted, c)
	}
	slices.SortFunc(sorted, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(b.SentRate+b.ReceivedRate, a.SentRate+a.ReceivedRate), a.Client.Compare(b.Client), a.Server.Compare(b.Server))
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sorted, w.last, w.looked, w.more = sorted, found, now, more
	w.forget(found)
	return mistakes
}

// forget drops what is known of closed connections, and ports without connections and streams: a
// DataNode that restarts may have another port.
func (w *Watch) forget(found map[Ends]Socket) {
	inUse := map[uint16]bool{}
	for ends := range found {
		inUse[ends.Server.Port()] = true
	}
	for ends, k := range w.uses {
		_, is := found[ends]
		// A connection that is younger than the last call of Look was seen when its stream began.
		if !is && !k.seen && k.streams <= 0 {
			delete(w.uses, ends)
			k.agent.uses--
			continue
		}
		inUse[ends.Server.Port()], k.seen = true, is
	}
	maps.DeleteFunc(w.ports, func(port uint16, _ bool) bool { return !inUse[port] })
}

// Snapshot is the result of the last call of Look.
type Snapshot struct {
	Ports       []uint16
	Established int          // connections to these ports
	More        bool         // there are more; the bound is maxConnections
	Top         []Connection // those that moved most bytes since the call before, the fastest first
}

// Snapshot returns at most n connections.
func (w *Watch) Snapshot(n int) Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Snapshot{Ports: slices.Sorted(maps.Keys(w.ports)), Established: len(w.last), More: w.more}
	s.Top = slices.Clone(w.sorted[:min(n, len(w.sorted))])
	for i := range s.Top {
		c := &s.Top[i]
		if k := w.uses[Ends{c.Server, c.Client}]; k != nil {
			c.Flow, c.File, c.Write, c.Open, c.PID = k.flow, k.file, k.write, k.streams > 0, k.agent.pid
		}
	}
	return s
}

// ByFlow returns the number of established connections of each flow; "" has those of which no stream
// was seen.
func (w *Watch) ByFlow() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for ends := range w.last {
		flow := ""
		if k := w.uses[ends]; k != nil {
			flow = k.flow
		}
		n[flow]++
	}
	return n
}
