package zkclient

import (
	"math/rand/v2"
	"time"
)

// hostProvider implements zk.HostProvider. It returns the servers in turn, by name, beginning with
// a random one. Only the library's own goroutine calls it.
type hostProvider struct {
	client     *Client
	servers    []string
	next, left int
	searching  time.Time // start of the search for a server; zero: a server is connected
	connected  time.Time // time of the last connection; zero: none yet
	pauseFirst bool      // wait before the next attempt: all servers were tried, or the last connection ended at once
}

// Init implements zk.HostProvider.
func (n *hostProvider) Init(servers []string) error {
	n.servers = append([]string(nil), servers...)
	rand.Shuffle(len(n.servers), func(i, j int) { n.servers[i], n.servers[j] = n.servers[j], n.servers[i] })
	n.next, n.left = 0, len(n.servers)
	return nil
}

// Len implements zk.HostProvider.
func (n *hostProvider) Len() int { return len(n.servers) }

// Next implements zk.HostProvider. Once all servers have been tried for the length of a leader's
// lease, again is true: the library then pauses for a second, and fails calls that were not sent.
func (n *hostProvider) Next() (server string, again bool) {
	if n.searching.IsZero() {
		n.searching = time.Now()
		n.pauseFirst = !n.connected.IsZero() && n.searching.Sub(n.connected) < n.pause()
	}
	if n.left == 0 {
		n.left = len(n.servers)
		session := n.client.Session()
		again = session/roundsPerSession >= libraryPause || time.Since(n.searching) >= Lease(session) || n.client.isClosed()
		n.pauseFirst = !again
	}
	n.left--
	server = n.servers[n.next]
	n.next = (n.next + 1) % len(n.servers)
	return server, again
}

// pause returns the wait between two rounds. If a connection lasted for less than this wait, the
// next attempt waits as well, so that a server that accepts connections and closes them at once is
// not tried without a pause.
func (n *hostProvider) pause() time.Duration {
	return min(n.client.Session()/roundsPerSession, libraryPause)
}

// pauseIfDue waits before the servers are tried again.
func (n *hostProvider) pauseIfDue() {
	if !n.pauseFirst {
		return
	}
	n.pauseFirst = false
	select {
	case <-n.client.closed:
	case <-time.After(n.pause()):
	}
}

// Connected implements zk.HostProvider.
func (n *hostProvider) Connected() {
	n.left, n.searching, n.connected, n.pauseFirst = len(n.servers), time.Time{}, time.Now(), false
}

// isClosed reports whether Close has been called.
func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}
