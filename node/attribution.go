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
	"penstock/node/monitor/connections"
	"penstock/wire"
)

// This file determines the flow of each stream. A task or an executor works for one application,
// which the daemon identifies when the process connects. A server names a flow for each stream. The
// daemon checks this claim against the client's connection, without delaying the stream.

// introduce identifies a peer when it connects. own is the flow of a process that works for one
// application; serves reports whether the peer is known to be a server; leave must be called when
// the peer disconnects.
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
	v, leave := d.addServer(p)
	if v.State == identity.Refuted {
		// A false server could name any application for its own operations.
		return "", false, nil, falseServer(p, v)
	}
	if p.Hello.Role == wire.RoleNodeManager {
		d.addLocalDirs(p.Hello.Directories)
	}
	return "", v.State == identity.Confirmed, leave, nil
}

func falseServer(p ipc.Peer, v identity.Verdict) error {
	return fmt.Errorf("process %d connects as a server but is not one: %s", p.PID, v.Detail)
}

// addServer registers a process as a server. If that takes too long, the process counts as
// unknown until its identity is known. A false server is then disconnected.
func (d *Daemon) addServer(p ipc.Peer) (v identity.Verdict, leave func()) {
	type server struct {
		v     identity.Verdict
		leave func()
	}
	added := make(chan server, 1)
	go func() {
		v, leave := d.identity.AddServer(p.PID, p.UID)
		added <- server{v, leave}
	}()
	select {
	case s := <-added:
		return s.v, s.leave
	case <-time.After(introduction):
	}
	left := make(chan struct{})
	go func() {
		s := <-added
		if s.v.State == identity.Refuted {
			d.limited.Some(manyLines, slog.LevelWarn, "disconnecting a server", fmt.Sprintf("user %d", p.UID), "reason", falseServer(p, s.v))
			p.Disconnect()
		}
		<-left
		s.leave()
	}()
	return identity.Verdict{Detail: "its identity is not known yet"}, sync.OnceFunc(func() { close(left) })
}

// introduction is the longest time for which a peer waits to be identified. An agent that gets no
// answer within a second disconnects, and the NodeManager's records may be on the very disk that
// is busy.
const introduction = 500 * time.Millisecond

// within returns the result of find, or the zero value if find takes longer than budget. find
// then continues in its goroutine.
func within[T any](budget time.Duration, find func() T) (found T) {
	got := make(chan T, 1)
	go func() { got <- find() }()
	select {
	case found = <-got:
	case <-time.After(budget):
	}
	return found
}

// Delays before a task's process is examined again while its application is unknown. Each delay is
// twice the previous one, from lookAgainFirst up to lookAgainMost.
const (
	lookAgainFirst = 2 * time.Second
	lookAgainMost  = time.Minute
)

// manyLines is the maximum burst of log lines about processes of one user.
const manyLines = 20

// lookAgain examines a process again and again until the process is identified: it may have
// connected before the NodeManager reported the directories of its containers. If the process's
// streams turn out to belong to another flow, lookAgain disconnects the process, so that it
// connects again.
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
			d.limited.Some(manyLines, slog.LevelInfo, "process belongs to another flow than assumed; disconnecting it", fmt.Sprintf("user %d", p.UID),
				"pid", p.PID, "was", own, "is", now)
			p.Disconnect()
		}
		return
	}
}

// maxLocalDirs is the maximum number of directories that NodeManagers may report; YARN has one
// for each disk.
const maxLocalDirs = 1024

// addLocalDirs gives the checker the directories of a NodeManager's containers. The directories
// stay known after the NodeManager ends, because its containers may outlive it.
func (d *Daemon) addLocalDirs(dirs []string) {
	d.dirsMu.Lock() // not mu: a hung disk must not delay heartbeats and the kill switch
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

// claim is a stream whose flow is checked while the stream is being opened.
type claim struct {
	claimed string

	mu      sync.Mutex
	verdict *identity.Verdict // nil until known
	loop    *device.Loop      // nil until the stream is open
	stream  *device.Stream
	use     *connections.Use // of the stream's connection; nil: not watched
}

// attribute returns the flow in which a server's stream begins, and the user of the operation (""
// if unknown). c is the claim to which the opened stream must be passed; nil if the flow is
// final. block is the block that a DataNode writes, and written records its flow.
func (d *Daemon) attribute(m wire.Open, block string, written *writtenBlock) (flow, user string, c *claim) {
	mode := d.identity.Mode()
	user = identity.ShortName(m.User) // the DataNode has checked the token
	claimed, name := identity.Claimed(m.Flow)
	c = &claim{claimed: claimed}
	asked := identity.Claim{Flow: claimed, Name: name, Client: m.Client, Server: m.Server, User: m.User, Block: block, Writing: written.id()}
	if m.Client == wire.Own {
		asked = identity.Claim{Flow: claimed, Own: true}
	}
	v, known := d.identity.Check(asked,
		func(v identity.Verdict) {
			written.settle(mode, claimed, v)
			c.settle(mode, &v, nil, nil, nil)
		})
	if known {
		written.settle(mode, claimed, v)
		return mode.Flow(claimed, v), cmp.Or(v.User, user), nil
	}
	return d.identity.Begin(claimed), user, c
}

// opened passes the stream to the claim.
func (c *claim) opened(mode identity.Mode, loop *device.Loop, stream *device.Stream, use *connections.Use) {
	if c != nil {
		c.settle(mode, nil, loop, stream, use)
	}
}

// settle stores the verdict or the stream. When both are known, it moves the stream.
func (c *claim) settle(mode identity.Mode, v *identity.Verdict, loop *device.Loop, stream *device.Stream, use *connections.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v != nil {
		c.verdict = v
	}
	if loop != nil {
		c.loop, c.stream, c.use = loop, stream, use
	}
	if c.verdict == nil || c.loop == nil {
		return
	}
	flow, user := mode.Flow(c.claimed, *c.verdict), c.verdict.User
	if user == "" {
		user = c.stream.User
	}
	c.loop.Reassign(c.stream, flow, turnOf(flow, user))
	c.use.SetFlow(flow)
}

// turnOf returns the user under which a stream takes turns inside its flow. Only flows of several
// users, such as `clients`, distinguish users: an application has one user, and not all of its
// streams name it.
func turnOf(flow, user string) string {
	if identity.OfManyUsers(flow) {
		return user
	}
	return ""
}
