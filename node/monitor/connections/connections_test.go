package connections

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestLayout(t *testing.T) {
	var info unix.TCPInfo
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"rtt", rttAt, unsafe.Offsetof(info.Rtt)},
		{"pacing rate", pacingAt, unsafe.Offsetof(info.Pacing_rate)},
		{"bytes acknowledged", acknowledged, unsafe.Offsetof(info.Bytes_acked)},
		{"bytes received", received, unsafe.Offsetof(info.Bytes_received)},
	} {
		if c.got != c.want {
			t.Errorf("%s at %d, the kernel has it at %d", c.name, c.got, c.want)
		}
	}
}

// pair is a connection on this machine.
func pair(t *testing.T, l net.Listener) (server, client *net.TCPConn) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

func send(t *testing.T, from, to *net.TCPConn, bytes int64) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := from.Write(make([]byte, bytes))
		failed <- err
	}()
	_, err := io.CopyN(io.Discard, to, bytes)
	if err := errors.Join(err, <-failed); err != nil {
		t.Fatal(err)
	}
}

// inode returns the inode of a connection's socket.
func inode(t *testing.T, c *net.TCPConn) uint64 {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := errors.Join(raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &stat) }), err); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}

// settled waits until the clients have acknowledged all bytes: acknowledgements are delayed.
func settled(t *testing.T, w *Watch, begin time.Time, sent int64) Snapshot {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := w.Look(begin); err != nil {
			t.Fatal(err)
		}
		s := w.Snapshot(10)
		all := int64(0)
		for _, c := range s.Top {
			all += c.Sent
		}
		if all >= sent {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 10 s: %+v", s)
		}
	}
}

// TestTheKernelsConnections: bytes, ends and flows of real connections, by IPv4, IPv6 and IPv4 on a
// socket of IPv6.
func TestTheKernelsConnections(t *testing.T) {
	for _, at := range []struct{ network, address string }{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"tcp", ":0"}} {
		l, err := net.Listen(at.network, at.address)
		if err != nil {
			t.Logf("%s: %v", at.address, err) // a machine without IPv6
			continue
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		if at.network == "tcp" {
			l = &named{l, fmt.Sprintf("127.0.0.1:%d", port)}
		}
		w := New()
		a := w.NewAgent(1)
		reader, client := pair(t, l)
		writer, other := pair(t, l)
		r := a.Opened(reader.LocalAddr().String(), reader.RemoteAddr().String(), "app", "/blk_1", false)
		defer r.Close()
		u := a.Opened(writer.LocalAddr().String(), writer.RemoteAddr().String(), "another", "/blk_2", true)
		defer u.Close()
		const sent, got = 3 << 20, 1 << 20
		send(t, reader, client, sent)
		send(t, other, writer, got)
		s := settled(t, w, time.Now(), sent)
		if s.Established != 2 || !slices.Equal(s.Ports, []uint16{uint16(port)}) || s.More {
			t.Fatalf("%s: %+v", at.address, s)
		}
		for _, c := range s.Top {
			if c.Inode != inode(t, reader) && c.Inode != inode(t, writer) {
				t.Errorf("%s: inode %d, want %d or %d", at.address, c.Inode, inode(t, reader), inode(t, writer))
			}
			switch c.Client {
			case unmapped(netip.MustParseAddrPort(client.LocalAddr().String())):
				if c.Sent != sent || c.Received != 0 || c.Flow != "app" || c.File != "/blk_1" || c.Write || !c.Open || c.RTT <= 0 || c.RTT > time.Second || c.Pacing == 0 {
					t.Errorf("%s: the reader's connection is %+v", at.address, c)
				}
			case unmapped(netip.MustParseAddrPort(other.LocalAddr().String())):
				if c.Sent != 0 || c.Received != got || c.Flow != "another" || !c.Write {
					t.Errorf("%s: the writer's connection is %+v", at.address, c)
				}
			default:
				t.Errorf("%s: an unknown connection %+v", at.address, c)
			}
		}
	}
}

// named is a listener with another address.
type named struct {
	net.Listener
	address string
}

func (n *named) Addr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", n.address)
	return a
}

// kernel is a kernel for tests of the bookkeeping.
type kernel struct {
	all []Socket
	err error
}

func (k *kernel) sockets(port uint16, take func(Socket) bool) error {
	for _, s := range k.all {
		if s.Server.Port() == port && !take(s) {
			break
		}
	}
	return k.err
}

