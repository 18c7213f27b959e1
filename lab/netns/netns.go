// Package netns provides several machines on one machine: network namespaces, each with an address
// on a common network. The links of the machines can be cut.
//
// Problem: loopback cannot show which machine a connection comes from, or what happens when a
// machine loses its network. On loopback every process sees every socket, and the end of a
// connection is always noticed. Choice: a bridge in its own namespace, and a pair of veths from the
// bridge to each machine. So the test's own network does not change. A link is cut at the bridge's
// end, so packets are lost silently, as with a cable that is unplugged elsewhere. All machines
// share processes, files and disks. Each namespace is recorded in the run's ledger, so the next run
// removes the namespaces of a killed run; the kernel then removes their veths.
package netns

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"penstock/lab/ledger"
)

// MaxMachines bounds the number of machines of a network.
const MaxMachines = 64

// where is the folder in which namespaces have names. `ip netns exec NAME` looks there.
const where = "/run/netns"

// Network is a network of machines.
type Network struct {
	Machines []*Machine

	book   *ledger.Ledger
	tag    string
	prefix netip.Prefix
	bridge *Machine
	here   bool // the caller has a link
	ids    []ledger.ID
}

// Machine is a namespace.
type Machine struct {
	Name    string     // name of its namespace
	Address netip.Addr // IPv4 address on the network

	ns     netns.NsHandle
	links  *netlink.Handle // handle that configures its links
	bridge *Machine
	port   string // name of its link at the bridge
}

// New makes a network of n machines, and needs root. The network's addresses are from the range for
// benchmarks (RFC 2544) and are not in use on this machine. Which of these addresses New tries
// first depends on the run's folder.
func New(book *ledger.Ledger, n int) (_ *Network, err error) {
	if n < 1 || n > MaxMachines {
		return nil, fmt.Errorf("a network of %d machines: use 1 to %d", n, MaxMachines)
	}
	hash := fnv.New32a()
	hash.Write([]byte(book.Dir()))
	sum := hash.Sum32()
	used, err := addresses()
	if err != nil {
		return nil, err
	}
	w := &Network{book: book, tag: fmt.Sprintf("pen%06x", sum&0xffffff)}
	if w.prefix, err = choose(sum, used); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a network of %d machines: %w", n, err), w.Close())
		}
	}()
	if w.bridge, err = w.namespace(w.tag + "-bridge"); err != nil {
		return nil, err
	}
	if err := up(w.bridge.links, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}); err != nil {
		return nil, err
	}
	for i := range n {
		m, err := w.namespace(fmt.Sprintf("%s-%d", w.tag, i))
		if err != nil {
			return nil, err
		}
		w.Machines = append(w.Machines, m)
		m.bridge, m.port = w.bridge, fmt.Sprintf("port%d", i)
		if m.Address, err = w.plug(m.links, m.ns, m.port, "eth0", i+1); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// networks is the number of networks of 256 addresses in the range for benchmarks, 198.18.0.0/15.
const networks = 512

// choose returns a network that shares no address with a network in use. It tries the networks in
// order of their numbers, beginning with the network whose number is "from". Two runs may begin
// with the same number. A killed run's network stays in use until the kernel has removed its veths.
func choose(from uint32, used []netip.Prefix) (netip.Prefix, error) {
	for i := range uint32(networks) {
		n := (from + i) % networks
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>8), byte(n), 0}), 24)
		if free(p, used) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("all %d networks of 198.18.0.0/15 are in use on this machine", networks)
}

func free(p netip.Prefix, used []netip.Prefix) bool {
	return !slices.ContainsFunc(used, p.Overlaps)
}

// addresses returns the addresses in the caller's namespace, with their networks.
func addresses() (all []netip.Prefix, err error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses in use on this machine: %w", err)
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, fmt.Errorf("list the addresses in use on this machine: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// Here also gives the caller's own namespace an address on the network. Close removes this address.
func (w *Network) Here() (netip.Addr, error) {
	links, err := netlink.NewHandle()
	if err != nil {
		return netip.Addr{}, err
	}
	defer links.Close()
	ns, err := netns.Get()
	if err != nil {
		return netip.Addr{}, err
	}
	defer ns.Close()
	used, err := addresses()
	if err != nil {
		return netip.Addr{}, err
	}
	if !free(w.prefix, used) {
		return netip.Addr{}, fmt.Errorf("another network has taken addresses of %v since this network was made: make the network again", w.prefix)
	}
	w.here = true
	return w.plug(links, ns, herePort, w.tag, MaxMachines+1)
}

// herePort is the name of the caller's port at the bridge.
const herePort = "here"

// leave removes the caller's link. The kernel removes the links of a namespace some time after the namespace's end, and
// a next network of this run may need the name earlier.
func (w *Network) leave() error {
	if !w.here {
		return nil
	}
	w.here = false
	link, err := w.bridge.links.LinkByName(herePort)
	if err != nil {
		return nil // it was not made
	}
	return w.bridge.links.LinkDel(link)
}

// plug makes a link between the bridge and a namespace, and gives the namespace an address on it.
func (w *Network) plug(links *netlink.Handle, ns netns.NsHandle, port, name string, host int) (netip.Addr, error) {
	bridge, err := w.bridge.links.LinkByName("bridge")
	if err != nil {
		return netip.Addr{}, err
	}
	err = up(w.bridge.links, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index},
		PeerName: name, PeerNamespace: netlink.NsFd(ns)})
	if err != nil {
		return netip.Addr{}, err
	}
	link, err := links.LinkByName(name)
	if err != nil {
		return netip.Addr{}, err
	}
	ip := w.prefix.Addr().As4()
	ip[3] = byte(host)
	if err := links.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip[:], Mask: net.CIDRMask(w.prefix.Bits(), 32)}}); err != nil {
		return netip.Addr{}, fmt.Errorf("address of %s: %w", name, err)
	}
	return netip.AddrFrom4(ip), links.LinkSetUp(link)
}

