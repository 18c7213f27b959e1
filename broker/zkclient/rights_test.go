package zkclient

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
)

// ensemble is a ZooKeeper with znodes that have rights and nothing else. It accepts each session, and answers the calls of
// CheckRights.
type ensemble struct {
	mu     sync.Mutex
	rights map[string][]zk.ACL // by path
}

// Codes of ZooKeeper's protocol.
const (
	opGetACL      = 6
	opChildren    = 12
	noNode        = -101
	statBytes     = 68
	passwordBytes = 16
)

func (e *ensemble) serve(conn net.Conn) {
	defer conn.Close()
	read := func() ([]byte, bool) {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil, false
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:]))
		_, err := io.ReadFull(conn, body)
		return body, err == nil
	}
	write := func(body []byte) {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	number := func(to []byte, n int) []byte { return binary.BigEndian.AppendUint32(to, uint32(n)) }
	text := func(to []byte, s string) []byte { return append(number(to, len(s)), s...) }
	if _, ok := read(); !ok {
		return
	}
	session := number(number(nil, 0), 4000)
	session = binary.BigEndian.AppendUint64(session, 7)
	write(append(number(session, passwordBytes), make([]byte, passwordBytes)...))
	for {
		request, ok := read()
		if !ok {
			return
		}
		header := binary.BigEndian.AppendUint64(request[:4:4], 1) // the call's number, and a transaction's
		op := int(binary.BigEndian.Uint32(request[4:]))
		if op != opGetACL && op != opChildren { // credentials and pings
			write(number(header, 0))
			continue
		}
		path := string(request[12 : 12+binary.BigEndian.Uint32(request[8:])])
		e.mu.Lock()
		acl, known := e.rights[path]
		var names []string
		for other := range e.rights {
			if name, below := strings.CutPrefix(other, path+"/"); below && !strings.Contains(name, "/") {
				names = append(names, name)
			}
		}
		e.mu.Unlock()
		if !known {
			write(number(header, noNode))
			continue
		}
		answer := number(header, 0)
		if op == opGetACL {
			answer = number(answer, len(acl))
			for _, a := range acl {
				answer = text(text(number(answer, int(a.Perms)), a.Scheme), a.ID)
			}
		} else {
			answer = number(answer, len(names))
			for _, name := range names {
				answer = text(answer, name)
			}
		}
		write(append(answer, make([]byte, statBytes)...))
	}
}

func TestRights(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	own, world := zk.DigestACL(zk.PermAll, "penstock", "secret"), zk.WorldACL(zk.PermAll)
	e := &ensemble{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	secret := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(secret, []byte("penstock:secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dial := func(auth string) *Client {
		k, err := Dial(Options{Servers: listener.Addr().String() + "/p", Auth: auth, Session: SessionMax, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		return k
	}
	closed, open := dial(secret), dial("")
	for name, test := range map[string]struct {
		rights map[string][]zk.ACL
		levels int
		wrong  string // path; empty: nothing is wrong
	}{
		"nothing yet":         {map[string][]zk.ACL{}, 2, ""},
		"own":                 {map[string][]zk.ACL{"/p": own, "/p/versions": own, "/p/versions/1": own}, 2, ""},
		"an open folder":      {map[string][]zk.ACL{"/p": world}, 2, "/p in"},
		"an open version":     {map[string][]zk.ACL{"/p": own, "/p/versions": own, "/p/versions/1": world}, 2, "/p/versions/1 in"},
		"it is not looked at": {map[string][]zk.ACL{"/p": own, "/p/versions": own, "/p/versions/1": world}, 1, ""},
		"readable by all":     {map[string][]zk.ACL{"/p": append(zk.WorldACL(zk.PermRead), own...)}, 2, ""},
		"another's":           {map[string][]zk.ACL{"/p": own, "/p/newest": append(zk.DigestACL(zk.PermWrite, "eve", "x"), own...)}, 2, "/p/newest in"},
	} {
		e.mu.Lock()
		e.rights = test.rights
		e.mu.Unlock()
		err := closed.CheckRights(t.Context(), test.levels)
		if test.wrong == "" && err != nil || test.wrong != "" && (!errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := open.CheckRights(t.Context(), test.levels); err != nil {
			t.Errorf("%s, without credentials: %v", name, err)
		}
	}
}