func address(host, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(host >> 8), byte(host)}), uint16(port))
}

func watch(k *kernel) *Watch {
	w := New()
	w.sockets = k.sockets
	return w
}

func TestRatesAndOrder(t *testing.T) {
	k := &kernel{all: []Socket{
		{Server: address(1, 9866), Client: address(2, 1), Sent: 100},
		{Server: address(1, 9866), Client: address(2, 2), Received: 1000, Sent: 50},
	}}
	w := watch(k)
	w.NewAgent(1).Opened(address(1, 9866).String(), address(2, 1).String(), "a", "", false).Close()
	now := time.Unix(1000, 0)
	look := func(seconds int) Snapshot {
		t.Helper()
		now = now.Add(time.Duration(seconds) * time.Second)
		if err := w.Look(now); err != nil {
			t.Fatal(err)
		}
		return w.Snapshot(10)
	}
	if s := look(5); s.Established != 2 || s.Top[0].SentRate != 0 {
		t.Fatalf("first look: %+v", s)
	}
	k.all[0].Sent, k.all[1].Received = 300, 2000
	s := look(5)
	if s.Top[0].Client != address(2, 2) || s.Top[0].ReceivedRate != 200 || s.Top[1].SentRate != 40 || s.Top[0].Flow != "" || s.Top[1].Flow != "a" || s.Top[1].Open {
		t.Errorf("after 5 s: %+v", s.Top)
	}
	k.all[0].Sent = 10 // another connection between the same ends
	k.all = append(k.all, Socket{Server: address(1, 9866), Client: address(2, 3), Sent: 500})
	if s := look(5); s.Top[0].Client != address(2, 3) || s.Top[0].SentRate != 100 || s.Top[1].SentRate != 2 || s.Top[2].ReceivedRate != 0 {
		t.Errorf("new connections: %+v", s.Top)
	}
	k.all = k.all[:2]
	look(5)
	if s := w.Snapshot(1); len(s.Top) != 1 || s.Established != 2 {
		t.Errorf("one of two: %+v", s)
	}
	k.err = errors.New("no")
	if err := w.Look(now.Add(time.Second)); err == nil || w.Snapshot(10).Established != 2 {
		t.Errorf("an error: %v, %+v", err, w.Snapshot(10))
	}
}

