package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"penstock/settings"
	"penstock/settings/plain"
)

// Files are the PEM files of one side of a mutually authenticated connection.
type Files struct{ CA, Cert, Key string }

// Empty says that there are none: the connection is plain.
func (f Files) Empty() bool { return f == Files{} }

// Server returns the broker's side: it takes only peers with a certificate of the CA. The
// files are read again when they have changed, for the connections that begin then; files
// that do not fit together, as in the middle of a change, leave those read last in place.
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

// Client returns a node's or operator's side, as the files are now. Who connects again and
// again calls it for each connection.
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

// reader has what was read last of the files.
type reader struct {
	files Files

	mu   sync.Mutex
	seen string // fingerprint of what was read last
	told string // and of what could not be read, which is logged once
	pair *tls.Certificate
	pool *x509.CertPool
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

// current is what the files hold now, if it is whole. What cannot be read is tried again at the
// next connection, though the files look the same: it may have been for want of descriptors.
func (r *reader) current() (*tls.Certificate, *x509.CertPool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.files.fingerprint()
	if now == r.seen {
		return r.pair, r.pool
	}
	pair, pool, err := r.files.read()
	if err != nil {
		if now != r.told {
			slog.Warn("changed certificates are not taken; those read last stay in force", "error", err)
		}
		r.told = now
		return r.pair, r.pool
	}
	r.pair, r.pool, r.seen, r.told = pair, pool, now, ""
	return pair, pool
}

func (f Files) whole() error {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return errors.New("give all three: the CA's certificate, an own certificate and its key (`penstock certs` makes them)")
	}
	return nil
}

// read reads the files; an own certificate need not be among them.
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

// unusable says which file is not usable, and why.
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
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}

// Trusting returns the side of one who asks servers of another CA, with an own certificate
// if there is one; it is called for each connection. The files are read again when they have
// changed; files that do not fit together leave those read last in place.
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

// MachinesOf are the names in the certificate that the other side has shown, which is of the
// CA; none if it is an operator's.
func MachinesOf(state tls.ConnectionState) (names []string) {
	for _, chain := range state.VerifiedChains {
		if len(chain) > 0 && !slices.Contains(chain[0].Subject.OrganizationalUnit, OperatorUnit) {
			names = append(append(names, chain[0].Subject.CommonName), chain[0].DNSNames...)
		}
	}
	return names
}
