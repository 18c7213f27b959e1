package kdc

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/ledger"
)

// Realm is a server with the principals penstock and HTTP/localhost.
type Realm struct {
	*Server
	Dir     string // folder of all files
	User    string // path of penstock's keytab
	Service string // path of the keytab of HTTP/localhost
}

// ForTest starts a realm that ends with the test. The options are those of Add.
func ForTest(t testing.TB, options string) *Realm {
	t.Helper()
	return forTest(t, Name, options)
}

// Another starts a realm that trusts this one.
func (r *Realm) Another(t testing.TB, name string) *Realm {
	t.Helper()
	other := forTest(t, name, "")
	if err := other.Trust(t.Context(), r.Server); err != nil {
		t.Fatal(err)
	}
	return other
}

func forTest(t testing.TB, name, options string) *Realm {
	t.Helper()
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	server, err := Start(t.Context(), Options{Book: book, Dir: dir, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	r := &Realm{Server: server, Dir: dir, User: filepath.Join(dir, "penstock.keytab"), Service: filepath.Join(dir, "http.keytab")}
	if err := r.Add(t.Context(), options, "penstock", "HTTP/localhost"); err != nil {
		t.Fatal(err)
	}
	r.Export(t, r.User, "penstock")
	r.Export(t, r.Service, "HTTP/localhost")
	return r
}

// Export gives principals new keys and adds them to a file. Options of ktadd may precede a name.
func (r *Realm) Export(t testing.TB, file string, principals ...string) {
	t.Helper()
	if err := r.Keytab(t.Context(), file, principals...); err != nil {
		t.Fatal(err)
	}
}

// Site starts a site at localhost that ends with the test.
func (r *Realm) Site(t testing.TB, inner http.Handler) (site *Site, address string) {
	t.Helper()
	site, err := NewSite(r.Service, inner)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(site)
	t.Cleanup(s.Close)
	return site, Named(s.URL)
}

// Named returns the URL of a server on loopback by its name, because Kerberos knows no addresses.
func Named(address string) string { return strings.Replace(address, "127.0.0.1", "localhost", 1) }
