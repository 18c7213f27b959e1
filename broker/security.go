package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"penstock/broker/certs"
	"penstock/broker/store"
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
		if isOperator(chain) {
			return fmt.Errorf("%w: it is an operator's", errIdentity)
		}
		if len(chain) > 0 && (chain[0].Subject.CommonName == name || slices.Contains(chain[0].DNSNames, name)) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is not of %q", errIdentity, name)
}

var errOperator = errors.New("this needs an operator's certificate: `penstock certs --operator NAME` makes one, and --ca, --cert and --key name it")

func isOperator(chain []*x509.Certificate) bool {
	return len(chain) > 0 && slices.Contains(chain[0].Subject.OrganizationalUnit, certs.Operator)
}

// operator says who asks, by the certificate; without certificates, where the broker
// serves its own machine only, by the local user.
func operator(ctx context.Context) (name string, err error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("a question without a peer")
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure {
		from, err := netip.ParseAddrPort(p.Addr.String())
		if err != nil || !from.Addr().Unmap().IsLoopback() {
			return "", errOperator
		}
		return localUser("/proc/net", from), nil
	}
	for _, chain := range info.State.VerifiedChains {
		if name := chain[0].Subject.CommonName; isOperator(chain) && name != "" {
			return name[:min(len(name), store.MaxName)], nil
		}
	}
	return "", errOperator
}
