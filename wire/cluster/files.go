package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"penstock/settings"
	"penstock/settings/plain"
)

// Files are the PEM files of one side of a mutually authenticated connection.
type Files struct{ CA, Cert, Key string }

// Empty reports whether no files are given. The connection is then unencrypted.
func (f Files) Empty() bool { return f == Files{} }

// Server returns the broker's TLS configuration, which accepts only peers with a certificate that
// the CA has signed. Changed files are loaded for the next connection. If the files do not match
// each other, for example during a replacement, the files loaded before stay in use.
func (f Files) Server() (*tls.Config, error) {
	if err := f.whole(); err != nil {
		return nil, err
	}
	r, err := f.reader()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, pool := r.current()
		return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*pair},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, nil
	}}, nil
}

// Client returns the TLS configuration of a node or operator, from the present contents of the
// files. Callers that reconnect must call it for each connection.
func (f Files) Client() (*tls.Config, error) {
	if err := f.whole(); err != nil {
		return nil, err
	}
	pair, pool, err := f.read()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*pair}, RootCAs: pool}, nil
}

// Clients returns the function side, which returns the TLS configuration of a node or operator. Call side for each
// connection, or use Credentials. It reads changed files again; if the files do not match each other, those loaded before
// stay in use.
func (f Files) Clients() (side func() *tls.Config, err error) {
	if err := f.whole(); err != nil {
		return nil, err
	}
	old, err := Trusting(f.CA, f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		c := old()
		c.MinVersion = tls.VersionTLS13
		return c
	}, nil
}

// Credentials returns the credentials of a client that calls side for each connection, so that a connection that lasts, and
// connects again, uses changed certificates. name is the name of the server in its certificate; empty: that of its address.
func Credentials(side func() *tls.Config, name string) credentials.TransportCredentials {
	return fresh{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: name}), side}
}

// fresh makes a new configuration for each handshake.
type fresh struct {
	credentials.TransportCredentials // for all but handshakes; gRPC takes the server's name from them
	side                             func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (f fresh) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(f.side()).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (f fresh) Clone() credentials.TransportCredentials {
	return fresh{f.TransportCredentials.Clone(), f.side}
}

// reader holds the files' contents as last read.
type reader struct {
	files Files

	mu      sync.Mutex
	seen    string // fingerprint of the contents last read
	refused string // fingerprint of the last unusable contents, so that they are logged once
	pair    *tls.Certificate
	pool    *x509.CertPool
}

func (f Files) reader() (*reader, error) {
	r := &reader{files: f, seen: f.fingerprint()}
	var err error
	r.pair, r.pool, err = f.read()
	return r, err
}

func (f Files) fingerprint() string {
	return settings.Fingerprint(f.CA) + settings.Fingerprint(f.Cert) + settings.Fingerprint(f.Key)
}

// current returns the files' present contents if they are usable, otherwise the contents that were
// loaded last. Files that cannot be read are tried again at the next connection even if their
// fingerprint is the same, because the cause may have been a lack of file descriptors.
func (r *reader) current() (*tls.Certificate, *x509.CertPool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.files.fingerprint()
	if now == r.seen {
		return r.pair, r.pool
	}
	pair, pool, err := r.files.read()
	if err != nil {
		if now != r.refused {
			slog.Warn("changed certificates are not used; the certificates loaded before stay in force", "error", err)
		}
		r.refused = now
		return r.pair, r.pool
	}
	r.pair, r.pool, r.seen, r.refused = pair, pool, now, ""
	return pair, pool
}

func (f Files) whole() error {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return errors.New("give all three: the CA's certificate, this side's certificate, and its key (`penstock certs` makes them)")
	}
	return nil
}

// read reads the files. Cert and Key may be empty; pair is then nil.
func (f Files) read() (pair *tls.Certificate, pool *x509.CertPool, err error) {
	if f.Cert != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, nil, unusable(f, err)
		}
		pair = &own
	}
	pool, err = loadCA(f.CA)
	return pair, pool, err
}

// unusable returns an error that names the unusable file and the reason.
func unusable(f Files, err error) error {
	if errors.As(err, new(*fs.PathError)) {
		return plain.File(err)
	}
	return fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
}

func loadCA(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, plain.File(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: the file contains no certificate", file)
	}
	return pool, nil
}

// Trusting returns the function side, which returns a client's TLS configuration for servers with
// certificates of the CA in the file ca. The client presents its own certificate if cert is given.
// Call side for each connection. It reads changed files again; if the files do not match each
// other, those loaded before stay in use.
func Trusting(ca, cert, key string) (side func() *tls.Config, err error) {
	r, err := Files{CA: ca, Cert: cert, Key: key}.reader()
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		pair, pool := r.current()
		c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
		if pair != nil {
			c.Certificates = []tls.Certificate{*pair}
		}
		return c
	}, nil
}

// OperatorUnit is the organizational unit of operators' certificates.
const OperatorUnit = "operator"

// MachinesOf returns the names in the verified certificate of the other side. It returns no names
// if the certificate is an operator's.
func MachinesOf(state tls.ConnectionState) (names []string) {
	for _, chain := range state.VerifiedChains {
		if len(chain) > 0 && !slices.Contains(chain[0].Subject.OrganizationalUnit, OperatorUnit) {
			names = append(append(names, chain[0].Subject.CommonName), chain[0].DNSNames...)
		}
	}
	return names
}

// Expired reports whether the certificate of the other side has expired since the connection was opened.
func Expired(state tls.ConnectionState) bool {
	return len(state.PeerCertificates) > 0 && !time.Now().Before(state.PeerCertificates[0].NotAfter)
}
