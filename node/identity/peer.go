package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errNamespace = errors.New("the process is in a namespace that cannot be seen from here")
	errElsewhere = errors.New("the peer is on another node or in another network namespace")
	errClosed    = errors.New("the connection is closed")
)

// maxHints is the maximum number of recently found processes, which are examined first; of each of
// them, the hintFDs newest descriptors are examined first. A JVM has hundreds of open jars, and
// opens its connections after them.
const (
	maxHints = 64
	hintFDs  = 48
)

// hint is a process that a recent lookup found.
type hint struct {
	pid         int
	application string
}

// peer finds the process that holds the client's end of the claim's connection. If the error is
// errElsewhere, the returned hold describes the server's end, if a DataNode or NodeManager of this
// machine has that end open; otherwise it is zero.
func (c *Checker) peer(ctx context.Context, claim Claim) (Peer, hold, error) {
	client, err := parseAddress(claim.Client)
	if err != nil {
		return Peer{}, hold{}, err
	}
	server, err := parseAddress(claim.Server)
	if err != nil {
		return Peer{}, hold{}, err
	}
	began := time.Now()
	s, other, found, err := c.proc.socketOf(ctx, client, server)
	if err != nil {
		return Peer{}, hold{}, err
	}
	if !found {
		if c.settings.Containers != nil {
			if pod, is := c.settings.Containers.At(client.Addr()); is && pod.Application != "" {
				return Peer{Application: pod.Application, Container: pod.Name, Evidence: Address}, c.served(ctx, other), nil
			}
		}
		return Peer{}, c.served(ctx, other), errElsewhere
	}
	if s.inode == 0 {
		return Peer{}, hold{}, errClosed
	}
	return c.holders(ctx, s, claim.Flow, began)
}

// served finds the server that has a socket; the zero hold if no server has it.
func (c *Checker) served(ctx context.Context, s socket) hold {
	if s.inode == 0 {
		return hold{}
	}
	c.mu.Lock()
	servers := slices.Collect(maps.Keys(c.servers))
	c.mu.Unlock()
	for _, p := range servers {
		if fd, err := c.proc.holds(ctx, p.pid, s.inode, 0); err == nil && fd >= 0 {
			return hold{p.pid, fd, s.inode}
		}
	}
	return hold{}
}

// holders looks for all processes that have the socket, until one of them decides the result. It
// examines first the processes whose connections were looked up recently, then those of the
// socket's user, and the rest only if none of these has the socket.
func (c *Checker) holders(ctx context.Context, s socket, flow string, began time.Time) (Peer, hold, error) {
	var found []Peer
	var holds []hold
	refused, slow := 0, false
	tried := map[int]bool{}
	look := func(pid, fds int) (goOn bool) {
		if tried[pid] {
			return true
		}
		if ctx.Err() != nil {
			slow = true
			return false
		}
		fd, err := c.proc.holds(ctx, pid, s.inode, fds)
		if errors.Is(err, os.ErrPermission) {
			c.rights.process(err)
			refused++
		}
		if err != nil || fd < 0 {
			return true
		}
		tried[pid] = true
		p, err := c.inspect.inspect(ctx, pid, began)
		if !c.proc.holdsStill(pid, fd, s.inode) {
			return true // the process has ended in the meantime, or has passed the socket on
		}
		if err != nil {
			c.rights.process(err)
			p = Peer{PID: pid, UID: s.uid, Detail: err.Error()}
		}
		found, holds = append(found, p), append(holds, hold{pid, fd, s.inode})
		return !decides(flow, p)
	}

	if err := c.each(flow, s.uid, look, func() bool { return len(found) > 0 }); err != nil {
		return Peer{}, hold{}, err
	}
	switch {
	case len(found) > 0:
		// This also applies if there was no time for all processes: a process that has the socket
		// is responsible for it.
		return c.chosen(flow, found, holds)
	case slow:
		return Peer{}, hold{}, errTime
	case refused > 0:
		return Peer{}, hold{}, fmt.Errorf(
			"no permission to examine %d processes: run the daemon as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH", refused)
	}
	return Peer{}, hold{}, ErrNobody
}

// each calls look for all processes, in the order explained at holders, until look returns false.
func (c *Checker) each(flow string, uid uint32, look func(pid, fds int) bool, found func() bool) error {
	for _, pid := range c.recentPeers(flow) {
		if !look(pid, hintFDs) {
			return nil
		}
	}
	pids, err := c.proc.pids()
	if err != nil {
		return err
	}
	var st unix.Stat_t
	var others []int
	for _, pid := range pids {
		if unix.Stat(c.proc.file(pid, ""), &st) == nil && st.Uid != uid {
			others = append(others, pid)
		} else if !look(pid, 0) {
			return nil
		}
	}
	if found() {
		return nil
	}
	for _, pid := range others {
		if !look(pid, 0) {
			return nil
		}
	}
	return nil
}

func (c *Checker) chosen(flow string, found []Peer, holds []hold) (Peer, hold, error) {
	best := choose(flow, found)
	at := slices.IndexFunc(found, func(p Peer) bool { return p.PID == best.PID })
	c.noteRecent(hint{best.PID, best.Application})
	if best.Application == "" && !best.Outside && !best.Server {
		return Peer{}, hold{}, fmt.Errorf("pid %d: %s", best.PID, best.Detail)
	}
	return best, holds[at], nil
}

// decides reports whether no other process that has the socket could change the answer.
func decides(flow string, p Peer) bool {
	switch classOf(flow) {
	case classApplication:
		return p.Application == flow && p.Evidence.proves()
	case classService:
		return p.Server
	}
	return p.Application != "" && p.Evidence.proves()
}

// recentPeers returns the pids of the hints, those of the claimed application first.
func (c *Checker) recentPeers(flow string) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := make([]int, 0, len(c.hints))
	for _, claimed := range []bool{true, false} {
		for _, h := range c.hints {
			if (h.application == flow) == claimed {
				pids = append(pids, h.pid)
			}
		}
	}
	return pids
}

func (c *Checker) noteRecent(h hint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hints = slices.DeleteFunc(c.hints, func(old hint) bool { return old.pid == h.pid })
	c.hints = slices.Insert(c.hints, 0, h)
	c.hints = c.hints[:min(len(c.hints), maxHints)]
}
