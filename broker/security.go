package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// checkPeer holds a node's name against its certificate, where there is one.
func checkPeer(ctx context.Context, name string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return errors.New("a stream without a peer")
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure {
		return nil // plain: the broker was asked to, and listens on loopback only
	}
	if name == "localhost" {
		return fmt.Errorf("%w: every machine is localhost", errIdentity)
	}
	for _, chain := range info.State.VerifiedChains {
		if len(chain) > 0 && (chain[0].Subject.CommonName == name || slices.Contains(chain[0].DNSNames, name)) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is not of %q", errIdentity, name)
}
