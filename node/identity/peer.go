package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errNamespace = errors.New("the process is in a namespace that cannot be seen from here")
	errElsewhere = errors.New("the peer is on another node or in another network namespace")
	errClosed    = errors.New("the connection is closed")
	errNobody    = errors.New("no process has the connection any more")
)

// maxHints bounds the processes that are looked at first: those that had
// connections lately.
const maxHints = 64

// peer finds who has the client's end of the claim's connection.
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
	s, found, err := c.proc.socketOf(ctx, client, server)
	if err != nil {
		return Peer{}, hold{}, err
	}
	if !found {
		if c.settings.Remote == nil {
			return Peer{}, hold{}, errElsewhere
		}
		p, err := c.settings.Remote.Who(ctx, client, server)
		return p, hold{}, err
	}
	if s.inode == 0 {
		return Peer{}, hold{}, errClosed
	}
	return c.holders(ctx, s, claim.Flow, began)
}

// holders looks for all processes that have the socket, until one decides the matter.
// Those whose connections were looked up lately come first, then the socket's user's,
// and the rest only if none of them has it.
func (c *Checker) holders(ctx context.Context, s socket, flow string, began time.Time) (Peer, hold, error) {
	var found []Peer
	var holds []hold
	refused, slow := 0, false
	tried := map[int]bool{}
	look := func(pid int) (goOn bool) {
		if tried[pid] {
			return true
		}
		tried[pid] = true
		if ctx.Err() != nil {
			slow = true
			return false
		}
		fd, err := c.proc.holds(ctx, pid, s.inode)
		if errors.Is(err, os.ErrPermission) {
			refused++
		}
		if err != nil || fd < 0 {
			return true
		}
		p, err := c.inspect.inspect(ctx, pid, began)
		if !c.proc.holdsStill(pid, fd, s.inode) {
			return true // ended meanwhile, or handed it on
		}
		if err != nil {
			p = Peer{PID: pid, UID: s.uid, Detail: err.Error()}
		}
		found, holds = append(found, p), append(holds, hold{pid, fd, s.inode})
		return !decides(flow, p)
	}

	decided := false
	for _, pid := range c.recentPeers() {
		if decided = !look(pid); decided {
			break
		}
	}
	var others []int
	if !decided {
		var st unix.Stat_t
		err := c.proc.pids(func(pid int) bool {
			if unix.Stat(c.proc.file(pid, ""), &st) == nil && st.Uid != s.uid {
				others = append(others, pid)
				return true
			}
			return look(pid)
		})
		if err != nil {
			return Peer{}, hold{}, err
		}
	}
	if len(found) == 0 && !slow {
		for _, pid := range others {
			if !look(pid) {
				break
			}
		}
	}
	switch {
	case len(found) > 0:
	case slow:
		return Peer{}, hold{}, errTime
	case refused > 0:
		return Peer{}, hold{}, fmt.Errorf(
			"%d processes may not be looked into: run the daemon as root or with CAP_SYS_PTRACE", refused)
	default:
		return Peer{}, hold{}, errNobody
	}
	best := choose(flow, found)
	at := slices.IndexFunc(found, func(p Peer) bool { return p.PID == best.PID })
	c.noteRecent(best.PID)
	if best.Application == "" && !best.Outside && !best.Server {
		return Peer{}, hold{}, fmt.Errorf("pid %d: %s", best.PID, best.Detail)
	}
	return best, holds[at], nil
}

// decides tells whether no other process that has the socket could change the answer.
func decides(flow string, p Peer) bool {
	switch classOf(flow) {
	case classApplication:
		return p.Application == flow && p.Evidence.proves()
	case classService:
		return p.Server
	}
	return p.Application != "" && p.Evidence.proves()
}

func (c *Checker) recentPeers() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.hints)
}

func (c *Checker) noteRecent(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.hints, pid); i >= 0 {
		c.hints = slices.Delete(c.hints, i, i+1)
	}
	c.hints = slices.Insert(c.hints, 0, pid)
	c.hints = c.hints[:min(len(c.hints), maxHints)]
}
