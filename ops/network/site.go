package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Site is a set-up with its processes.
type Site struct {
	setUp   SetUp
	machine namespace // with the loopback or the bridge
	pairs   []pair
	undo    func() error // of Accelerate
}

// pair is a client and the server that it talks to.
type pair struct{ client, server *process }

// Container is a process of a site. With a bridge it has a network namespace of its own.
type Container struct {
	PID     int
	Address netip.Addr
	Server  bool
}

// Containers returns all containers. The two of a pair follow each other.
func (s *Site) Containers() (all []Container) {
	for i, p := range s.pairs {
		all = append(all, Container{p.client.pid, clientAddress(i), false}, Container{p.server.pid, serverAddress(i), true})
	}
	return all
}

// Do calls f on a thread in the namespace of the bridge, or of the loopback.
func (s *Site) Do(f func() error) error { return s.machine.do(f) }

// namespace is a network namespace without a name. It ends when it has neither a handle nor a process.
type namespace struct {
	ns    netns.NsHandle
	links *netlink.Handle
}

// apart calls f on a thread that ends with f, so no other goroutine can run in the thread's namespace.
func apart(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

func (n namespace) do(f func() error) error {
	return apart(func() error {
		if err := netns.Set(n.ns); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// adopt opens a namespace's links.
func adopt(ns netns.NsHandle) (n namespace, err error) {
	n.ns = ns
	if n.links, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		return namespace{}, errors.Join(err, ns.Close())
	}
	if err := n.up("lo"); err != nil {
		n.close()
		return namespace{}, err
	}
	return n, nil
}

func (n namespace) up(link string) error {
	l, err := n.links.LinkByName(link)
	if err == nil {
		err = n.links.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	return nil
}

func (n namespace) close() error {
	if n.links == nil {
		return nil
	}
	n.links.Close()
	return n.ns.Close()
}

// newNamespace makes a namespace.
func newNamespace() (n namespace, err error) {
	ns := netns.None()
	if err := apart(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = netns.Get()
		return err
	}); err != nil {
		return namespace{}, fmt.Errorf("make a network namespace, which needs root: %w", err)
	}
	return adopt(ns)
}

// NewSite builds a set-up with a number of pairs. It needs root. The site must be closed.
func NewSite(ctx context.Context, setUp SetUp, pairs int) (_ *Site, err error) {
	if pairs < 1 || pairs > MaxPairs {
		return nil, fmt.Errorf("%d pairs of containers: use 1 to %d", pairs, MaxPairs)
	}
	s := &Site{setUp: setUp}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set-up %s: %w", setUp.Name, err), s.Close())
		}
	}()
	if s.machine, err = newNamespace(); err != nil {
		return nil, err
	}
	if setUp.Bridge {
		if err := s.addBridge(ctx, pairs); err != nil {
			return nil, err
		}
	}
	for i := range pairs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.pairs = append(s.pairs, pair{})
		p := &s.pairs[i]
		if p.client, err = s.container(fmt.Sprintf("client%d", i), clientAddress(i)); err != nil {
			return nil, err
		}
		if p.server, err = s.container(fmt.Sprintf("server%d", i), serverAddress(i)); err != nil {
			return nil, err
		}
	}
	if setUp.Bridge {
		if err := s.awaitLinks(ctx); err != nil {
			return nil, err
		}
	}
	if setUp.Accelerate != nil {
		if s.undo, err = setUp.Accelerate(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close ends all processes. The kernel then removes the namespaces.
func (s *Site) Close() (err error) {
	if s.undo != nil {
		err = s.undo()
		s.undo = nil
	}
	for _, p := range s.pairs {
		for _, end := range []*process{p.client, p.server} {
			if end != nil {
				err = errors.Join(err, end.end())
			}
		}
	}
	s.pairs = nil
	err = errors.Join(err, s.machine.close())
	s.machine = namespace{}
	return err
}

// addBridge makes the bridge, with its parameters and rules.
func (s *Site) addBridge(ctx context.Context, pairs int) error {
	if err := s.machine.links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}); err != nil {
		return fmt.Errorf("make the bridge: %w", err)
	}
	if err := addAddress(s.machine.links, bridgeName, bridgeAddress); err != nil {
		return err
	}
	if err := s.machine.up(bridgeName); err != nil {
		return err
	}
	return s.machine.do(func() error {
		if err := setParameters(s.setUp.Filter); err != nil || !s.setUp.Filter {
			return err
		}
		return restoreRules(ctx, s.setUp.rules(pairs))
	})
}

// bridgeParameter is missing in a kernel without br_netfilter. Since Linux 5.3, each namespace has its own.
const bridgeParameter = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// HasBridgeFilter reports whether the kernel can pass the packets of a bridge to iptables.
func HasBridgeFilter() bool {
	_, err := os.Stat(bridgeParameter)
	return err == nil
}

// setParameters sets parameters of the caller's namespace, which is the bridge's.
func setParameters(filter bool) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	value := "0"
	if filter {
		value = "1"
	}
	if err := os.WriteFile(bridgeParameter, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// restoreRules gives the caller's namespace its rules.
func restoreRules(ctx context.Context, rules string) error {
	const program = "iptables-restore"
	path, err := exec.LookPath(program)
	if err != nil { // it is often in a folder that is not on the path of users
		if path, err = exec.LookPath("/usr/sbin/" + program); err != nil {
			return fmt.Errorf("%s is missing: install the package iptables, or measure the set-ups %s and %s only", program, Host, Bridge)
		}
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func addAddress(links *netlink.Handle, name string, a netip.Addr) error {
	link, err := links.LinkByName(name)
	if err == nil {
		err = links.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(subnet.Bits(), 32)}})
	}
	if err != nil {
		return fmt.Errorf("address of %s: %w", name, err)
	}
	return nil
}

// container starts a process. With a bridge, it gets a namespace with a link to the bridge.
func (s *Site) container(name string, a netip.Addr) (p *process, err error) {
	if !s.setUp.Bridge {
		err := s.machine.do(func() (err error) {
			p, err = startProcess(together)
			return err
		})
		return p, err
	}
	start := alone
	if s.setUp.Launch != nil {
		start = s.setUp.Launch
	}
	if p, err = startProcess(start); err != nil {
		return nil, err
	}
	if err := s.plug(p, name, a); err != nil {
		return nil, errors.Join(fmt.Errorf("network of a container: %w", err), p.end())
	}
	return p, nil
}

// inside is the name of a container's link in the container.
const inside = "eth0"

func (s *Site) plug(p *process, name string, a netip.Addr) error {
	ns, err := netns.GetFromPid(p.pid)
	if err != nil {
		return err
	}
	n, err := adopt(ns)
	if err != nil {
		return err
	}
	defer n.close()
	bridge, err := s.machine.links.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	if err := s.machine.links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName: inside, PeerNamespace: netlink.NsFd(ns)}); err != nil {
		return fmt.Errorf("make the link %s: %w", name, err)
	}
	if err := addAddress(n.links, inside, a); err != nil {
		return err
	}
	return errors.Join(n.up(inside), s.machine.up(name))
}

const linksWait = 10 * time.Second

// awaitLinks waits until all links of the bridge pass packets. The kernel notices a new link's carrier up to a second
// later.
func (s *Site) awaitLinks(ctx context.Context) error {
	for deadline := time.Now().Add(linksWait); ; {
		links, err := s.machine.links.LinkList()
		if err != nil {
			return fmt.Errorf("list the links of the bridge: %w", err)
		}
		waiting := ""
		for _, l := range links {
			if l.Type() == "veth" && l.Attrs().OperState != netlink.OperUp {
				waiting = l.Attrs().Name
			}
		}
		if waiting == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the link %s passes nothing after %v", waiting, linksWait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
