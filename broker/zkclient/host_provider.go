package zkclient

import (
	"math/rand/v2"
	"time"
)

// names gives servers in turn, by name, from one by chance. It is for the library's one
// goroutine.
type hostProvider struct {
	client     *Client
	servers    []string
	next, left int
	searching  time.Time // to look for a server; zero: one has answered
	connected  time.Time // the last connection; zero: none yet
	pauseFirst bool      // all have been tried, or the last connection ended at once
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

// Next also says when all have been tried for as long as a leader's word holds: the library
// then waits for a second, and lets calls end that were not sent.
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

// pause is between rounds. It is also what a connection has to last for, or the next server is
// asked after it only: one that takes connections and ends them would be asked without end.
func (n *hostProvider) pause() time.Duration {
	return min(n.client.Session()/roundsPerSession, libraryPause)
}

// rest waits before servers are tried again.
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

// ended says that it has been closed.
func (k *Client) isClosed() bool {
	select {
	case <-k.closed:
		return true
	default:
		return false
	}
}
