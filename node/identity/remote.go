package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"slices"
	"strconv"
	"time"
)

// Remote answers for processes on other nodes.
type Remote interface {
	// Who returns the process that has the client's end of the connection between client and
	// server. The evidence that Who returns is accepted without further checks. Who returns before
	// ctx ends. The error is ErrNobody if the other node answers that no process has the
	// connection. block is the block that the connection writes, if it may be a DataNode's that forwards the
	// block.
	Who(ctx context.Context, client, server netip.AddrPort, block string) (Peer, error)
}

// ErrNobody: no process has the connection.
var ErrNobody = errors.New("no process has the connection any more")

// forwardable reports whether a DataNode may forward a block of this flow for a client.
func forwardable(flow string) bool {
	return classOf(flow) == classApplication || classOf(flow) == classGroup
}

// accepts reports whether a flow that another node has verified can be the flow of a client here.
func (f facts) accepts(flow string) bool {
	return forwardable(flow) || slices.ContainsFunc(f.rules, func(r Rule) bool { return r.Flow() == flow })
}

// askNode asks the node of a claim's client, or awaits the verdict on the claim that decides it.
func (c *Checker) askNode(l *lookup) {
	ctx, cancel := context.WithTimeout(c.ctx, c.settings.Patience)
	defer cancel()
	f := c.facts(l.claim)
	if f.tokenUser != "" && classOf(l.claim.Flow) == classApplication {
		f.owner = c.inspect.user(l.claim.Flow)
	}
	if l.server.PID != 0 {
		l.server.Flow, l.server.FlowUser = c.settings.Written(ctx, l.server.PID, l.claim.Block, l.claim.Writing)
		f.examined(l.server)
		c.end(l, f.verdict(l.claim.Flow), l.own)
		return
	}
	p, err := c.who(ctx, l.claim)
	if !f.accepts(p.Flow) {
		p.Flow, p.FlowUser = "", ""
	}
	answered := err == nil || errors.Is(err, ErrNobody)
	if err != nil {
		f.why = err.Error()
	} else {
		f.examined(p)
	}
	v := f.verdict(l.claim.Flow)
	c.Stats.Remote.count(v, answered)
	c.end(l, v, l.own)
}

func (c *Checker) who(ctx context.Context, claim Claim) (Peer, error) {
	client, err := parseAddress(claim.Client)
	if err != nil {
		return Peer{}, err
	}
	server, err := parseAddress(claim.Server)
	if err != nil {
		return Peer{}, err
	}
	p, err := c.settings.Remote.Who(ctx, client, server, claim.Block)
	if err == nil && p.Evidence > Environment {
		return Peer{}, fmt.Errorf("another node's evidence for a container has the kind %v, which is not valid for containers", p.Evidence)
	}
	return p, err
}

// Whose answers other nodes: it returns the process of this machine that has the end at local of a
// connection, with its User, and with its application if there is evidence. The statistics do not
// count the question as a claim. The error is ErrNobody if there is no such connection here.
func (c *Checker) Whose(ctx context.Context, local, remote netip.AddrPort) (Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.settings.Budget)
	defer cancel()
	began := time.Now()
	s, _, found, err := c.proc.socketOf(ctx, local, remote)
	if err != nil {
		return Peer{}, err
	}
	if !found || s.inode == 0 {
		return Peer{}, ErrNobody
	}
	p, _, err := c.holders(ctx, s, "", began)
	switch {
	case err == nil:
		p.User, _ = userName(p.UID)
	case errors.Is(err, errTime), errors.Is(err, ErrNobody):
		return Peer{}, err
	default: // a process has the socket, but nothing else is known
		p = Peer{UID: s.uid, Detail: err.Error()}
		p.User, _ = userName(s.uid)
	}
	return p, nil
}

// userName returns a user's name, or its number and false if this machine has no name for it.
func userName(uid uint32) (name string, named bool) {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username, true
	}
	return number, false
}

// ParseEvidence reads the kind of evidence for a container, as written by another node.
func ParseEvidence(s string) (Evidence, error) {
	for e := Cgroup; e <= Environment; e++ {
		if s == e.String() {
			return e, nil
		}
	}
	return NoEvidence, fmt.Errorf("evidence %.40q: it is cgroup, session, directory or environment", s)
}

// IsApplication reports whether s is the name of one application of YARN, Spark, Kubernetes or Mesos.
func IsApplication(s string) bool { return isApplication(s) }
