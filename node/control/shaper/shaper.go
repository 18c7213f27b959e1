// Package shaper limits the rates of TCP connections by the queueing disciplines of their interface.
//
// Problem: package pacing needs the right to duplicate a socket of another process. Without this right,
// and if the sender is on another machine without Penstock, a connection can be held only by its packets.
// What is hard: all users of an interface share its queueing discipline, an operator may have set one, and
// an incoming packet has already used the network.
//
// Choice: as in the monitor-and-controller framework for Spark on Mesos, HTB has one class for each
// connection, and u32 filters find the packets of the connection by its two addresses and ports. Incoming
// packets are redirected to an IFB device, which has an HTB of its own. The TCP sender slows down to the
// rate at which packets leave that device. All other packets pass HTB at once, without a class.
//
// An interface is shaped only if it has the queueing disciplines that the kernel gave it. These have the
// handle 0, and the kernel sets them again when ours is deleted. They include noqueue, the default of
// loopback and veth. A discipline with another handle was set by an operator, and is never changed. Our
// discipline is recognised by its handle, and our IFB device by its hardware address.
//
// A class has a queue, which adds to the round trip time, so package pacing is preferred. The queue has at
// most the bytes of a fortieth of a second at the rate, or two of the largest packets if these are more.
package shaper

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"penstock/node/control/journal"
)

// Mechanism is the name of this package's changes in the journal.
const Mechanism = "shaper"

const (
	// Floor and Ceiling are the smallest and the largest rate, in bytes per second. A packet of HDFS has
	// 64 KiB. With less than one packet per second, clients would assume that the server is dead. HTB's
	// rates have 32 bits.
	Floor   = 64 << 10
	Ceiling = 1 << 31
	// MaxConnections is the maximum number of connections that are held on an interface in one direction.
	// It is small, because the kernel compares each packet of the interface with each connection.
	MaxConnections = 64
	maxInterfaces  = 64
)

// Connection is one direction of a TCP connection, with the place where it is held.
type Connection struct {
	Interface string
	From, To  netip.AddrPort // the sender and the receiver of the bytes, as in the packets
	// Ingress means that the packets come in through the interface. Otherwise they leave through it.
	Ingress bool
}

func (c Connection) String() string {
	return fmt.Sprintf("%s %s %v>%v", c.Interface, direction(c.Ingress), c.From, c.To)
}

func direction(ingress bool) string {
	if ingress {
		return "ingress"
	}
	return "egress"
}

// Shaper sets the rates of connections. Its methods may be called by several goroutines.
type Shaper struct {
	journal *journal.Journal
	kernel  kernel

	mu    sync.Mutex
	sides map[place]*side
}

// place is one direction of one interface.
type place struct {
	name    string
	ingress bool
}

// side is the state of a place.
type side struct {
	place
	index   int      // the interface's index
	classes int      // index of the device that has the classes: the interface itself, or its IFB device
	targets []string // Targets of the recorded changes that made the side, oldest first
	held    map[Connection]*class
	used    [MaxConnections + 1]bool // minor numbers of classes
}

// class is a connection whose rate is in force.
type class struct {
	target string
	minor  uint16
	rate   uint64
}

// Open returns a shaper of the interfaces of the caller's network namespace. It records its changes in j,
// which the caller must have opened with this package's Undo. The caller must call Close.
func Open(j *journal.Journal) (*Shaper, error) {
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	return &Shaper{journal: j, kernel: k, sides: map[place]*side{}}, nil
}

// Close closes the connection to the kernel. It undoes no changes; the journal does that.
func (s *Shaper) Close() { s.kernel.Close() }

// Find returns the place where a connection can be held. This is the interface through which its packets
// leave this machine. If only the receiver is on this machine, it is the interface through which they come in.
func (s *Shaper) Find(from, to netip.AddrPort) (Connection, error) {
	c := Connection{From: unmapped(from), To: unmapped(to)}
	_, fromHere, err := s.kernel.route(c.From.Addr())
	if err != nil {
		return Connection{}, err
	}
	name, toHere, err := s.kernel.route(c.To.Addr())
	if err != nil {
		return Connection{}, err
	}
	if toHere && !fromHere {
		name, _, err = s.kernel.route(c.From.Addr())
		c.Ingress = true
	}
	c.Interface = name
	return c, err
}

