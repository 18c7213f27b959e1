package broker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

// place is where a node lives.
type location struct {
	from  netip.Addr   // that its stream comes from; invalid: no other machine's
	hosts []netip.Addr // that it states
}

// machineAddress tells whether an address can be one machine's as others see it.
func machineAddress(a netip.Addr) bool {
	return a.IsValid() && (a.IsGlobalUnicast() || a.IsLinkLocalUnicast()) && !a.IsLoopback()
}

// parseHost reads an IP address as it is compared: without a zone, IPv4 as such.
func parseHost(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, err
	}
	return a.Unmap().WithZone(""), nil
}

// placeOf is where a node that begins a stream lives.
func locationOf(ctx context.Context, node *cluster.Node) (p location, err error) {
	if len(node.GetHosts()) > cluster.MaxHosts {
		return location{}, fmt.Errorf("%d hosts: a machine states at most %d addresses", len(node.GetHosts()), cluster.MaxHosts)
	}
	for _, text := range node.GetHosts() {
		a, err := parseHost(text)
		if err != nil || !machineAddress(a) {
			return location{}, fmt.Errorf("host %.60q: a machine states IP addresses of its own, neither loopback nor multicast", text)
		}
		p.hosts = append(p.hosts, a)
	}
	if address := node.GetAddress(); address != "" {
		if _, port, err := net.SplitHostPort(address); err != nil || len(address) > cluster.MaxName || port == "" {
			return location{}, fmt.Errorf("address %.60q: give host:port", address)
		}
	}
	if from, ok := peer.FromContext(ctx); ok {
		if at, ok := from.Addr.(*net.TCPAddr); ok {
			if a := at.AddrPort().Addr().Unmap().WithZone(""); machineAddress(a) {
				p.from = a
			}
		}
	}
	return p, nil
}

// addresses are all that the node may live at, each once.
func (p location) addresses() []netip.Addr {
	all := slices.Clone(p.hosts)
	if p.from.IsValid() {
		all = append(all, p.from)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// settleIn notes where a session's node lives, moveOut forgets it. b.mu is held.
func (b *Broker) addAddresses(s *session) {
	for _, a := range s.location.addresses() {
		if b.nodesByAddress[a] == nil {
			b.nodesByAddress[a] = map[*session]struct{}{}
		}
		b.nodesByAddress[a][s] = struct{}{}
	}
}

func (b *Broker) removeAddresses(s *session) {
	for _, a := range s.location.addresses() {
		if delete(b.nodesByAddress[a], s); len(b.nodesByAddress[a]) == 0 {
			delete(b.nodesByAddress, a)
		}
	}
}

// Where implements cluster.NodesServer: the node that lives at an IP address. One whose stream
// comes from there is it, whoever states the address; else the one that states it. Where two
// are as good as each other nobody is: a wrong one would be asked in another's place.
func (b *Broker) Where(ctx context.Context, host *cluster.Host) (*cluster.Node, error) {
	a, err := parseHost(host.GetAddress())
	if err != nil || !machineAddress(a) {
		return nil, status.Errorf(codes.InvalidArgument, "address %.60q: give an IP address of another machine", host.GetAddress())
	}
	b.mu.Lock()
	if err := b.checkNode(ctx); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	var real, stated candidates
	for s := range b.nodesByAddress[a] {
		if s.location.from == a {
			real.add(s.node)
		} else {
			stated.add(s.node)
		}
	}
	b.mu.Unlock()
	found := real
	if found.count == 0 {
		found = stated
	}
	switch found.count {
	case 0:
		return nil, status.Errorf(codes.NotFound, "no node reports from %v or says that it has that address", a)
	case 1:
		return &cluster.Node{Name: found.first[0].GetName(), Address: found.first[0].GetAddress()}, nil
	}
	var names []string
	for _, n := range found.first {
		names = append(names, n.GetName())
	}
	return nil, status.Errorf(codes.NotFound, "%v is ambiguous: %d nodes have it, %s", a, found.count, strings.Join(names, ", "))
}

// candidates are the nodes that an address may be of: how many, and those that are named, in
// the order of their names.
type candidates struct {
	count int
	first []*cluster.Node
}

const maxNamedCandidates = 5

func (c *candidates) add(n *cluster.Node) {
	c.count++
	if len(c.first) == maxNamedCandidates && c.first[maxNamedCandidates-1].GetName() < n.GetName() {
		return
	}
	at, _ := slices.BinarySearchFunc(c.first, n.GetName(), func(o *cluster.Node, name string) int { return strings.Compare(o.GetName(), name) })
	c.first = slices.Insert(c.first, at, n)
	c.first = c.first[:min(len(c.first), maxNamedCandidates)]
}

// checkNode refuses whoever is not a node that reports. b.mu is held.
func (b *Broker) checkNode(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.PermissionDenied, "a call without a peer")
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure {
		return nil // plain: see checkPeer
	}
	machines := cluster.MachinesOf(info.State)
	for _, name := range machines {
		if b.sessions[name] != nil {
			return nil
		}
	}
	if len(machines) > 0 { // its stream may be on its way
		return status.Error(codes.Unavailable, "this node does not report yet: only those that do may ask where others live")
	}
	return status.Error(codes.PermissionDenied, "only nodes that report may ask where others live")
}
