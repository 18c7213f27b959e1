package zkclient

import (
	"math/rand/v2"
	"time"
)

// names gives servers in turn, by name, from one by chance. It is for the library's one
// goroutine.
type names struct {
	client     *Client
	servers    []string
	next, last int
	began      time.Time // to look for a server; zero: one has answered
	had        time.Time // the last connection; zero: none yet
	tired      bool      // all have been tried, or the last connection ended at once
}

// Init implements zk.HostProvider.
func (n *names) Init(servers []string) error {
	n.servers = append([]string(nil), servers...)
	rand.Shuffle(len(n.servers), func(i, j int) { n.servers[i], n.servers[j] = n.servers[j], n.servers[i] })
	n.next, n.last = 0, len(n.servers)
	return nil
}

// Len implements zk.HostProvider.
func (n *names) Len() int { return len(n.servers) }

// Next also says when all have been tried for as long as a leader's word holds: the library
// then waits for a second, and lets calls end that were not sent.
func (n *names) Next() (server string, again bool) {
	if n.began.IsZero() {
		n.began = time.Now()
		n.tired = !n.had.IsZero() && n.began.Sub(n.had) < n.pause()
	}
	if n.last == 0 {
		n.last = len(n.servers)
		session := n.client.Session()
		again = session/rounds >= libraryPause || time.Since(n.began) >= Word(session) || n.client.ended()
		n.tired = !again
	}
	n.last--
	server = n.servers[n.next]
	n.next = (n.next + 1) % len(n.servers)
	return server, again
}

// pause is between rounds. It is also what a connection has to last for, or the next server is
// asked after it only: one that takes connections and ends them would be asked without end.
func (n *names) pause() time.Duration { return min(n.client.Session()/rounds, libraryPause) }

// rest waits before servers are tried again.
func (n *names) rest() {
	if !n.tired {
		return
	}
	n.tired = false
	select {
	case <-n.client.closed:
	case <-time.After(n.pause()):
	}
}

// Connected implements zk.HostProvider.
func (n *names) Connected() {
	n.last, n.began, n.had, n.tired = len(n.servers), time.Time{}, time.Now(), false
}

// ended says that it has been closed.
func (k *Client) ended() bool {
	select {
	case <-k.closed:
		return true
	default:
		return false
	}
}
