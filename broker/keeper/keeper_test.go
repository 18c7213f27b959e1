package keeper

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestServers(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("zk:2181,", serversMax), ",")
	for list, want := range map[string]struct {
		servers int
		root    string
	}{
		"zk:2181":                          {1, Folder},
		"zk1:2181,[::1]:2181/a/b_c.d-1":    {2, "/a/b_c.d-1"},
		many:                               {serversMax, Folder},
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
		"penstock:secret\n":                   "penstock:secret",
		"u:p:q":                               "u:p:q",
		"u:" + strings.Repeat("p", authMax-2): "u:" + strings.Repeat("p", authMax-2),
		"u:" + strings.Repeat("p", authMax-1): "",
		"":                                    "",
		"secret":                              "",
		":p":                                  "",
		"u:":                                  "",
		"u:p\nv:q\n":                          "",
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
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

// TestNames: servers come in turn, and it is told when all have been tried since the last
// that answered.
func TestNames(t *testing.T) {
	given := []string{"a:1", "b:1", "c:1"}
	n := &names{}
	if err := n.Init(given); err != nil {
		t.Fatal(err)
	}
	round := func(want bool) {
		t.Helper()
		var seen []string
		for i := range given {
			s, again := n.Next()
			if again != (want && i == 0) {
				t.Errorf("server %d of a round: again is %v", i, again)
			}
			seen = append(seen, s)
		}
		slices.Sort(seen)
		if !slices.Equal(seen, given) {
			t.Errorf("a round is %v", seen)
		}
	}
	round(false)
	round(true)
	round(true)
	n.Connected()
	round(false)
}

// FuzzHandshake: the session's length is read as ZooKeeper writes it, and is never taken
// from what is no handshake.
func FuzzHandshake(f *testing.F) {
	good := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 37), 0), 4000)
	f.Add(good)
	f.Add(good[:11])
	f.Add(append(good[:8:8], 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, first []byte) {
		d, ok := sessionOf(first)
		if ok != (d > 0) || ok && (len(first) < handshake || d%time.Millisecond != 0 || d > 1<<31*time.Millisecond) {
			t.Errorf("%x: %v, %v", first, d, ok)
		}
	})
	if d, ok := sessionOf(good); !ok || d != 4*time.Second {
		f.Errorf("%v, %v", d, ok)
	}
}
