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

// checkPeer checks that a node's certificate contains the node's name. Without TLS, it accepts any
// name.
func checkPeer(ctx context.Context, name string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return errors.New("the stream has no peer address")
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure {
		return nil // without TLS the broker listens on loopback only
	}
	if name == "localhost" {
		return fmt.Errorf("%w: the name localhost does not identify a machine", errIdentity)
	}
	for _, chain := range info.State.VerifiedChains {
		if isOperator(chain) {
			return fmt.Errorf("%w: it is a certificate of an operator", errIdentity)
		}
		if len(chain) > 0 && (chain[0].Subject.CommonName == name || slices.Contains(chain[0].DNSNames, name)) {
			return nil
		}
	}
	return fmt.Errorf("%w: it does not name %q", errIdentity, name)
}

var errOperator = errors.New("an operator's certificate is required: make one with `penstock certs --operator NAME`, and give it with --ca, --cert and --key")

func isOperator(chain []*x509.Certificate) bool {
	return len(chain) > 0 && slices.Contains(chain[0].Subject.OrganizationalUnit, certs.Operator)
}

// operator returns the name of the calling operator, which comes from the operator's certificate. A
// broker without certificates serves only its own machine; the name is then that of the local user
// who made the call.
func operator(ctx context.Context) (name string, err error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("the call has no peer address")
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