// Set limits the payload of a connection to a rate. A further call for the same connection replaces the
// rate. The caller must call Lift when the connection is closed.
func (s *Shaper) Set(c Connection, bytesPerSecond uint64, why string) error {
	c.From, c.To = unmapped(c.From), unmapped(c.To)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.set(c, bytesPerSecond, why); err != nil {
		return fmt.Errorf("shape %v at %d B/s: %w", c, bytesPerSecond, err)
	}
	return nil
}

func (s *Shaper) set(c Connection, rate uint64, why string) error {
	switch {
	case rate < Floor:
		return fmt.Errorf("the rate is too low: use at least %d, or end the connection's application", Floor)
	case rate > Ceiling:
		return fmt.Errorf("the rate is too high: use at most %d, or lift the rate", uint64(Ceiling))
	case c.Interface == "" || !c.From.IsValid() || !c.To.IsValid() || c.From.Addr().Is4() != c.To.Addr().Is4():
		return errors.New("the connection is not described: an interface and two addresses of the same IP version are needed")
	}
	at := place{c.Interface, c.Ingress}
	here := s.sides[at]
	if here != nil {
		if err := s.kernel.isOurs(here); err != nil {
			return errors.Join(err, s.forget(here))
		}
	} else {
		if len(s.sides) >= maxInterfaces {
			return fmt.Errorf("%d interfaces are shaped, which is the limit", maxInterfaces)
		}
		var err error
		if here, err = s.prepare(at, why); err != nil {
			return err
		}
		s.sides[at] = here
	}
	err := s.hold(here, c, rate, why)
	if len(here.held) == 0 {
		err = errors.Join(err, s.forget(here))
	}
	return err
}

