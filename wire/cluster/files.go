package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Files are the PEM files of one side of a mutually authenticated connection.
type Files struct{ CA, Cert, Key string }

// Empty says that there are none: the connection is plain.
func (f Files) Empty() bool { return f == Files{} }

// Server returns the broker's side: it takes only peers with a certificate of the CA.
func (f Files) Server() (*tls.Config, error) {
	c, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return c, nil
}

// Client returns a node's or operator's side.
func (f Files) Client() (*tls.Config, error) {
	c, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	c.RootCAs = pool
	return c, nil
}

func (f Files) load() (*tls.Config, *x509.CertPool, error) {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return nil, nil, errors.New("give all three: the CA's certificate, an own certificate and its key (`penstock certs` makes them)")
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("%s: no certificate in it", f.CA)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}, pool, nil
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
