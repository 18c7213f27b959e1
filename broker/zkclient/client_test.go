package zkclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestServers(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("zk:2181,", maxServers), ",")
	for list, want := range map[string]struct {
		servers int
		root    string
	}{
		"zk:2181":                          {1, Folder},
		"zk1:2181,[::1]:2181/a/b_c.d-1":    {2, "/a/b_c.d-1"},
		many:                               {maxServers, Folder},
		"zk:1/" + strings.Repeat("a", 255): {1, "/" + strings.Repeat("a", 255)},
	} {
		servers, root, err := Parse(list)
		if err != nil || len(servers) != want.servers || root != want.root {
			t.Errorf("%s: %v, %s, %v", list, servers, root, err)
		}
	}
	for list, want := range map[string]string{
		"":                                 "give host:port",
		"zk":                               "give host:port",
		"zk:":                              "give host:port",
		"zk:1,":                            "give host:port",
		many + ",zk:1":                     "at most 16",
		"zk:1/":                            "folder",
		"zk:1/a/":                          "folder",
		"zk:1/a//b":                        "folder",
		"zk:1/..":                          "folder",
		"zk:1/a b":                         "folder",
		"zk:1/" + strings.Repeat("a", 256): "folder",
	} {
		if _, _, err := Parse(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", list, err, want)
		}
	}
}

func TestBounds(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for session, good := range map[time.Duration]bool{SessionMin - 1: false, SessionMin: true, SessionMax: true, SessionMax + 1: false} {
		k, err := Dial(Options{Servers: "127.0.0.1:1", Session: session, Log: log})
		if (err == nil) != good {
			t.Errorf("session %v: %v", session, err)
		}
		if err == nil {
			k.Close()
		}
	}
}

func TestAuthFile(t *testing.T) {
	for text, want := range map[string]string{
		"penstock:secret\n": "penstock:secret",
		"u:p:q":             "u:p:q",
		"u:" + strings.Repeat("p", maxAuthBytes-2): "u:" + strings.Repeat("p", maxAuthBytes-2),
		"u:" + strings.Repeat("p", maxAuthBytes-1): "",
		"":           "",
		"secret":     "",
		":p":         "",
		"u:":         "",
		"u:p\nv:q\n": "",
	} {
		file := filepath.Join(t.TempDir(), "auth")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readAuth(file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: %.20q, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret\n") {
			t.Errorf("the error contains the secret: %v", err)
		}
	}
}

// TestHostProvider: servers are tried in turn. For the length of a lease after the last connection,
// rounds follow each other quickly. After that, each round waits for the library's pause.
func TestHostProvider(t *testing.T) {
	for _, test := range []struct {
		session time.Duration
		quick   int // rounds after the first
		takes   time.Duration
	}{
		// Each round waits for a twelfth of a session, so two thirds of a session have eight
		// rounds.
		{2400 * time.Millisecond, 8, 1600 * time.Millisecond},
		{9 * time.Second, 8, 6 * time.Second},
		{12 * time.Second, 0, 0},
		{SessionMax, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &Client{requested: test.session, closed: make(chan struct{})}
			n := &hostProvider{client: k}
			given := []string{"a:1", "b:1", "c:1"}
			if err := n.Init(given); err != nil {
				t.Fatal(err)
			}
			round := func() (first bool) {
				t.Helper()
				var seen []string
				for i := range given {
					s, again := n.Next()
					if i == 0 {
						first = again
					} else if again {
						t.Errorf("a round ends at server %d", i)
					}
					n.pauseIfDue()
					seen = append(seen, s)
				}
				slices.Sort(seen)
				if !slices.Equal(seen, given) {
					t.Errorf("a round is %v", seen)
				}
				return first
			}
			for range 2 { // at the beginning, and after a connection
				if round() {
					t.Error("the first round waits")
				}
				began, quick := time.Now(), 0
				for !round() {
					quick++
				}
				if took := time.Since(began); quick != test.quick || took.Round(time.Millisecond) != test.takes.Round(time.Millisecond) {
					t.Errorf("session %v: %d quick rounds in %v, want %d in %v", test.session, quick, took, test.quick, test.takes)
				}
				if !round() {
					t.Error("rounds are quick again although no server has answered")
				}
				time.Sleep(time.Hour)
				n.Connected()
				time.Sleep(n.pause()) // a connection that lasted
			}
			round()
			close(k.closed)
			if !round() {
				t.Error("the library is not asked to pause")
			}
		})
	}
}

