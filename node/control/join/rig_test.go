package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/asroot"
	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/node/control/journal"
)

const patience = 20 * time.Second // bounds every wait for an event

// undo is what a daemon passes to the journal.
var undo = map[string]journal.Undo{Mechanism: Undo}

func TestMain(m *testing.M) {
	if role := strings.Fields(os.Getenv(childRole)); len(role) > 0 {
		fmt.Fprintln(os.Stderr, child(role))
		os.Exit(1)
	}
	asroot.Main(m, "^Fuzz|Table|Entries|Reason")
}

// rig is a small network of containers whose sockets can be joined, and nobody else's: the test's own process is
// in a cgroup of its own.
type rig struct {
	t       testing.TB
	dir     string
	cgroup  string
	network *netns.Network
	router  *netns.Machine
	a, b    *netns.Machine // two containers
	journal *journal.Journal
	join    *Join
	proof   time.Duration
}

func build(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), proof: time.Hour} // so that messages can be counted
	r.enter()
	book, err := ledger.Open(t.TempDir())
	r.must(err)
	t.Cleanup(func() { r.check(book.Close()) })
	r.network, err = netns.New(book, 3)
	r.must(err)
	t.Cleanup(func() { r.check(r.network.Close()) })
	r.a, r.b = r.network.Machines[0], r.network.Machines[1]
	r.router, err = r.network.Router()
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

// enter moves this process to a cgroup of its own until the test ends.
func (r *rig) enter() {
	r.t.Helper()
	root, err := Root()
	r.must(err)
	text, err := os.ReadFile("/proc/self/cgroup")
	r.must(err)
	before := ""
	for _, line := range strings.Split(string(text), "\n") {
		if path, is := strings.CutPrefix(line, "0::"); is {
			before = filepath.Join(root, path)
		}
	}
	r.cgroup = filepath.Join(root, fmt.Sprintf("penstock-join-%d", os.Getpid()))
	if err := os.Mkdir(r.cgroup, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		r.t.Fatal(err)
	}
	pid := []byte(strconv.Itoa(os.Getpid()))
	r.must(os.WriteFile(filepath.Join(r.cgroup, "cgroup.procs"), pid, 0))
	r.t.Cleanup(func() {
		r.check(os.WriteFile(filepath.Join(before, "cgroup.procs"), pid, 0))
		r.eventually("the test's cgroup is empty", func() bool {
			err := os.Remove(r.cgroup)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	})
}

func (r *rig) config() Config {
	return Config{Dir: filepath.Join(r.dir, "pins"), Cgroup: r.cgroup, Journal: r.journal, proof: r.proof,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// start starts to join connections, as a daemon in the router's namespace.
func (r *rig) start(ports ...uint16) *Join {
	r.t.Helper()
	var err error
	r.journal, err = journal.Open(filepath.Join(r.dir, "journal"), undo)
	r.must(err)
	c := r.config()
	c.Ports = ports
	r.must(r.router.Do(func() (err error) {
		r.join, err = Start(context.Background(), c)
		return err
	}))
	j, book := r.join, r.journal
	r.t.Cleanup(func() {
		r.check(j.Close())
		r.check(book.Close())
	})
	return r.join
}

// eventually waits until f returns true.
func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// listen listens at a container.
func (r *rig) listen(m *netns.Machine) net.Listener {
	r.t.Helper()
	l, err := m.Listen(context.Background(), netip.AddrPortFrom(m.Address, 0).String())
	r.must(err)
	r.t.Cleanup(func() { l.Close() })
	return l
}

func port(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// dial connects from a container to an address at which l is reached.
func (r *rig) dial(from *netns.Machine, to string, l net.Listener) (client, server *net.TCPConn) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := from.Dial(ctx, to)
	r.must(err)
	s, err := l.Accept()
	r.must(err)
	r.t.Cleanup(func() { c.Close(); s.Close() })
	deadline := time.Now().Add(2 * patience)
	r.must(errors.Join(c.SetDeadline(deadline), s.SetDeadline(deadline)))
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// pair connects the two containers without NAT.
func (r *rig) pair() (client, server *net.TCPConn) {
	r.t.Helper()
	l := r.listen(r.b)
	return r.dial(r.a, l.Addr().String(), l)
}

// ping sends a message each way n times.
func (r *rig) ping(client, server net.Conn, n int) {
	r.t.Helper()
	request, answer := []byte("request"), []byte("an answer")
	got := make([]byte, 64)
	for range n {
		for _, s := range []struct {
			from, to net.Conn
			message  []byte
		}{{client, server, request}, {server, client, answer}} {
			if _, err := s.from.Write(s.message); err != nil {
				r.t.Fatal(err)
			}
			if _, err := io.ReadFull(s.to, got[:len(s.message)]); err != nil {
				r.t.Fatal(err)
			}
			if string(got[:len(s.message)]) != string(s.message) {
				r.t.Fatalf("got %q, want %q", got[:len(s.message)], s.message)
			}
		}
	}
}

// connection returns the state of the connection with this client, and whether it was found.
func (r *rig) connection(client *net.TCPConn) (Connection, bool) {
	r.t.Helper()
	id := cookie(r.t, client)
	for _, c := range r.join.Status().Connections {
		if c.ID == id {
			return c, true
		}
	}
	return Connection{}, false
}

func (r *rig) found(client *net.TCPConn) Connection {
	r.t.Helper()
	c, ok := r.connection(client)
	if !ok {
		r.t.Fatalf("the connection was not found; status: %+v", r.join.Status())
	}
	return c
}

// control calls f with the connection's descriptor.
func control(t testing.TB, c *net.TCPConn, f func(fd int) error) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err2 := raw.Control(func(fd uintptr) { err = f(int(fd)) }); err2 != nil || err != nil {
		t.Fatal(err2, err)
	}
}

func cookie(t testing.TB, c *net.TCPConn) (id uint64) {
	t.Helper()
	control(t, c, func(fd int) (err error) {
		id, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		return err
	})
	return id
}
