package coordination

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"penstock/wire/cluster"
)

var errNoBroker = errors.New("no broker answers")

// Where asks the broker which node lives at an address: its name, and where it answers
// other nodes' questions.
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

// hosts are the machine's addresses as others may see them, as many as may be stated.
func hosts() (all []string) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the one that the stream comes from is known anyway
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() && len(all) < cluster.MaxHosts {
			all = append(all, p.Addr().Unmap().String())
		}
	}
	return all
}