// TestConnectionsThatEnd: if a server or a proxy accepts a connection and closes it, the next
// attempt waits, each time.
func TestConnectionsThatEnd(t *testing.T) {
	for session, pause := range map[time.Duration]time.Duration{SessionMin: SessionMin / roundsPerSession, 2400 * time.Millisecond: 200 * time.Millisecond, SessionMax: libraryPause} {
		synctest.Test(t, func(t *testing.T) {
			n := &hostProvider{client: &Client{requested: session, closed: make(chan struct{})}}
			if err := n.Init([]string{"a:1", "b:1"}); err != nil {
				t.Fatal(err)
			}
			next := func(want time.Duration) {
				t.Helper()
				began := time.Now()
				if _, again := n.Next(); again {
					t.Error("the library pauses as well")
				}
				n.pauseIfDue()
				if took := time.Since(began); took != want {
					t.Errorf("session %v: a server is tried after %v, want %v", session, took, want)
				}
			}
			next(0)
			for range 3 {
				n.Connected()
				time.Sleep(pause - 1)
				next(pause)
				next(0) // the other server
			}
			n.Connected()
			time.Sleep(pause)
			next(0)
		})
	}
}

// TestCauses: equal failures have equal texts.
func TestCauses(t *testing.T) {
	certificate := &x509.Certificate{NotBefore: time.Unix(0, 0).UTC(), NotAfter: time.Unix(3600, 0).UTC()}
	for want, errs := range map[string][2]error{
		"x509: certificate has expired or is not yet valid: it is valid from 1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z": {
			&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: certificate, Reason: x509.Expired, Detail: "current time A is after B"}},
			x509.CertificateInvalidError{Cert: certificate, Reason: x509.Expired, Detail: "current time C is after B"},
		},
		"lookup zk-1: read udp 127.0.0.53:53: read: connection refused": {
			&net.OpError{Op: "dial", Err: &net.DNSError{Name: "zk-1", Server: "127.0.0.53:53", Err: "read udp 127.0.0.1:41000->127.0.0.53:53: read: connection refused"}},
			&net.DNSError{Name: "zk-1", Server: "127.0.0.53:53", Err: "read udp 127.0.0.1:41001->127.0.0.53:53: read: connection refused"},
		},
		"connection reset by proxy": {
			&net.OpError{Op: "read", Source: &net.TCPAddr{Port: 41000}, Err: errors.New("connection reset by proxy")},
			&net.OpError{Op: "read", Source: &net.TCPAddr{Port: 41001}, Err: errors.New("connection reset by proxy")},
		},
	} {
		for _, err := range errs {
			if got := cause(err); got != want {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		}
	}
}

// TestLogInterval: a failure of a server is logged if its cause has changed, at most once in
// logInterval.
func TestLogInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text noted
		k := &Client{requested: SessionMin, closed: make(chan struct{}), failures: map[string]connFailure{}, log: slog.New(slog.NewTextHandler(&text, nil))}
		k.granted.Store(int64(SessionMin))
		fails := func(server, cause string, lines int) {
			t.Helper()
			_ = k.connectFailed(server, errors.New(cause), "")
			if got := strings.Count(text.String(), "cannot connect to a ZooKeeper server"); got != lines {
				t.Errorf("%s at %s: %d lines, want %d:\n%s", cause, server, got, lines, text.String())
			}
			if want := server + ": " + cause; k.lastFailure() != want {
				t.Errorf("%s, want %s", k.lastFailure(), want)
			}
		}
		fails("a:1", "one", 1)
		fails("b:1", "one", 2) // separately for each server
		time.Sleep(time.Hour)
		fails("a:1", "one", 2)
		fails("a:1", "two", 3)
		for i := range 100 { // 1 s with a text that always changes
			fails("a:1", strconv.Itoa(i), 3)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(logInterval)
		fails("a:1", "three", 4)
		k.sessionGranted("a:1", SessionMin)
		fails("a:1", "three", 4) // the failure has changed and returned
		time.Sleep(logInterval)
		fails("a:1", "three", 5)
	})
}

// noted is a log that may be read while it is written.
type noted struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *noted) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(line)
}

func (n *noted) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// TestLastFailure: the error of a call without an answer contains the reason for the missing
// connection, and the log contains it once.
func TestLastFailure(t *testing.T) {
	var text noted
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // otherwise the close is a reset
			conn.Close()
			ends <- struct{}{}
		}
	}()
	k, err := Dial(Options{Servers: listener.Addr().String(), Session: SessionMin, Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		<-ends
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = k.Get(ctx, "/a")
	for _, want := range []string{"no answer from ZooKeeper", "it accepts no sessions at the moment, or this is its secure port", listener.Addr().String()} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	k.Close()
	listener.Close()
	if n := strings.Count(text.String(), "cannot connect to a ZooKeeper server"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, text.String())
	}
}

// FuzzHandshake: the session length is read as ZooKeeper writes it, and never from other bytes.
func FuzzHandshake(f *testing.F) {
	good := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 37), 0), 4000)
	f.Add(good)
	f.Add(good[:11])
	f.Add(append(good[:8:8], 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, first []byte) {
		d, ok := parseSession(first)
		if ok != (d > 0) || ok && (len(first) < handshakeBytes || d%time.Millisecond != 0 || d > 1<<31*time.Millisecond) {
			t.Errorf("%x: %v, %v", first, d, ok)
		}
	})
	if d, ok := parseSession(good); !ok || d != 4*time.Second {
		f.Errorf("%v, %v", d, ok)
	}
}
