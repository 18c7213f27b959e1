package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"penstock/broker/certs"
	"penstock/broker/roles"
	"penstock/broker/store"
	"penstock/wire/cluster"
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
	if err := inTime(info.State); err != nil {
		return err
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

// inTime returns an error if the certificate of a connection has expired since the connection was opened. The peer then
// connects again, with its present certificate.
func inTime(state tls.ConnectionState) error {
	if !cluster.Expired(state) {
		return nil
	}
	return fmt.Errorf("%w: the certificate %q has expired; connect again with a new one", errIdentity, state.PeerCertificates[0].Subject.CommonName)
}

var errOperator = errors.New("an operator's certificate is required: make one with `penstock certs --operator NAME`, and give it with --ca, --cert and --key")

func isOperator(chain []*x509.Certificate) bool {
	return len(chain) > 0 && slices.Contains(chain[0].Subject.OrganizationalUnit, certs.Operator)
}

// caller is who makes a call.
type caller struct {
	name     string // of the certificate, or of the local user
	by       string // how the name is known: certificate, user or file
	from     string // address
	host     string // address without the port
	operator bool   // the caller can have a role at all
	expired  error  // why its certificate is no longer valid; nil: it is
	roles.Given
}

// callerOf returns who makes a call. The name comes from the certificate. A broker without certificates serves only its own
// machine; the name is then that of the local user who made the call.
func (b *Broker) callerOf(ctx context.Context) caller {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return caller{}
	}
	c := caller{by: "certificate", from: p.Addr.String(), host: p.Addr.String()}
	from, err := netip.ParseAddrPort(c.from)
	if err == nil {
		c.host = from.Addr().Unmap().String()
	}
	who := roles.Who{}
	if info, secure := p.AuthInfo.(credentials.TLSInfo); secure {
		c.expired = inTime(info.State)
		for _, chain := range info.State.VerifiedChains {
			name := chain[0].Subject.CommonName
			who.Name = name[:min(len(name), store.MaxName)]
			if c.operator = isOperator(chain) && name != ""; c.operator {
				break
			}
		}
	} else if c.by = "user"; err == nil && from.Addr().Unmap().IsLoopback() {
		c.operator = true
		who.Name, who.UID = localUser("/proc/net", from)
	}
	if c.name = who.Name; c.by == "user" && c.name == "" {
		c.name = unknownUser
	}
	if c.operator {
		c.Given = b.options.Roles.Of(who)
	}
	return c
}