// prepare makes the HTB of a place, if it does not exist.
func (s *Shaper) prepare(at place, why string) (*side, error) {
	link, err := s.kernel.LinkByName(at.name)
	if err != nil {
		return nil, fmt.Errorf("the interface %s: %w", at.name, err)
	}
	here := &side{place: at, index: link.Attrs().Index, held: map[Connection]*class{}}
	here.classes = here.index
	change := func(t target, before, after string, do func() error) error {
		t.index, t.name = here.index, here.name
		here.targets = append(here.targets, t.String())
		return s.journal.Make(journal.Change{Mechanism: Mechanism, Target: t.String(), Before: before, After: after, Why: why}, do)
	}
	if !at.ingress {
		before, err := s.kernel.rootOf(link)
		if err != nil {
			return nil, err
		}
		return here, change(target{kind: kindRoot}, before, "htb "+netlink.HandleStr(rootHandle),
			func() error { return s.kernel.addRoot(here.index) })
	}
	if link.Attrs().Flags&net.FlagLoopback != 0 {
		return nil, fmt.Errorf("%s is a loopback interface: hold the connection where its packets leave (egress)", at.name)
	}
	if err := s.kernel.freeIngress(link); err != nil {
		return nil, err
	}
	err = change(target{kind: kindDevice}, "none", deviceName(here.index), func() (err error) {
		here.classes, err = s.kernel.addDevice(here.index)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = change(target{kind: kindIngress}, "none", "ingress", func() error { return s.kernel.addIngress(here.index) })
	if err != nil {
		return nil, errors.Join(err, s.putBack(here.targets))
	}
	return here, nil
}

// hold makes the class of a connection, or changes the rate of that class.
func (s *Shaper) hold(here *side, c Connection, rate uint64, why string) error {
	link, err := s.kernel.LinkByIndex(here.index)
	if err != nil {
		return fmt.Errorf("the interface %s: %w", c.Interface, err)
	}
	spec := describe(link, here.classes, rate, c.To.Addr())
	t := target{index: here.index, name: here.name, kind: direction(c.Ingress), from: c.From, to: c.To}
	change := journal.Change{Mechanism: Mechanism, Target: t.String(), Before: "none", Why: why}
	if was := here.held[c]; was != nil {
		if was.rate == rate {
			return nil
		}
		spec.minor, change.After = was.minor, classText(was.minor, rate)
		if err := s.journal.Make(change, func() error { return s.kernel.changeClass(spec) }); err != nil {
			return err
		}
		was.rate = rate
		return nil
	}
	for n := uint16(1); n <= MaxConnections && spec.minor == 0; n++ {
		if !here.used[n] {
			spec.minor = n
		}
	}
	if spec.minor == 0 {
		return fmt.Errorf("%d connections of %s are held in this direction, which is the limit: lift the rates of some, or hold their applications as a whole", MaxConnections, c.Interface)
	}
	change.After = classText(spec.minor, rate)
	err = s.journal.Make(change, func() error {
		if err := s.kernel.addClass(spec, c.From, c.To); err != nil {
			return err
		}
		if c.Ingress {
			return s.kernel.addRedirect(here.index, here.classes, spec.minor, c.From, c.To)
		}
		return nil
	})
	if err != nil {
		return err
	}
	here.used[spec.minor] = true
	here.held[c] = &class{target: change.Target, minor: spec.minor, rate: rate}
	return nil
}

// Lift ends the hold of a connection. It does nothing if the connection is not held. With the last
// connection of an interface, Lift also deletes our queueing discipline.
func (s *Shaper) Lift(c Connection) error {
	c.From, c.To = unmapped(c.From), unmapped(c.To)
	s.mu.Lock()
	defer s.mu.Unlock()
	here := s.sides[place{c.Interface, c.Ingress}]
	if here == nil || here.held[c] == nil {
		return nil
	}
	was := here.held[c]
	if err := s.putBack([]string{was.target}); err != nil {
		return fmt.Errorf("lift the rate of %v: %w", c, err)
	}
	delete(here.held, c)
	here.used[was.minor] = false
	if len(here.held) > 0 {
		return nil
	}
	return s.forget(here)
}

// forget undoes all changes at a place.
func (s *Shaper) forget(here *side) error {
	for c, was := range here.held {
		if err := s.putBack([]string{was.target}); err != nil {
			return err
		}
		delete(here.held, c)
		here.used[was.minor] = false
	}
	if err := s.putBack(here.targets); err != nil {
		return err
	}
	delete(s.sides, here.place)
	return nil
}

// putBack undoes changes, the latest first, until one cannot be undone.
func (s *Shaper) putBack(targets []string) error {
	for i := len(targets) - 1; i >= 0; i-- {
		if err := s.journal.PutBack(Mechanism, targets[i]); err != nil {
			return err
		}
	}
	return nil
}

// Rates returns the rates that are set, in bytes per second.
func (s *Shaper) Rates() map[Connection]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := map[Connection]uint64{}
	for _, here := range s.sides {
		for c, was := range here.held {
			rates[c] = was.rate
		}
	}
	return rates
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// onWire returns the rate at which HTB must send so that the payload has the given rate. The two differ,
// because HTB counts the headers of each packet. Packets are assumed to have the size that the interface
// permits. If they are smaller, the payload is slower.
func onWire(rate uint64, mtu int, to netip.Addr) uint64 {
	const ethernet, ip4, ip6, tcp = 14, 20, 40, 32 // bytes; tcp with time stamps
	headers := ip4 + tcp
	if to.Is6() {
		headers = ip6 + tcp
	}
	if mtu < 2*headers {
		return rate
	}
	return rate * uint64(mtu+ethernet) / uint64(mtu-headers)
}

// classText returns the value of a connection in the journal.
func classText(minor uint16, rate uint64) string {
	return "class " + strconv.Itoa(int(minor)) + ", " + strconv.FormatUint(rate, 10) + " B/s"
}

// missing reports whether a deletion has failed because its object does not exist.
func missing(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) || errors.As(err, &none)
}
