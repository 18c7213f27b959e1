// Package pacing sets the rate of a single TCP connection of another process.
//
// Problem: a reader or writer of HDFS that no agent governs moves its bytes through a connection
// between a DataNode and a container. The kernel can pace a connection (SO_MAX_PACING_RATE), but
// only the owner of the connection has the descriptor on which the option is set. What is hard is to
// find the right socket: pids, descriptors and inodes are used again, and a rate on a wrong socket would
// slow down a process that the policy does not name.
//
// Choice: pidfd_getfd (Linux 5.6) duplicates the socket into this process for a few microseconds.
// The process is verified by its start time after pidfd_open, and the socket by its inode, protocol
// and addresses after the duplication. So neither can be replaced by another one in between. A record in
// the journal names the socket by its cookie, which the kernel never uses again.
//
// The kernel paces each TCP socket by a timer of its own. So no queueing discipline such as fq is
// needed, and there is no queue whose delay would grow. The rate counts bytes of payload, and holds
// what the socket sends. To hold the other direction, pace the socket at the other end: see Sender.
//
// Lifting a rate puts the former value back, which is normally "no limit". After that the kernel still
// paces the socket, but at the rate at which its congestion control would send anyway: up to twice the
// congestion window in each round trip. This cannot be undone while the socket is open, and does not
// slow the connection down.
//
// Source: the monitor-and-controller framework for Spark on Mesos, which controls each connection
// between a DataNode and a container by tc. Package shaper does that where this package cannot be used.
package pacing

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"penstock/node/control/journal"
	"penstock/node/monitor/connections"
)

// Mechanism is the name of this package's changes in the journal.
const Mechanism = "pacing"

const (
	// Floor and Ceiling are the smallest and the largest rate, in bytes per second. A packet of HDFS has
	// 64 KiB. With less than one packet per second, clients would assume that the server is dead. No
	// network device reaches the ceiling.
	Floor   = 64 << 10
	Ceiling = 1 << 37
	// maxSockets is the maximum number of sockets that are paced at the same time.
	maxSockets = 4096
)

// Unlimited is the pacing rate of a socket whose rate nobody has set.
const Unlimited = math.MaxUint64

// ErrFull means that too many sockets are paced.
var ErrFull = fmt.Errorf("%d sockets are paced, which is the limit: lift the rates of some connections, or govern their applications as a whole", maxSockets)

// Socket identifies a connected TCP socket of a process of this machine. The process may be in any
// network namespace.
type Socket struct {
	PID   int
	Start uint64 // when the process began, in clock ticks since the boot; see processes.StartOf
	Inode uint64 // as in /proc/PID/fd
	// Local and Remote are the socket's two ends. IPv4 addresses may also have the form of IPv6.
	Local, Remote netip.AddrPort
}

func (s Socket) String() string {
	return fmt.Sprintf("the connection %v to %v of process %d", s.Local, s.Remote, s.PID)
}

// normal returns s with IPv4 addresses in the form of IPv4.
func (s Socket) normal() Socket {
	s.Local, s.Remote = unmapped(s.Local), unmapped(s.Remote)
	return s
}

// Sender returns the addresses of the end that sends the bytes of a block, the local address first. This is
// the server's end if the client reads, and the client's end if the client writes. To hold a connection,
// pace this end. In the pipeline of a write, each DataNode is the client of the next one.
func Sender(e connections.Ends, write bool) (local, remote netip.AddrPort) {
	if write {
		return e.Client, e.Server
	}
	return e.Server, e.Client
}

// Pacer sets the rates of sockets. Its methods may be called by several goroutines.
type Pacer struct {
	journal *journal.Journal

	mu    sync.Mutex
	paced map[Socket]*paced
}

// paced is a socket whose rate is in force.
type paced struct {
	target target
	number int    // the socket's last known descriptor in its process
	before uint64 // the rate before the first Set
	rate   uint64 // the rate that Set has set
}

// Open returns a pacer that records its changes in j. The caller must have opened j with this package's
// Undo.
func Open(j *journal.Journal) *Pacer {
	return &Pacer{journal: j, paced: map[Socket]*paced{}}
}

// Set limits what a socket sends to a rate. A further call for the same socket replaces the rate. If the
// process itself has set a lower rate, that rate stays in force. Set returns an error if the process or the
// socket is not the one that s describes.
func (p *Pacer) Set(s Socket, bytesPerSecond uint64, why string) error {
	if err := p.set(s, bytesPerSecond, why); err != nil {
		return fmt.Errorf("pace %v at %d B/s: %w", s, bytesPerSecond, err)
	}
	return nil
}

