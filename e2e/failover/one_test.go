package failover

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/broker/certs"
	"penstock/broker/zkclient"
	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/zookeeper"
	"penstock/wire/cluster"
)

// authority makes a CA with a certificate for ZooKeeper and one for a broker. Both are valid for
// loopback.
func authority(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if _, err := certs.Make(dir, []string{"zookeeper", "broker"}, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func replace(t *testing.T, file, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		if err = os.WriteFile(file+".new", text, 0o600); err == nil {
			err = os.Rename(file+".new", file)
		}
	}
	fixture.Must(t, err)
}

// TestOneServer: brokers can do the same through a server's TLS port as through its plain port.
// With wrong certificates or the wrong port, the error names the cause. The server is not part of
// the ensemble, so this test runs in parallel with TestFailOver, which mostly waits. One after the
// other, they would take 15 s more.
func TestOneServer(t *testing.T) {
	t.Parallel()
	first, second, held := authority(t), authority(t), t.TempDir()
	side := func(ca, cert, key string) func() *tls.Config {
		side, err := cluster.Trusting(ca, cert, key)
		fixture.Must(t, err)
		return side
	}
	of := func(ca, own string) func() *tls.Config {
		return side(filepath.Join(ca, "ca.pem"), filepath.Join(own, "broker.pem"), filepath.Join(own, "broker.key"))
	}
	place := func(authority string) {
		for _, name := range []string{"ca.pem", "zookeeper.pem", "zookeeper.key", "broker.pem", "broker.key"} {
			replace(t, filepath.Join(held, name), filepath.Join(authority, name))
		}
	}
	place(first)
	server, err := zookeeper.Start(t.Context(), zookeeper.Options{Book: shared.Book, Lib: library, Dir: t.TempDir(), Tick: tick, HeapMB: 96,
		Secure: &zookeeper.Secure{CA: filepath.Join(held, "ca.pem"), Cert: filepath.Join(held, "zookeeper.pem"), Key: filepath.Join(held, "zookeeper.key")}})
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, server.Stop())
	})

	t.Run("conformance", func(t *testing.T) { conformance(t, server.Address, nil) })
	t.Run("conformance by TLS", func(t *testing.T) { conformance(t, server.Secure, of(first, first)) })
	const ownCert = "check this broker's certificate (--cert) and the CA that ZooKeeper trusts"
	for name, test := range map[string]struct {
		server string
		side   func() *tls.Config
		want   string // in a call's error, and in the log
	}{
		"a server of another authority": {server.Secure, of(second, first), "give the CA of ZooKeeper's servers (--zookeeper-ca)"},
		"a broker of another authority": {server.Secure, of(first, second), ownCert},
		"a broker without certificate":  {server.Secure, side(filepath.Join(first, "ca.pem"), "", ""), ownCert},
		"plain to the secure port":      {server.Secure, nil, "this is its secure port (--zookeeper-ca)"},
		"TLS to the plain port":         {server.Address, of(first, first), "or this is its plain port"},
	} {
		t.Run(name, func(t *testing.T) {
			var own textLog // log is TestFailOver's too
			k, err := zkclient.Dial(zkclient.Options{Servers: test.server, TLS: test.side, Session: session, Log: slog.New(slog.NewTextHandler(&own, nil))})
			fixture.Must(t, err)
			t.Cleanup(k.Close)
			var told error
			fixture.Eventually(t, fmt.Sprintf("a call's error, and the log, say %q", test.want), func() bool {
				const bound = 100 * time.Millisecond // the caller's patience
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				began := time.Now()
				if _, told = k.Get(ctx, "/"); told == nil || time.Since(began) > bound+slack {
					t.Fatalf("a call ends after %v with %v, want an error within %v", time.Since(began), told, bound)
				}
				return strings.Contains(told.Error(), test.server+": ") && strings.Contains(told.Error(), test.want) &&
					strings.Contains(own.String(), test.want)
			})
			t.Log(told)
		})
	}

	// The broker's files are read again when it connects again.
	t.Run("other certificates", func(t *testing.T) {
		where := folder()
		files := cluster.Files{CA: filepath.Join(held, "ca.pem"), Cert: filepath.Join(held, "broker.pem"), Key: filepath.Join(held, "broker.key")}
		d := shared.StartDaemon(t, daemon.Options{Base: "secure-broker", LogLevel: "debug",
			Broker: []string{"--listen", "127.0.0.1:0", "--ca", files.CA, "--cert", files.Cert, "--key", files.Key, "--metrics", "off",
				"--zookeeper", server.Secure + where, "--zookeeper-open", "--zookeeper-ca", files.CA, "--session", session.String(), "--advertise", "secure:1"}})
		// Judged by the broker's log: the broker may not know yet what it has written in ZooKeeper.
		says := func(what string, times int) {
			t.Helper()
			fixture.Eventually(t, fmt.Sprintf("the broker says %q %d times", what, times), func() bool {
				text, err := os.ReadFile(d.Log)
				return err == nil && strings.Count(string(text), what) >= times
			})
		}
		says(`msg="this broker leads"`, 1)
		fixture.Must(t, server.Kill())
		place(second)
		says(`msg="this broker no longer leads"`, 1) // a broker that keeps leading would not begin an epoch
		fixture.Must(t, server.Start(t.Context()))
		says(`msg="this broker leads"`, 2)
	})
}
