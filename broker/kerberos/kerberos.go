// Package kerberos makes clients for Hadoop's web interfaces in a secured cluster: HTTP with
// Kerberos (SPNEGO), and TLS.
//
// Problem: a secured ResourceManager answers only to users with a ticket for its service. Tickets end
// after hours, the KDC may be away at that moment, and the key of the broker's user is replaced now
// and then. None of this may stop the broker.
//
// Choices. The library gokrb5 speaks with the KDC. Its client renews tickets in a goroutine that
// cannot be bounded or protected from a hostile answer. So each exchange here begins with the key in
// the keytab file, and ends with a ticket for one service. Only this ticket is kept, and a new one is
// requested before it ends. The keytab and krb5.conf are read again for each exchange. One exchange
// runs at a time, in a goroutine of its own, so that a request waits for it no longer than its context
// lasts. The server's cookie (hadoop.auth) saves most exchanges of tickets.
//
// A ticket is sent only to a server whose URL was configured, only when the server asks for it, and
// only for the service of the host in that URL. No redirect is followed: a redirect may name any host,
// and a request there could do what our user may do and an attacker may not.
package kerberos

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"penstock/wire/cluster"
)

// DefaultConfig is the usual path of Kerberos' configuration file.
const DefaultConfig = "/etc/krb5.conf"

const (
	// connectTimeout is the maximum time to connect. It can be short, because the kernel accepts
	// the connection even if the server itself is slow. So an unreachable machine is noticed
	// earlier than a slow server.
	connectTimeout = 5 * time.Second
	idleTimeout    = time.Minute
)

// Access says how Hadoop's web interfaces are asked. The zero value is for servers without Kerberos
// whose certificates, if they have any, the machine trusts. All files are read again when they change.
type Access struct {
	Principal string // USER@REALM or USER/HOST@REALM; empty: requests are anonymous
	Keytab    string // file with the principal's key
	Config    string // krb5.conf; empty: DefaultConfig
	// CA is a PEM file with the certificate authorities of the servers; empty: the machine's own.
	CA string
	// Cert and Key are PEM files with the certificate that this side presents; empty: none.
	Cert, Key string
	// Connect is the maximum time to connect; 0: connectTimeout.
	Connect time.Duration
}

// Anonymous returns the same access without a ticket.
func (a Access) Anonymous() Access {
	a.Principal, a.Keytab = "", ""
	return a
}

// Client returns a client for servers with these base URLs. It follows no redirect. Its requests have
// no body. An error of a request that the reader can do something about is an *Error.
func (a Access) Client(bases ...*url.URL) (*http.Client, error) {
	dialer := &net.Dialer{Timeout: cmp.Or(a.Connect, connectTimeout)}
	base := &http.Transport{Proxy: nil, DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: 64 << 10}
	t := &transport{base: base, hosts: map[string]*host{}}
	if err := a.addTLS(base, dialer, bases); err != nil {
		return nil, err
	}
	if a.Principal != "" || a.Keytab != "" {
		l, err := newLogin(a)
		if err != nil {
			return nil, err
		}
		t.login = l
		for _, u := range bases {
			name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
			if net.ParseIP(name) == nil { // Kerberos knows services by the names of their hosts
				t.hosts[origin(u)] = &host{service: "HTTP/" + name}
			}
		}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// addTLS makes connections use the files of the access.
func (a Access) addTLS(t *http.Transport, dialer *net.Dialer, bases []*url.URL) error {
	switch {
	case a.CA == "" && a.Cert == "" && a.Key == "":
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		return nil
	case a.CA == "":
		return errors.New("a certificate of this side needs the certificate authority of the servers, too")
	case (a.Cert == "") != (a.Key == ""):
		return errors.New("give a certificate together with its key")
	}
	for _, u := range bases {
		if u.Scheme != "https" {
			return fmt.Errorf("%s://%s: only https has certificates: give https://HOST:PORT, or no certificate", u.Scheme, u.Host)
		}
	}
	side, err := cluster.Trusting(a.CA, a.Cert, a.Key)
	if err != nil {
		return err
	}
	// Each connection uses the present contents of the files.
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: dialer, Config: side()}).DialContext(ctx, network, address)
	}
	return nil
}

// origin returns the scheme, host and port of a URL.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }
