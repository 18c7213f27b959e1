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
	k.hosts.pauseIfDue()
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, k.connectFailed(address, err, "")
	}
	if secure != nil {
		c := secure().Clone()
		c.ServerName, _, _ = net.SplitHostPort(address)
		over := tls.Client(conn, c)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(k.connectFailed(address, err, tlsHint(err)), conn.Close())
		}
		conn = over
	}
	return &handshakeConn{Conn: conn, client: k, address: address, secure: secure != nil}, nil
}

// whyNoTLS is what to look at where the handshake of TLS fails.
func tlsHint(err error) string {
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
	case isDisconnect(err):
		return "it serves nobody for now, or that is its plain port"
	}
	return alertHint(err)
}

// whyNoHandshake is the same where ZooKeeper's own fails, which comes after that of TLS: only
// then does the server refuse a certificate.
func handshakeHint(err error, secure bool) string {
	switch {
	case !isDisconnect(err):
		return alertHint(err)
	case secure:
		return "it serves nobody for now, or does not take this broker's certificate (--cert)"
	}
	return "it serves nobody for now, or that is its secure port (--zookeeper-ca)"
}

// whyRefused is the same where the server has sent an alert of TLS.
func alertHint(err error) string {
	if on := new(net.OpError); errors.As(err, &on) && on.Op == remoteError {
		return "look at this broker's certificate (--cert) and at the CA that ZooKeeper trusts"
	}
	return ""
}

// remoteError is the operation of a net.OpError that is an alert of the other side's.
const remoteError = "remote error"

// ends says that the other side has ended a connection, in whatever way.
func isDisconnect(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// local is this side's address and port in the text of a resolver's failure.
var localAddress = regexp.MustCompile(`[^ ]+->`)

// cause is an error's text without what is another one at each attempt: ports of this side, and
// the time at which a certificate was looked at.
func cause(err error) string {
	var on *net.OpError
	var name *net.DNSError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "lookup " + name.Name + ": " + localAddress.ReplaceAllString(name.Err, "")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c := invalid.Cert
		invalid.Detail = "it is good from " + c.NotBefore.Format(time.RFC3339) + " to " + c.NotAfter.Format(time.RFC3339)
		return invalid.Error()
	case isDisconnect(err):
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
func (k *Client) connectFailed(address string, err error, hint string) error {
	text := cause(err)
	if hint != "" {
		text += ": " + hint
	}
	now := time.Now()
	k.mu.Lock()
	k.lastFailed = address
	t := k.failures[address]
	t.text = text
	say := t.logged != text && (t.loggedAt.IsZero() || now.Sub(t.loggedAt) >= logInterval)
	if say {
		t.logged, t.loggedAt = text, now
	}
	k.failures[address] = t
	k.mu.Unlock()
	if say && !k.isClosed() {
		k.log.Warn("no connection to a ZooKeeper server", "server", address, "error", text)
	}
	return err
}

// trouble is why there is no connection; empty if that is not known.
func (k *Client) lastFailure() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lastFailed == "" {
		return ""
	}
	return k.lastFailed + ": " + k.failures[k.lastFailed].text
}
