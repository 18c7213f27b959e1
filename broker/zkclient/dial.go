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

// dial connects to a server, and wraps the connection so that its handshake can be read.
func (c *Client) dial(network, address string, timeout time.Duration, secure func() *tls.Config) (net.Conn, error) {
	c.hosts.pauseIfDue()
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, c.connectFailed(address, err, "")
	}
	if secure != nil {
		config := secure().Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		over := tls.Client(conn, config)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(c.connectFailed(address, err, tlsHint(err)), conn.Close())
		}
		conn = over
	}
	return &handshakeConn{Conn: conn, client: c, address: address, secure: secure != nil}, nil
}

// tlsHint returns what to check after a failed TLS handshake.
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
		return "it accepts no sessions at the moment, or this is its plain port"
	}
	return alertHint(err)
}

// handshakeHint returns what to check after a failed handshake of ZooKeeper. In TLS 1.3, a server
// that refuses the client's certificate does so only during this handshake.
func handshakeHint(err error, secure bool) string {
	switch {
	case !isDisconnect(err):
		return alertHint(err)
	case secure:
		return "it accepts no sessions at the moment, or refuses this broker's certificate (--cert)"
	}
	return "it accepts no sessions at the moment, or this is its secure port (--zookeeper-ca)"
}

// alertHint returns what to check after a TLS alert of the server.
func alertHint(err error) string {
	if on := new(net.OpError); errors.As(err, &on) && on.Op == remoteError {
		return "check this broker's certificate (--cert) and the CA that ZooKeeper trusts"
	}
	return ""
}

// remoteError is the Op of a net.OpError for a TLS alert of the peer.
const remoteError = "remote error"

// isDisconnect reports whether the peer has closed or reset the connection.
func isDisconnect(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// localAddress matches the local address and port in an error of the resolver.
var localAddress = regexp.MustCompile(`[^ ]+->`)

// cause returns an error's text without the parts that differ at each attempt: local ports, and the
// time at which a certificate was checked.
func cause(err error) string {
	var on *net.OpError
	var name *net.DNSError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "lookup " + name.Name + ": " + localAddress.ReplaceAllString(name.Err, "")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		cert := invalid.Cert
		invalid.Detail = "it is valid from " + cert.NotBefore.Format(time.RFC3339) + " to " + cert.NotAfter.Format(time.RFC3339)
		return invalid.Error()
	case isDisconnect(err):
		return "it closed the connection"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &on) && on.Err != nil && on.Op == remoteError:
		return "it refused: " + on.Err.Error()
	case errors.As(err, &on) && on.Err != nil:
		return on.Err.Error()
	}
	return err.Error()
}

// connectFailed records why a server could not be reached. It logs the reason if it differs from
// the last reason logged for this server, at most once in logInterval.
func (c *Client) connectFailed(address string, err error, hint string) error {
	text := cause(err)
	if hint != "" {
		text += ": " + hint
	}
	now := time.Now()
	c.mu.Lock()
	c.lastFailed = address
	t := c.failures[address]
	t.text = text
	say := t.logged != text && (t.loggedAt.IsZero() || now.Sub(t.loggedAt) >= logInterval)
	if say {
		t.logged, t.loggedAt = text, now
	}
	c.failures[address] = t
	c.mu.Unlock()
	if say && !c.isClosed() {
		c.log.Warn("cannot connect to a ZooKeeper server", "server", address, "error", text)
	}
	return err
}

// lastFailure returns why there is no connection; empty if that is not known.
func (c *Client) lastFailure() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastFailed == "" {
		return ""
	}
	return c.lastFailed + ": " + c.failures[c.lastFailed].text
}
