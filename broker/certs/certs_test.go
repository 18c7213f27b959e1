package certs

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func parse(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s: no PEM", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCertificatesOfOneAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if _, err := Make(dir, []string{"broker", "10.0.0.7"}, nil); err != nil {
		t.Fatal(err)
	}
	made, err := Make(dir, []string{"node-1"}, nil) // of the same authority
	if err != nil || len(made) != 2 {
		t.Fatal(made, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parse(t, filepath.Join(dir, "ca.pem")))
	for name, host := range map[string]string{"broker": "broker", "10.0.0.7": "10.0.0.7", "node-1": "localhost"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := parse(t, filepath.Join(dir, name+".pem")).Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
				t.Errorf("%s for %s: %v", name, host, err)
			}
		}
	}
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil || len(keys) != 4 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if st, err := os.Stat(key); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, st.Mode(), err)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", st.Mode(), err)
	}
}

func TestOperators(t *testing.T) {
	dir := t.TempDir()
	if _, err := Make(dir, []string{"node-1"}, []string{"alice"}); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parse(t, filepath.Join(dir, "ca.pem")))
	alice, node := parse(t, filepath.Join(dir, "alice.pem")), parse(t, filepath.Join(dir, "node-1.pem"))
	if len(node.Subject.OrganizationalUnit) != 0 || len(alice.Subject.OrganizationalUnit) != 1 || alice.Subject.OrganizationalUnit[0] != Operator || alice.Subject.CommonName != "alice" {
		t.Errorf("%v, %v", alice.Subject, node.Subject)
	}
	if _, err := alice.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := alice.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("an operator's certificate would do for a broker")
	}
	if _, err := Make(dir, nil, []string{"node-1"}); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("an operator of a machine's name: %v", err)
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := Make(dir, []string{"a"}, nil); err != nil {
		t.Fatal(err)
	}
	before := parse(t, filepath.Join(dir, "a.pem"))
	if _, err := Make(dir, []string{"a"}, nil); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Error(err)
	}
	if !parse(t, filepath.Join(dir, "a.pem")).Equal(before) {
		t.Error("another certificate")
	}
	for _, name := range []string{"", "ca", "../a", "a/b", ".a", strings.Repeat("a", 254)} {
		if _, err := Make(dir, []string{name}, nil); err == nil {
			t.Errorf("%q: taken", name)
		}
	}
}

func TestKeyOfAnotherAuthority(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, other} {
		if _, err := Make(dir, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(other, "ca.key"), filepath.Join(one, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(one, []string{"a"}, nil); err == nil || !strings.Contains(err.Error(), "is not the key") {
		t.Error(err)
	}
}