func (p *Pacer) set(s Socket, rate uint64, why string) error {
	switch {
	case rate < Floor:
		return fmt.Errorf("the rate is too low: use at least %d, or end the connection's application", Floor)
	case rate > Ceiling:
		return fmt.Errorf("the rate is too high: use at most %d, or lift the rate", uint64(Ceiling))
	case s.PID <= 0 || s.Start == 0 || s.Inode == 0 || !s.Local.IsValid() || !s.Remote.IsValid():
		return errors.New("the socket is not described completely: its process, the start time of the process, its inode and its two addresses are needed")
	}
	s = s.normal()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.paced[s]
	number := unknownNumber
	if was != nil {
		number = was.number
	} else if len(p.paced) >= maxSockets {
		if err := p.sweep(); err != nil {
			return err
		}
		if len(p.paced) >= maxSockets {
			return ErrFull
		}
	}
	d, err := duplicate(s, number)
	if err != nil {
		return err
	}
	defer d.close()
	now, err := d.rate()
	if err != nil {
		return err
	}
	if was != nil && (now != was.rate || was.target.cookie != d.cookie) {
		// The process has set a rate itself, or this is another socket. So the earlier change is over.
		if err := p.putBack(s, was); err != nil {
			return err
		}
		was = nil
	}
	next := &paced{target: target{s, d.cookie}, number: d.number, before: now}
	if was != nil {
		next.before = was.before
	}
	next.rate = min(rate, next.before)
	if was != nil && next.rate == was.rate {
		return nil
	}
	change := journal.Change{Mechanism: Mechanism, Target: next.target.String(), Why: why,
		Before: strconv.FormatUint(next.before, 10), After: strconv.FormatUint(next.rate, 10)}
	if err := p.journal.Make(change, func() error { return d.setRate(next.rate) }); err != nil {
		return err
	}
	p.paced[s] = next
	return nil
}

// Lift puts back the rate that the socket had before the first Set. It does nothing if the socket
// is not paced.
func (p *Pacer) Lift(s Socket) error {
	s = s.normal()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.paced[s]
	if was == nil {
		return nil
	}
	return p.putBack(s, was)
}

func (p *Pacer) putBack(s Socket, was *paced) error {
	if err := p.journal.PutBack(Mechanism, was.target.String()); err != nil {
		return fmt.Errorf("lift the rate of %v: %w", s, err)
	}
	delete(p.paced, s)
	return nil
}

// Sweep forgets the sockets that are no longer open. Call it every few seconds, so that Rates and the
// journal have only rates that are in force.
func (p *Pacer) Sweep() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sweep()
}

func (p *Pacer) sweep() error {
	var errs []error
	for s, was := range p.paced {
		if isOpen(s, was.number) {
			continue
		}
		errs = append(errs, p.putBack(s, was))
	}
	return errors.Join(errs...)
}

// Rates returns the rates that are set, in bytes per second.
func (p *Pacer) Rates() map[Socket]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	rates := make(map[Socket]uint64, len(p.paced))
	for s, was := range p.paced {
		rates[s] = was.rate
	}
	return rates
}

// Undo puts back the rate that a socket had before c. It does nothing if the process no longer exists or no
// longer has the socket, or if the socket's rate is no longer the one that c has set. So Undo does nothing
// if the process has passed the socket to another process and has closed its own descriptor.
func Undo(c journal.Change) error {
	t, err := parseTarget(c.Target)
	if err != nil {
		return err
	}
	before, err := parseRate(c.Before)
	if err != nil {
		return err
	}
	after, err := parseRate(c.After)
	if err != nil {
		return err
	}
	d, err := duplicate(t.Socket, unknownNumber)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	if d.cookie != t.cookie {
		return nil
	}
	if now, err := d.rate(); err != nil || now != after {
		return err
	}
	return d.setRate(before)
}

// target names a socket in the journal.
type target struct {
	Socket
	cookie uint64 // SO_COOKIE, which the kernel gives to no other socket
}

func (t target) String() string {
	return fmt.Sprintf("%v>%v pid=%d start=%d inode=%d cookie=%d", t.Local, t.Remote, t.PID, t.Start, t.Inode, t.cookie)
}

// parseTarget is the inverse of target.String.
func parseTarget(text string) (t target, err error) {
	bad := func(err error) (target, error) {
		return target{}, fmt.Errorf("parse the paced socket %q in the journal: %w", text, err)
	}
	var ends string
	if _, err := fmt.Sscanf(text, "%s pid=%d start=%d inode=%d cookie=%d", &ends, &t.PID, &t.Start, &t.Inode, &t.cookie); err != nil {
		return bad(err)
	}
	from, to, _ := strings.Cut(ends, ">")
	if t.Local, err = netip.ParseAddrPort(from); err != nil {
		return bad(err)
	}
	if t.Remote, err = netip.ParseAddrPort(to); err != nil {
		return bad(err)
	}
	if t.PID <= 0 || t.String() != text {
		return bad(errors.New("the text was not written by this program"))
	}
	return t, nil
}

func parseRate(text string) (uint64, error) {
	rate, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse the pacing rate %q in the journal: %w", text, err)
	}
	return rate, nil
}

// rate returns the socket's highest pacing rate, in bytes per second.
func (d *duplicated) rate() (uint64, error) {
	rate, err := unix.GetsockoptUint64(d.fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
	if err != nil {
		return 0, fmt.Errorf("read the pacing rate: %w", err)
	}
	return rate, nil
}

func (d *duplicated) setRate(rate uint64) error {
	if err := unix.SetsockoptUint64(d.fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, rate); err != nil {
		return fmt.Errorf("set the pacing rate to %d B/s: %w", rate, err)
	}
	return nil
}
