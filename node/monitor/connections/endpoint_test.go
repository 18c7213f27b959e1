package connections

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func ends(t *testing.T, c net.Conn) (local, remote netip.AddrPort) {
	t.Helper()
	l, r := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(l.Addr().Unmap(), l.Port()), netip.AddrPortFrom(r.Addr().Unmap(), r.Port())
}

func listenHere(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestFindASocket(t *testing.T) {
	server, client := pair(t, listenHere(t))
	for name, c := range map[string]*net.TCPConn{"the client's": client, "the server's": server} {
		local, remote := ends(t, c)
		e, err := Find(local, remote)
		if err != nil {
			t.Fatal(err)
		}
		if e.UID != uint32(os.Getuid()) || e.Inode != inode(t, c) {
			t.Errorf("%s socket is %+v; its inode is %d", name, e, inode(t, c))
		}
		if again, err := Find(local, remote); again != e || err != nil {
			t.Errorf("%s socket was %+v and is %+v, %v", name, e, again, err)
		}
	}
}

// TestFindASocketOfIPv6: a JVM's sockets are sockets of IPv6, also for connections by IPv4.
func TestFindASocketOfIPv6(t *testing.T) {
	l := listenHere(t)
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	to := &unix.SockaddrInet6{Port: l.Addr().(*net.TCPAddr).Port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	remote, local := ends(t, server)
	e, err := Find(local, remote)
	var stat unix.Stat_t
	if err2 := unix.Fstat(fd, &stat); err != nil || err2 != nil || e.Inode != stat.Ino {
		t.Errorf("found %+v, %v; the inode is %d, %v", e, err, stat.Ino, err2)
	}
}

// TestNoSuchSocket: a socket that its process has closed belongs to nobody, though the kernel keeps it for
// a while and reports it as root's; and a listening socket is no connection.
func TestNoSuchSocket(t *testing.T) {
	l := listenHere(t)
	server, client := pair(t, l)
	local, remote := ends(t, client)
	for _, never := range []netip.AddrPort{
		netip.AddrPortFrom(local.Addr(), local.Port()^1), netip.MustParseAddrPort("127.0.0.2:" + "9"), remote,
	} {
		if e, err := Find(never, remote); !errors.Is(err, ErrNoEndpoint) {
			t.Errorf("%v to %v: %+v, %v", never, remote, e, err)
		}
	}
	// The kernel answers for the listening socket if it has no connection between the two ends.
	if e, err := Find(remote, netip.MustParseAddrPort("127.0.0.1:1")); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("the listening socket is a connection: %+v, %v", e, err)
	}
	client.Close()
	if e, err := Find(local, remote); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("a closed socket: %+v, %v", e, err)
	}
	server.Close()

	// The same ends again, for another socket.
	// Only this test uses this address, so the port is free again when the socket is closed.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 5)}}
	first, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	local, remote = ends(t, first)
	before, err := Find(local, remote)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.(*net.TCPConn).SetLinger(0); err != nil { // no TIME_WAIT
		t.Fatal(err)
	}
	d.LocalAddr = first.LocalAddr()
	first.Close()
	c, err := d.Dial("tcp", remote.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e, err := Find(local, remote); err != nil || e.Cookie == before.Cookie {
		t.Errorf("another socket of the same ends: %+v, %v; before %+v", e, err, before)
	}
	if _, err := Find(netip.MustParseAddrPort("[::1]:1"), remote); err == nil || errors.Is(err, ErrNoEndpoint) {
		t.Errorf("an address of IPv6: %v", err)
	}
}

// FuzzEndpoint: whatever the answer is, a socket of other ends, or one that nobody has open, is not taken.
func FuzzEndpoint(f *testing.F) {
	local, remote := netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:9000")
	good := make([]byte, messageSize)
	good[0], good[stateAt] = unix.AF_INET, tcpEstablished
	binary.BigEndian.PutUint16(good[localPortAt:], local.Port())
	binary.BigEndian.PutUint16(good[remotePortAt:], remote.Port())
	copy(good[localAt:], local.Addr().AsSlice())
	copy(good[remoteAt:], remote.Addr().AsSlice())
	good[inodeAt], good[uidAt] = 1, 2
	if e, err := parseEndpoint(good, local, remote); err != nil || e.Inode == 0 || e.UID == 0 {
		f.Fatal(e, err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, m []byte) {
		e, err := parseEndpoint(m, local, remote)
		if err == nil && (e.Inode == 0 || m[stateAt] != tcpEstablished || binary.BigEndian.Uint16(m[localPortAt:]) != local.Port() ||
			binary.BigEndian.Uint16(m[remotePortAt:]) != remote.Port()) {
			t.Errorf("%x is %+v", m, e)
		}
	})
}