// up makes a link and brings it up.
func up(links *netlink.Handle, link netlink.Link) error {
	if err := links.LinkAdd(link); err != nil {
		return fmt.Errorf("make the link %s: %w", link.Attrs().Name, err)
	}
	return links.LinkSetUp(link)
}

// namespace makes a namespace with its loopback interface up.
func (w *Network) namespace(name string) (*Machine, error) {
	path := filepath.Join(where, name)
	for _, record := range []func(string) (ledger.ID, error){w.book.Remove, w.book.Bind} {
		id, err := record(path)
		if err != nil {
			return nil, err
		}
		w.ids = append(w.ids, id)
	}
	var ns netns.NsHandle
	err := apart(func() (err error) {
		ns, err = netns.NewNamed(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the namespace %s, which needs root: %w", name, err)
	}
	m := &Machine{Name: name, ns: ns}
	if m.links, err = netlink.NewHandleAt(ns); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	loopback, err := m.links.LinkByName("lo")
	if err == nil {
		err = m.links.LinkSetUp(loopback)
	}
	if err != nil {
		m.close()
		return nil, fmt.Errorf("loopback of %s: %w", name, err)
	}
	return m, nil
}

// apart calls f on a thread that ends with f, so no other goroutine can run in the thread's
// namespace.
func apart(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Do calls f on a thread in the machine's namespace. Sockets that f makes itself, not in another
// goroutine, belong to the machine for their whole life. f must not look up host names.
func (m *Machine) Do(f func() error) error {
	return apart(func() error {
		if err := netns.Set(m.ns); err != nil {
			return fmt.Errorf("enter %s: %w", m.Name, err)
		}
		return f()
	})
}

// Listen listens on the machine at address, ip:port.
func (m *Machine) Listen(ctx context.Context, address string) (l net.Listener, err error) {
	err = m.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		return err
	})
	return l, err
}

// Dial connects from the machine to address, ip:port.
func (m *Machine) Dial(ctx context.Context, address string) (c net.Conn, err error) {
	err = m.Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// Path returns the path of the machine's namespace, for nsenter --net=PATH.
func (m *Machine) Path() string { return filepath.Join(where, m.Name) }

// IP returns the machine's address as text.
func (m *Machine) IP() string { return m.Address.String() }

// HostName returns "", because machines have the host name of the machine on which they are.
func (m *Machine) HostName() string { return "" }

// Args returns the command line that runs another one on the machine, as one process, through nsenter (util-linux).
func (m *Machine) Args(argv ...string) []string {
	return append([]string{"nsenter", "--net=" + m.Path(), "--"}, argv...)
}

// Command returns a command that runs on the machine, as Args does.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	argv := m.Args(append([]string{name}, args...)...)
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// Cut cuts the machine's link: everything sent to or from the machine is lost.
func (m *Machine) Cut() error { return m.set((*netlink.Handle).LinkSetDown) }

// Mend restores the machine's link.
func (m *Machine) Mend() error { return m.set((*netlink.Handle).LinkSetUp) }

func (m *Machine) set(f func(*netlink.Handle, netlink.Link) error) error {
	link, err := m.bridge.links.LinkByName(m.port)
	if err != nil {
		return fmt.Errorf("link of %s: %w", m.Name, err)
	}
	return f(m.bridge.links, link)
}

func (m *Machine) close() error {
	m.links.Close()
	return m.ns.Close()
}

// Close removes the network. A machine with running processes keeps its namespace, without a link,
// until they end.
func (w *Network) Close() error {
	errs := []error{w.leave()}
	for _, m := range append(w.Machines, w.bridge) {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	return errors.Join(append(errs, w.book.Undo(w.ids...))...)
}
