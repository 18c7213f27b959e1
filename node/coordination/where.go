package coordination

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"penstock/wire/cluster"
)

var errNoBroker = errors.New("no broker answers")

// Where asks the broker which node lives at an address. The result has the node's name, and the
// address at which that node answers questions from other nodes.
func (c *Client) Where(ctx context.Context, address netip.Addr) (*cluster.Node, error) {
	c.mu.Lock()
	broker := c.broker
	c.mu.Unlock()
	if broker == nil {
		return nil, errNoBroker
	}
	return broker.Where(ctx, &cluster.Host{Address: address.String()})
}

func (c *Client) setBroker(b cluster.NodesClient) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broker = b
}

// hosts returns the machine's addresses as other machines may see them, at most as many as may be
// reported.
func hosts() (all []string) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the broker knows the address of the stream anyway
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() && len(all) < cluster.MaxHosts {
			all = append(all, p.Addr().Unmap().String())
		}
	}
	return all
}
