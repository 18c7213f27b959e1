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
// A DataNode port is a port that a DataNode's agent has named as a server's end. A connection whose
// stream has ended keeps its last flow while it stays open, because HDFS clients reuse connections.
package connections

import (
	"cmp"
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
)

// Ends are the two ends of a connection.
type Ends struct{ Server, Client netip.AddrPort }

// Use is one stream's use of a connection. Its methods may be called on nil, for a stream whose
// connection is not watched.
type Use struct {
	watch *Watch
	ends  Ends
	use
}

type use struct {
	flow, file string
	write      bool
}

// Connection is an established connection.
type Connection struct {
	Socket
	Flow  string // of its present or last stream; empty if no stream was seen
	File  string // the block file of that stream
	Write bool   // the client writes the block
	Open  bool   // the stream has not ended
	// SentRate and ReceivedRate are means between the last two calls of Look, in bytes per second.
	// A connection that began between them has moved all of its bytes since the first of them.
	SentRate, ReceivedRate float64
}

// Watch knows the connections of the machine's DataNodes. Its methods may be called from several
// goroutines.
type Watch struct {
	sockets func(port uint16, take func(Socket) bool) error

	mu     sync.Mutex
	ports  map[uint16]bool
	uses   map[Ends]*known
	looked time.Time
	last   map[Ends]Socket
	rates  map[Ends][2]float64
	more   bool // there were more connections than maxConnections
}

// known is what is known of a connection's streams.
type known struct {
	use
	streams int  // open ones
	seen    bool // by the last call of Look, or begun since
}

// New returns a watch that asks this machine's kernel.
func New() *Watch {
	return &Watch{sockets: sockets, ports: map[uint16]bool{}, uses: map[Ends]*known{}}
}

// Opened records that a stream of a flow serves a connection whose ends an agent has named, as
// ip:port. It returns nil if the ends are no addresses or a bound is reached. The caller must call
// Close.
func (w *Watch) Opened(server, client, flow, file string, write bool) *Use {
	s, err := netip.ParseAddrPort(server)
	c, err2 := netip.ParseAddrPort(client)
	if err != nil || err2 != nil {
		return nil
	}
	ends := Ends{unmapped(s), unmapped(c)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ports[s.Port()] {
		if len(w.ports) >= maxPorts {
			return nil
		}
		w.ports[s.Port()] = true
	}
	k := w.uses[ends]
	if k == nil {
		if len(w.uses) >= maxUses {
			return nil
		}
		k = &known{}
		w.uses[ends] = k
	}
	u := &Use{watch: w, ends: ends, use: use{flow, file, write}}
	k.use, k.streams, k.seen = u.use, k.streams+1, true
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
	if k := u.watch.uses[u.ends]; k != nil && k.use == u.use {
		k.flow = flow
	}
	u.flow = flow
}

// Close records the end of the stream.
func (u *Use) Close() {
	if u == nil {
		return
	}
	u.watch.mu.Lock()
	defer u.watch.mu.Unlock()
	if k := u.watch.uses[u.ends]; k != nil {
		k.streams--
	}
}

// Look asks the kernel for the connections to all DataNode ports. It should be called every few
// seconds. An error leaves the last figures in force.
func (w *Watch) Look(now time.Time) error {
	w.mu.Lock()
	ports := slices.Sorted(maps.Keys(w.ports))
	w.mu.Unlock()
	found, more := map[Ends]Socket{}, false
	for _, port := range ports {
		err := w.sockets(port, func(s Socket) bool {
			if len(found) >= maxConnections {
				more = true
				return false
			}
			found[Ends{s.Server, s.Client}] = s
			return true
		})
		if err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rates = map[Ends][2]float64{}
	if elapsed := now.Sub(w.looked).Seconds(); elapsed > 0 && w.last != nil {
		for ends, s := range found {
			before := w.last[ends]
			if s.Sent < before.Sent || s.Received < before.Received {
				before = Socket{} // these are the counters of a new connection between the same ends
			}
			w.rates[ends] = [2]float64{float64(s.Sent-before.Sent) / elapsed, float64(s.Received-before.Received) / elapsed}
		}
	}
	w.last, w.looked, w.more = found, now, more
	w.forget(found)
	return nil
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
	all := make([]Connection, 0, len(w.last))
	for ends, socket := range w.last {
		c := Connection{Socket: socket, SentRate: w.rates[ends][0], ReceivedRate: w.rates[ends][1]}
		if k := w.uses[ends]; k != nil {
			c.Flow, c.File, c.Write, c.Open = k.flow, k.file, k.write, k.streams > 0
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(b.SentRate+b.ReceivedRate, a.SentRate+a.ReceivedRate), a.Client.Compare(b.Client), a.Server.Compare(b.Server))
	})
	s.Top = all[:min(n, len(all))]
	return s
}