func TestStreamsOfAConnection(t *testing.T) {
	k := &kernel{all: []Socket{{Server: address(1, 9866), Client: address(2, 1)}}}
	w := watch(k)
	server, client := address(1, 9866).String(), "[::ffff:10.0.0.2]:1"
	flow := func(look bool) (string, bool) {
		t.Helper()
		if look {
			if err := w.Look(time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.Snapshot(1); len(s.Top) > 0 {
			return s.Top[0].Flow, s.Top[0].Open
		}
		return "gone", false
	}
	a := w.NewAgent(1)
	first := a.Opened(server, client, "claimed", "/blk_1", false)
	first.SetFlow("found")
	if f, open := flow(true); f != "found" || !open {
		t.Errorf("%s, %v", f, open)
	}
	second := a.Opened(server, client, "next", "/blk_2", false)
	first.SetFlow("late") // the connection serves the second stream by now
	first.Close()
	first.Close() // its file is closed later
	if f, open := flow(true); f != "next" || !open {
		t.Errorf("%s, %v", f, open)
	}
	second.Close()
	if f, open := flow(true); f != "next" || open {
		t.Errorf("an idle connection: %s, %v", f, open)
	}
	k.all = nil
	flow(true)
	flow(true)
	if n := len(w.uses) + len(w.ports); n > 0 {
		t.Errorf("%d entries of a closed connection are kept", n)
	}
	// A stream that begins and ends between two calls, on a connection that they never see.
	a.Opened(server, client, "short", "", false).Close()
	flow(true)
	flow(true)
	if n := len(w.uses) + len(w.ports); n > 0 {
		t.Errorf("%d entries of a short connection are kept", n)
	}
	var none *Use
	none.SetFlow("x")
	none.Close()
}

func TestBounds(t *testing.T) {
	w := watch(&kernel{})
	for _, bad := range [][2]string{{"", ""}, {"a:1", "b:2"}, {"10.0.0.1:1", "own"}} {
		if w.NewAgent(1).Opened(bad[0], bad[1], "a", "", false) != nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	// One agent can use a part of all bounds only.
	a := w.NewAgent(1)
	for i := range maxAgentPorts {
		if a.Opened(address(1, 1000+i).String(), address(2, 1).String(), "a", "", false) == nil {
			t.Fatalf("port %d is refused", i+1)
		}
	}
	if a.Opened(address(1, 10).String(), address(2, 1).String(), "a", "", false) != nil {
		t.Error("too many ports of one agent are accepted")
	}
	for i := maxAgentPorts; i < maxAgentUses; i++ {
		if a.Opened(address(1, 1000).String(), address(2+i>>12, 1+i&0xfff).String(), "a", "", false) == nil {
			t.Fatalf("connection %d is refused", i+1)
		}
	}
	if a.Opened(address(1, 1000).String(), address(99, 1).String(), "a", "", false) != nil {
		t.Error("too many connections of one agent are accepted")
	}
	if w.NewAgent(1).Opened(address(1, 2000).String(), address(99, 1).String(), "a", "", false) == nil {
		t.Error("an agent that has nothing is refused")
	}
	for i := len(w.ports); i < maxPorts; i++ {
		if w.NewAgent(1).Opened(address(1, 3000+i).String(), address(2, 1).String(), "a", "", false) == nil {
			t.Fatalf("port %d is refused", i+1)
		}
	}
	if w.NewAgent(1).Opened(address(1, 10).String(), address(2, 1).String(), "a", "", false) != nil {
		t.Error("too many ports are accepted")
	}
	for i := len(w.uses); i < maxUses; i++ {
		if a.uses >= maxAgentUses {
			a = w.NewAgent(1)
		}
		if a.Opened(address(1, 1000).String(), address(100+i>>12, 1+i&0xfff).String(), "a", "", false) == nil {
			t.Fatalf("connection %d is refused", i+1)
		}
	}
	if w.NewAgent(1).Opened(address(1, 1000).String(), address(999, 1).String(), "a", "", false) != nil {
		t.Error("too many connections are accepted")
	}

	k := &kernel{}
	for i := range maxConnections + 1 {
		k.all = append(k.all, Socket{Server: address(1, 9866), Client: address(i, 1)})
	}
	w = watch(k)
	w.NewAgent(1).Opened(address(1, 9866).String(), address(2, 1).String(), "a", "", false)
	if err := w.Look(time.Now()); err != nil {
		t.Fatal(err)
	}
	if s := w.Snapshot(math.MaxInt); s.Established != maxConnections || !s.More {
		t.Errorf("%d of %d, more: %v", s.Established, len(k.all), s.More)
	}
	// Another port keeps its part, also if its number is higher.
	k.all = append(k.all, Socket{Server: address(1, 9999), Client: address(3, 1), Sent: 1})
	w.NewAgent(1).Opened(address(1, 9999).String(), address(3, 1).String(), "other", "", false)
	if err := w.Look(time.Now()); err != nil {
		t.Fatal(err)
	}
	if s := w.Snapshot(1); s.Top[0].Flow != "other" || s.Established != maxConnections/2+1 || !s.More {
		t.Errorf("%d connections, the fastest of %q", s.Established, s.Top[0].Flow)
	}
}

func FuzzParse(f *testing.F) {
	m := make([]byte, messageSize)
	m[0], m[stateAt] = unix.AF_INET, tcpEstablished
	f.Add(m)
	info := make([]byte, unix.SizeofNlAttr+infoSizeLeast)
	info[0], info[2] = byte(len(info)), attrInfo
	f.Add(append(slices.Clone(m), info...))
	m[0] = unix.AF_INET6
	f.Add(append(append(slices.Clone(m), 5, 0, 9, 0, 1, 0, 0, 0), info...))
	f.Fuzz(func(t *testing.T, message []byte) {
		if s, ok, err := parse(message); ok && (err != nil || s.Sent < 0 || s.Received < 0 || s.RTT < 0 || !s.Server.IsValid() || s.Client.Addr().Is4In6()) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// BenchmarkLook has the connections of a busy machine: 2,000 to one DataNode.
func BenchmarkLook(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	w := New()
	for range 2000 {
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		w.NewAgent(1).Opened(s.LocalAddr().String(), s.RemoteAddr().String(), "app", "", false)
	}
	for b.Loop() {
		if err := w.Look(time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	if n := w.Snapshot(1).Established; n != 2000 {
		b.Fatalf("%d connections", n)
	}
}
