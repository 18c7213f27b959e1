package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"penstock/node/identity"
	"penstock/node/peers"
	"penstock/node/status"
	"penstock/wire/cluster"
)

// This file handles peers on other machines: the daemon asks other nodes about their processes, and
// answers such questions from other nodes.

// newRemote creates the client that asks other nodes and the server that answers them, each only if
// the settings enable it. Both need certificates.
func (d *Daemon) newRemote() error {
	b := d.settings.Broker
	if b == nil {
		return nil
	}
	files := cluster.Files{CA: b.CA, Cert: b.Cert, Key: b.Key}
	if files.Empty() {
		return nil
	}
	if b.Peers != "" {
		d.answers = peers.NewServer(func(ctx context.Context, local, remote netip.AddrPort) (identity.Peer, error) {
			return d.identity.Whose(ctx, local, remote)
		}, d.log)
		d.answers.Written = func(ctx context.Context, pid int, block string) (flow, user string) {
			return d.written.verified(ctx, pid, block, 0)
		}
		if d.storage != nil && d.settings.Storage.Directory != "" {
			d.answers.Target = d.storage.target
		}
	}
	mode, err := identity.ParseMode(d.settings.Identity.Mode)
	trust := err == nil && mode == identity.Trust
	if trust && d.storage == nil {
		return nil // nothing to ask
	}
	secure, err := files.Clients()
	if err != nil {
		return err
	}
	client := peers.NewClient(peers.Options{Self: b.Node, TLS: secure, Log: d.log,
		Where: func(ctx context.Context, address netip.Addr) (*cluster.Node, error) {
			return d.cluster.Where(ctx, address)
		}})
	if d.storage != nil {
		d.storage.away = peers.NewTurns(client)
	}
	if !trust {
		d.remote = client
	}
	d.asking = client
	return nil
}

// peerPort is the address at which this node answers questions from other nodes.
type peerPort struct {
	port   *port
	secure *tls.Config
}

// listenForPeers listens for questions from other nodes, and has the broker publish the address. It
// returns nil if the settings do not enable answers.
func (d *Daemon) listenForPeers(ctx context.Context) (*peerPort, error) {
	if d.answers == nil {
		return nil, nil
	}
	b := d.settings.Broker
	secure, err := cluster.Files{CA: b.CA, Cert: b.Cert, Key: b.Key}.Server()
	if err != nil {
		return nil, err
	}
	d.cluster.Address = b.Peers
	port, err := d.listenOn(ctx, "other nodes", b.Peers)
	if err != nil {
		return nil, fmt.Errorf("broker.peers: %w", err)
	}
	return &peerPort{port, secure}, nil
}

// answerPeers answers other nodes until ctx ends.
func (d *Daemon) answerPeers(ctx context.Context, p *peerPort) {
	p.port.serve(ctx, func(l net.Listener) {
		if err := d.answers.Serve(ctx, l, p.secure); err != nil {
			d.log.Error("this node no longer answers questions of other nodes", "error", err)
		}
	})
}

func (d *Daemon) remoteStatus() status.Remote {
	s := &d.identity.Stats.Remote
	// The total is the sum of the values read here, since the counters change one after the
	// other.
	r := status.Remote{Asking: d.remote != nil, Confirmed: s.Confirmed.Load(), Refuted: s.Refuted.Load(),
		Undecided: s.Undecided.Load(), Unanswered: s.Unanswered.Load()}
	r.Asked = r.Confirmed + r.Refuted + r.Undecided + r.Unanswered
	if d.answers != nil {
		r.Listen, r.Answered, r.Refused = d.settings.Broker.Peers, d.answers.Answered.Load(), d.answers.Refused.Load()
	}
	return r
}
