// Package certs makes a certificate authority and certificates for tests and trials: keys are kept
// in files, and nothing can be revoked. A production cluster should use the certificates of its own
// authority.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/wire/cluster"
)

const (
	caName     = "ca"
	validity   = 2 * 365 * 24 * time.Hour
	caValidity = 10 * 365 * 24 * time.Hour
	clockSkew  = time.Hour // tolerance for differences of clocks
)

// Operator is the organizational unit of operators' certificates. Their holders may change the
// policy and may not report as nodes; holders of other certificates may report and not change the
// policy.
const Operator = cluster.OperatorUnit

// Make writes NAME.pem and NAME.key into the folder dir, for each machine and operator. It also
// writes ca.pem and ca.key there, unless they exist. A machine's name may be an IP address. Every
// machine's certificate is also valid for localhost, because clients on the broker's machine use
// that name. Existing files are not overwritten.
func Make(dir string, machines, operators []string) (made []string, err error) {
	for _, name := range slices.Concat(machines, operators) {
		if name == "" || name == caName || strings.ContainsAny(name, "/\\") || strings.HasPrefix(name, ".") || len(name) > 253 {
			return nil, fmt.Errorf("certificate for %q: give the name of a machine or an operator", name)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, key, fresh, err := authority(dir)
	if err != nil {
		return nil, err
	}
	if fresh {
		made = append(made, filepath.Join(dir, caName+".pem"), filepath.Join(dir, caName+".key"))
	}
	sign := func(name string, template *x509.Certificate) error {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		template.KeyUsage = x509.KeyUsageDigitalSignature
		files, err := write(dir, name, template, validity, ca, &own.PublicKey, own, key)
		made = append(made, files...)
		return err
	}
	for _, name := range machines {
		template := &x509.Certificate{
			Subject:     pkix.Name{CommonName: name},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		}
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
		if err := sign(name, template); err != nil {
			return made, err
		}
	}
	for _, name := range operators {
		if err := sign(name, &x509.Certificate{
			Subject:     pkix.Name{CommonName: name, OrganizationalUnit: []string{Operator}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}); err != nil {
			return made, err
		}
	}
	return made, nil
}

// authority reads the CA, or makes one.
func authority(dir string) (ca *x509.Certificate, key *ecdsa.PrivateKey, fresh bool, err error) {
	certFile, keyFile := filepath.Join(dir, caName+".pem"), filepath.Join(dir, caName+".key")
	if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, nil, false, err
		}
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "Penstock development CA"}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, MaxPathLenZero: true,
		}
		if _, err := write(dir, caName, template, caValidity, template, &key.PublicKey, key, key); err != nil {
			return nil, nil, false, err
		}
		fresh = true
	}
	block, err := readPEM(certFile)
	if err != nil {
		return nil, nil, fresh, err
	}
	if ca, err = x509.ParseCertificate(block); err != nil {
		return nil, nil, fresh, fmt.Errorf("%s: %w", certFile, err)
	}
	if block, err = readPEM(keyFile); err != nil {
		return nil, nil, fresh, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, nil, fresh, fmt.Errorf("%s: %w", keyFile, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(ca.PublicKey) {
		return nil, nil, fresh, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	}
	return ca, key, fresh, nil
}

func readPEM(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: not a PEM file", file)
	}
	return block.Bytes, nil
}

// write signs a certificate and writes it and its key. The key is written first, readable by its
// owner only.
func write(dir, name string, template *x509.Certificate, span time.Duration, parent *x509.Certificate, public *ecdsa.PublicKey,
	own, signer *ecdsa.PrivateKey) (made []string, err error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-clockSkew), time.Now().Add(span)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		mode os.FileMode
		kind string
		text []byte
	}{{name + ".key", 0o600, "PRIVATE KEY", keyDER}, {name + ".pem", 0o644, "CERTIFICATE", der}} {
		path := filepath.Join(dir, f.name)
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if errors.Is(err, fs.ErrExist) {
			return made, fmt.Errorf("%s already exists: remove it, or use another folder", path)
		}
		if err != nil {
			return made, err
		}
		err = pem.Encode(file, &pem.Block{Type: f.kind, Bytes: f.text})
		if err = errors.Join(err, file.Close()); err != nil {
			return made, err
		}
		made = append(made, path)
	}
	return made, nil
}
