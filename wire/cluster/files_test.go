package cluster_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/broker/certs"
	"penstock/wire/cluster"
)

// place copies the files of the given kinds into the folder to, and replaces existing files. from
// is the folder of the authority that made them.
func place(t *testing.T, from, name, to string, what ...string) {
	t.Helper()
	for _, kind := range what {
		text, err := os.ReadFile(filepath.Join(from, map[string]string{"ca": "ca.pem", "cert": name + ".pem", "key": name + ".key"}[kind]))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, kind+".new"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(to, kind+".new"), filepath.Join(to, kind)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRotation checks that both sides use new certificates and a new authority at the next
// connection, and that files that do not match each other have no effect.
func TestRotation(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if _, err := certs.Make(dir, []string{"broker", "node"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	broker, node := t.TempDir(), t.TempDir()
	files := func(dir string) cluster.Files {
		return cluster.Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	}
	place(t, first, "broker", broker, "ca", "cert", "key")
	place(t, first, "node", node, "ca", "cert", "key")
	server, err := files(broker).Server()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, "x") // completes the handshake, if it succeeds
				c.Close()
			}()
		}
	}()
	connect := func(name string) error {
		c, err := files(node).Client()
		if err != nil {
			return err
		}
		c.ServerName = name
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		defer func(c net.Conn) { c.Close() }(conn)
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	side, err := files(node).Clients()
	if err != nil {
		t.Fatal(err)
	}
	kept := cluster.Credentials(side, "broker").Clone() // as a client has them that connects again and again
	reconnect := func() error {
		raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		defer raw.Close()
		conn, _, err := kept.ClientHandshake(t.Context(), "broker", raw)
		if err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	good := func(what string) {
		t.Helper()
		if err := errors.Join(connect("broker"), reconnect()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	bad := func(what string) {
		t.Helper()
		if connect("broker") == nil || reconnect() == nil {
			t.Errorf("%s: connected", what)
		}
	}
	good("as they were")
	for _, name := range []string{"another", "127.0.0.2"} {
		if connect(name) == nil {
			t.Errorf("a broker's certificate is accepted for %s", name)
		}
	}
	place(t, second, "broker", broker, "cert") // the key is still from the first authority
	good("a certificate without its key")
	place(t, second, "broker", broker, "ca", "key")
	bad("a broker of the second authority, and a node of the first")
	place(t, second, "node", node, "cert", "key")
	bad("a node that trusts only the first authority")
	place(t, second, "node", node, "ca")
	good("both of the second authority")
	if err := os.Remove(filepath.Join(broker, "cert")); err != nil {
		t.Fatal(err)
	}
	good("a deleted file")
}

// TestTrusting connects a client to servers of another authority. The client must use the
// certificate and the authority in the files at that time, or the last good ones.
func TestTrusting(t *testing.T) {
	servers, first, second, own := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{servers, first, second} {
		if _, err := certs.Make(dir, []string{"zookeeper", "broker"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(servers, "zookeeper.pem"), filepath.Join(servers, "zookeeper.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	place(t, first, "broker", own, "cert", "key")
	place(t, servers, "", own, "ca")
	config, err := cluster.Trusting(filepath.Join(own, "ca"), filepath.Join(own, "cert"), filepath.Join(own, "key"))
	if err != nil {
		t.Fatal(err)
	}
	shows := func(what, dir string) {
		t.Helper()
		type shown struct {
			raw []byte
			err error
		}
		seen := make(chan shown, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				seen <- shown{err: err}
				return
			}
			defer conn.Close()
			over := conn.(*tls.Conn)
			if err := over.HandshakeContext(t.Context()); err != nil {
				seen <- shown{err: err}
				return
			}
			seen <- shown{raw: over.ConnectionState().PeerCertificates[0].Raw}
		}()
		c := config()
		c.ServerName = "zookeeper"
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer conn.Close()
		want, err := tls.LoadX509KeyPair(filepath.Join(dir, "broker.pem"), filepath.Join(dir, "broker.key"))
		if err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got.err != nil || !bytes.Equal(got.raw, want.Certificate[0]) {
			t.Errorf("%s: the client used another certificate, %v", what, got.err)
		}
	}
	shows("as it was", first)
	place(t, second, "broker", own, "cert")
	shows("a certificate without its key", first)
	place(t, second, "broker", own, "key")
	shows("both", second)
	refused := func(what string) {
		t.Helper()
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_ = conn.(*tls.Conn).HandshakeContext(t.Context()) // the client refuses the server
				conn.Close()
			}
		}()
		c := config()
		c.ServerName = "zookeeper"
		var unknown x509.UnknownAuthorityError
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err == nil {
			conn.Close()
		}
		if !errors.As(err, &unknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	place(t, first, "", own, "ca")
	refused("another authority")
	if err := os.WriteFile(filepath.Join(own, "ca"), []byte("none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("no authority after another one")
	place(t, servers, "", own, "ca")
	shows("the right authority again", second)
	if _, err := cluster.Trusting(filepath.Join(own, "none"), "", ""); err == nil {
		t.Error("a missing authority was accepted")
	}
}

// TestReadAgain checks that files that could not be read are read again at the next connection,
// although their fingerprints are the same. The failure must be logged once.
func TestReadAgain(t *testing.T) {
	first, second, own := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if _, err := certs.Make(dir, []string{"broker"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	place(t, first, "broker", own, "ca", "cert", "key")
	config, err := cluster.Trusting(filepath.Join(own, "ca"), filepath.Join(own, "cert"), filepath.Join(own, "key"))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	before := slog.Default()
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr) // the first SetDefault redirected log's output to slog
	}()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	shows := func(what, dir string, said int) {
		t.Helper()
		want, err := tls.LoadX509KeyPair(filepath.Join(dir, "broker.pem"), filepath.Join(dir, "broker.key"))
		if err != nil {
			t.Fatal(err)
		}
		if got := config().Certificates[0].Certificate[0]; !bytes.Equal(got, want.Certificate[0]) {
			t.Errorf("%s: another certificate is used", what)
		}
		if got := strings.Count(lines.String(), "changed certificates are not used"); got != said {
			t.Errorf("%s: %d lines, want %d:\n%s", what, got, said, lines.String())
		}
	}
	place(t, second, "broker", own, "cert", "key")
	// The key is replaced by garbage for a moment, with the same inode, size and time.
	key := filepath.Join(own, "key")
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	hold := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(key, text, 0o600), os.Chtimes(key, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	hold(make([]byte, len(good)))
	shows("not read", first, 1)
	shows("not read again", first, 1)
	hold(good)
	shows("read", second, 1)
	place(t, first, "broker", own, "cert")
	shows("another failure", second, 2)
}
