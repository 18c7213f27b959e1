package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"penstock/node/device"
	"penstock/node/identity"
	"penstock/node/ipc"
	"penstock/wire"
)

// Whose a stream is. A task's or an executor's process belongs to one application,
// which is found out when it connects; a server's streams are claims, each held
// against the connection that it came by, without delaying it.

// introduce finds out about a peer when it connects. own is the flow of a process
// that works for one application; serves says that it is known to be a server; leave is
// to be called when it goes.
func (d *Daemon) introduce(p ipc.Peer) (own string, serves bool, leave func(), err error) {
	if !ipc.Serves(p.Hello.Role) {
		v := within(introduction, func() identity.Verdict { return d.identity.Process(p.PID, p.UID, p.Hello.Flow) })
		own = d.identity.Mode().Flow(p.Hello.Flow, v)
		if v.State != identity.Unknown || d.identity.Mode() == identity.Trust {
			return own, false, func() {}, nil
		}
		watch, cancel := context.WithCancel(context.Background())
		go d.lookAgain(watch, p, own)
		return own, false, cancel, nil
	}
	if d.identity.Mode() == identity.Trust {
		return "", false, func() {}, nil
	}
	v, leave := d.identity.AddServer(p.PID, p.UID)
	if v.State == identity.Refuted {
		// It could name any application for what it does itself.
		return "", false, nil, fmt.Errorf("process %d calls itself a server and is none: %s", p.PID, v.Detail)
	}
	if p.Hello.Role == wire.RoleNodeManager {
		d.addLocalDirs(p.Hello.Directories)
	}
	return "", v.State == identity.Confirmed, leave, nil
}

// introduction is how long a peer waits at most until something is known of it: an agent
// that is not greeted within a second hangs up, and the NodeManager's records may be on
// the very disk that is busy.
const introduction = 500 * time.Millisecond

// within returns what find returns, or the zero value if that takes longer than budget. find goes
// on in its goroutine then.
func within[T any](budget time.Duration, find func() T) (found T) {
	got := make(chan T, 1)
	go func() { got <- find() }()
	select {
	case found = <-got:
	case <-time.After(budget):
	}
	return found
}

// When a task's process is looked at again of which nothing was found out: first, and
// at most this much later each time.
const (
	lookAgainFirst = 2 * time.Second
	lookAgainMost  = time.Minute
)

// manyLines is how many lines there may be in a while about processes of one user.
const manyLines = 20

// lookAgain asks about a process until something is known of it: it may have connected
// before the NodeManager said where its containers are. If its streams then belong to
// another flow, it is made to connect again.
func (d *Daemon) lookAgain(ctx context.Context, p ipc.Peer, own string) {
	for pause := lookAgainFirst; ; pause = min(2*pause, lookAgainMost) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		v := d.identity.Process(p.PID, p.UID, p.Hello.Flow)
		if ctx.Err() != nil || v.State == identity.Unknown {
			continue
		}
		if now := d.identity.Mode().Flow(p.Hello.Flow, v); now != own {
			d.limited.Some(manyLines, slog.LevelInfo, "a process is found to be another flow than it was taken for", fmt.Sprintf("user %d", p.UID),
				"pid", p.PID, "was", own, "is", now)
			p.Disconnect()
		}
		return
	}
}

// maxLocalDirs bounds what NodeManagers tell of their directories; YARN has one for
// each disk.
const maxLocalDirs = 1024

// addLocalDirs tells the checker where a NodeManager keeps its containers. They stay
// known when it goes: its containers may outlive it.
func (d *Daemon) addLocalDirs(dirs []string) {
	d.dirsMu.Lock() // not mu: a hung disk must not keep heartbeats and the switch waiting
	defer d.dirsMu.Unlock()
	for _, dir := range dirs {
		if dir = clean(dir); !d.localDirs[dir] && len(d.localDirs) < maxLocalDirs {
			d.localDirs[dir] = true
		}
	}
	all := make([]string, 0, len(d.localDirs))
	for dir := range d.localDirs {
		all = append(all, dir)
	}
	d.identity.SetDirs(all, d.settings.Identity.SparkDirs)
}

// claim is a stream whose flow is being checked while it is being opened.
type claim struct {
	claimed string

	mu      sync.Mutex
	verdict *identity.Verdict // nil until it is there
	loop    *device.Loop      // nil until the stream is open
	stream  *device.Stream
}

// attribute gives the flow that a server's stream begins in and the user who asks for it, "" where
// nobody knows, and the claim that its stream has to be given to, nil if there is nothing more to come.
func (d *Daemon) attribute(m wire.Open) (flow, user string, c *claim) {
	mode := d.identity.Mode()
	user = identity.ShortName(m.User) // the DataNode has checked the token
	c = &claim{claimed: m.Flow}
	asked := identity.Claim{Flow: m.Flow, Client: m.Client, Server: m.Server, User: m.User}
	if m.Client == wire.Own {
		asked = identity.Claim{Flow: m.Flow, Own: true}
	}
	v, known := d.identity.Check(asked,
		func(v identity.Verdict) { c.settle(mode, &v, nil, nil) })
	if known {
		return mode.Flow(m.Flow, v), cmp.Or(v.User, user), nil
	}
	return mode.Flow(m.Flow, identity.Verdict{}), user, c
}

// opened tells where the stream is.
func (c *claim) opened(mode identity.Mode, loop *device.Loop, stream *device.Stream) {
	if c != nil {
		c.settle(mode, nil, loop, stream)
	}
}

// settle takes what is known now. Once there are both, the stream moves.
func (c *claim) settle(mode identity.Mode, v *identity.Verdict, loop *device.Loop, stream *device.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v != nil {
		c.verdict = v
	}
	if loop != nil {
		c.loop, c.stream = loop, stream
	}
	if c.verdict == nil || c.loop == nil {
		return
	}
	flow, user := mode.Flow(c.claimed, *c.verdict), c.verdict.User
	if user == "" {
		user = c.stream.User
	}
	c.loop.Reassign(c.stream, flow, turnOf(flow, user))
}

// turnOf returns the user that a stream has its turns with inside its flow. Only flows that
// stand for many users, such as `clients`, tell their users apart: an application has one, and
// not all of its streams name it.
func turnOf(flow, user string) string {
	if identity.OfManyUsers(flow) {
		return user
	}
	return ""
}
