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

// location is the set of IP addresses of a node.
type location struct {
	from  netip.Addr   // source address of its stream; invalid if that is a loopback address
	hosts []netip.Addr // addresses that the node states
}

// machineAddress reports whether an address can identify a machine to others.
func machineAddress(a netip.Addr) bool {
	return a.IsValid() && (a.IsGlobalUnicast() || a.IsLinkLocalUnicast()) && !a.IsLoopback()
}

// parseHost parses an IP address in the form in which addresses are compared: without a zone, and
// with an IPv4 address in IPv6 form converted to IPv4.
func parseHost(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, err
	}
	return a.Unmap().WithZone(""), nil
}

// locationOf returns the location of a node that begins a stream.
func locationOf(ctx context.Context, node *cluster.Node) (p location, err error) {
	if len(node.GetHosts()) > cluster.MaxHosts {
		return location{}, fmt.Errorf("%d hosts: state at most %d addresses", len(node.GetHosts()), cluster.MaxHosts)
	}
	for _, text := range node.GetHosts() {
		a, err := parseHost(text)
		if err != nil || !machineAddress(a) {
			return location{}, fmt.Errorf("host %.60q: state unicast IP addresses of the machine, no loopback addresses", text)
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

// addresses returns all addresses of the location, without duplicates.
func (p location) addresses() []netip.Addr {
	all := slices.Clone(p.hosts)
	if p.from.IsValid() {
		all = append(all, p.from)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// addAddresses adds the addresses of a session's node to the index; removeAddresses removes them.
// b.mu is held.
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

// Where implements cluster.NodesServer. It returns the node that has an IP address. This is the
// node whose stream comes from that address or, if no stream does, the node that states the
// address. If several nodes are equally likely, Where returns an error, because the caller might
// otherwise ask the wrong node.
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
		return nil, status.Errorf(codes.NotFound, "no node reports from %v or states this address", a)
	case 1:
		return &cluster.Node{Name: found.first[0].GetName(), Address: found.first[0].GetAddress()}, nil
	}
	var names []string
	for _, n := range found.first {
		names = append(names, n.GetName())
	}
	return nil, status.Errorf(codes.NotFound, "%v is ambiguous: %d nodes have this address: %s", a, found.count, strings.Join(names, ", "))
}

// candidates counts the nodes that an address may belong to, and keeps the first maxNamedCandidates
// of these nodes in the order of their names.
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

// checkNode refuses callers that are not reporting nodes. b.mu is held.
func (b *Broker) checkNode(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.PermissionDenied, "the call has no peer address")
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure {
		return nil // no TLS: see checkPeer
	}
	if err := inTime(info.State); err != nil {
		return answerError(err)
	}
	machines := cluster.MachinesOf(info.State)
	for _, name := range machines {
		if b.sessions[name] != nil {
			return nil
		}
	}
	if len(machines) > 0 { // the caller's stream may be about to begin
		return status.Error(codes.Unavailable, "this node does not report to the broker yet, so it may not look up other nodes; retry later")
	}
	return status.Error(codes.PermissionDenied, "only nodes that report to this broker may look up other nodes")
}
