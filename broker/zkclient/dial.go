package zkclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"syscall"
	"time"
)

// dial connects, and has the handshake read on its way.
func (k *Client) dial(network, address string, timeout time.Duration, secure func() *tls.Config) (net.Conn, error) {
	k.names.rest()
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, k.failed(address, err, "")
	}
	if secure != nil {
		c := secure().Clone()
		c.ServerName, _, _ = net.SplitHostPort(address)
		over := tls.Client(conn, c)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(k.failed(address, err, whyNoTLS(err)), conn.Close())
		}
		conn = over
	}
	return &listened{Conn: conn, client: k, address: address, secure: secure != nil}, nil
}

// whyNoTLS is what to look at where the handshake of TLS fails.
func whyNoTLS(err error) string {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return "give the CA of ZooKeeper's servers (--zookeeper-ca)"
	case errors.As(err, &other):
		return "name the server as its certificate does (--zookeeper)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew ZooKeeper's certificate, or set this machine's clock"
	case ends(err):
		return "it serves nobody for now, or that is its plain port"
	}
	return whyRefused(err)
}

// whyNoHandshake is the same where ZooKeeper's own fails, which comes after that of TLS: only
// then does the server refuse a certificate.
func whyNoHandshake(err error, secure bool) string {
	switch {
	case !ends(err):
		return whyRefused(err)
	case secure:
		return "it serves nobody for now, or does not take this broker's certificate (--cert)"
	}
	return "it serves nobody for now, or that is its secure port (--zookeeper-ca)"
}

// whyRefused is the same where the server has sent an alert of TLS.
func whyRefused(err error) string {
	if on := new(net.OpError); errors.As(err, &on) && on.Op == remoteError {
		return "look at this broker's certificate (--cert) and at the CA that ZooKeeper trusts"
	}
	return ""
}

// remoteError is the operation of a net.OpError that is an alert of the other side's.
const remoteError = "remote error"

// ends says that the other side has ended a connection, in whatever way.
func ends(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// local is this side's address and port in the text of a resolver's failure.
var local = regexp.MustCompile(`[^ ]+->`)

// cause is an error's text without what is another one at each attempt: ports of this side, and
// the time at which a certificate was looked at.
func cause(err error) string {
	var on *net.OpError
	var name *net.DNSError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "lookup " + name.Name + ": " + local.ReplaceAllString(name.Err, "")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c := invalid.Cert
		invalid.Detail = "it is good from " + c.NotBefore.Format(time.RFC3339) + " to " + c.NotAfter.Format(time.RFC3339)
		return invalid.Error()
	case ends(err):
		return "it ends the connection"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &on) && on.Err != nil && on.Op == remoteError:
		return "it refuses: " + on.Err.Error()
	case errors.As(err, &on) && on.Err != nil:
		return on.Err.Error()
	}
	return err.Error()
}

// failed keeps why there is no connection to a server. It says so when that is not what it said
// of this server last, but no more often than once in quietTime, whatever the cause.
func (k *Client) failed(address string, err error, hint string) error {
	text := cause(err)
	if hint != "" {
		text += ": " + hint
	}
	now := time.Now()
	k.mu.Lock()
	k.last = address
	t := k.troubles[address]
	t.text = text
	say := t.said != text && (t.at.IsZero() || now.Sub(t.at) >= quietTime)
	if say {
		t.said, t.at = text, now
	}
	k.troubles[address] = t
	k.mu.Unlock()
	if say && !k.ended() {
		k.log.Warn("no connection to a ZooKeeper server", "server", address, "error", text)
	}
	return err
}

// trouble is why there is no connection; empty if that is not known.
func (k *Client) trouble() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == "" {
		return ""
	}
	return k.last + ": " + k.troubles[k.last].text
}
