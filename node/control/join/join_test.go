package join

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"penstock/lab/netns"
	"penstock/node/status"
)

func TestContainersAreJoined(t *testing.T) {
	r := build(t)
	j := r.start()
	client, server := r.pair()
	r.ping(client, server, 100)
	c := r.found(client)
	if c.NAT || !c.Verified || !c.Client.Joined || !c.Server.Joined || c.Client.Messages != 100 || c.Server.Messages != 100 ||
		c.Client.Bytes != 700 || c.Server.Bytes != 900 || c.Client.Namespace == c.Server.Namespace {
		t.Errorf("%+v", c)
	}
	if local := netip.MustParseAddrPort(client.LocalAddr().String()); c.Client.Local != local || c.Server.Remote != local {
		t.Errorf("the client is %v, found %v and %v", local, c.Client.Local, c.Server.Remote)
	}
	client.Close()
	server.Close()
	r.eventually("the closed connection is forgotten", func() bool {
		s := j.Status()
		return len(s.Connections) == 0 && s.Sockets == 0 && s.ClosedConnections == 1 && s.ClosedBytes == 1600
	})
}

func TestConnectionsBehindNATAreJoined(t *testing.T) {
	r := build(t)
	r.must(r.router.Masquerade())
	l := r.listen(r.b)
	r.must(r.router.Publish(8080, l.Addr().(*net.TCPAddr).AddrPort()))
	r.start()
	published := netip.AddrPortFrom(r.router.Address, 8080).String()
	client, server := r.dial(r.a, published, l)
	r.eventually("the connection is verified", func() bool { return r.found(client).Verified })
	r.ping(client, server, 100)
	c := r.found(client)
	if !c.NAT || !c.Client.Joined || !c.Server.Joined || c.Client.Messages != 100 || c.Server.Messages != 100 {
		t.Errorf("%+v", c)
	}
	if c.Client.Remote != netip.AddrPortFrom(r.router.Address, 8080) || c.Server.Local != l.Addr().(*net.TCPAddr).AddrPort() || c.Server.Remote.Addr() != r.router.Address {
		t.Errorf("the ends' addresses: %+v", c)
	}
}

func TestAContainerAndItsHostAreJoined(t *testing.T) {
	r := build(t)
	r.start()
	for _, way := range [][2]*netns.Machine{{r.a, r.router}, {r.router, r.a}} {
		l := r.listen(way[1])
		client, server := r.dial(way[0], l.Addr().String(), l)
		r.ping(client, server, 10)
		if c := r.found(client); c.NAT || !c.Client.Joined || !c.Server.Joined {
			t.Errorf("%+v", c)
		}
	}
}

func TestAConnectionThatNobodyTranslatesIsNotJoined(t *testing.T) {
	r := build(t)
	r.start()
	client, server := r.pair()
	c := r.found(client)
	for _, wrong := range []struct{ clientLocal, clientRemote, serverLocal, serverRemote netip.AddrPort }{
		{c.Client.Local, c.Client.Remote, c.Server.Local, netip.AddrPortFrom(r.router.Address, 1)},
		{c.Client.Local, netip.AddrPortFrom(r.router.Address, 1), c.Server.Local, c.Server.Remote},
	} {
		if fits, err := r.join.table.translates(wrong.clientLocal, wrong.clientRemote, wrong.serverLocal, wrong.serverRemote); err != nil || fits {
			t.Errorf("%v: %v, %v", wrong, fits, err)
		}
	}
	r.ping(client, server, 1)
}

// TestIPv6: Java's sockets are those of IPv6 also when they carry IPv4.
func TestIPv6(t *testing.T) {
	r := build(t)
	r.start()
	for i, m := range []*netns.Machine{r.a, r.b} {
		r.must(m.Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			ip := net.IP{0xfd, 15: byte(i + 1)}
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD})
		}))
	}
	l, err := r.b.Listen(t.Context(), "[::]:0")
	r.must(err)
	defer l.Close()
	mapped := r.b.Address.As16()
	for _, to := range []netip.Addr{netip.AddrFrom16(mapped), netip.MustParseAddr("fd00::2")} {
		var c net.Conn
		r.must(r.a.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			file := os.NewFile(uintptr(fd), "socket")
			defer file.Close()
			if err := unix.Connect(fd, &unix.SockaddrInet6{Port: int(port(l)), Addr: to.As16()}); err != nil {
				return err
			}
			c, err = net.FileConn(file)
			return err
		}))
		s, err := l.Accept()
		r.must(err)
		r.ping(c, s, 10)
		f := r.found(c.(*net.TCPConn))
		if f.Client.Remote != netip.AddrPortFrom(to.Unmap(), port(l)) || f.Server.Remote != f.Client.Local || !f.Client.Joined || !f.Server.Joined || f.Client.Messages != 10 {
			t.Errorf("%v: %+v", to, f)
		}
		c.Close()
		s.Close()
	}
	// A client of IPv4 and a server of IPv6.
	client, server := r.dial(r.a, netip.AddrPortFrom(r.b.Address, port(l)).String(), l)
	r.ping(client, server, 10)
	if f := r.found(client); !f.Client.Joined || !f.Server.Joined || f.NAT {
		t.Errorf("%+v", f)
	}
}

func TestTableOfTooManyPorts(t *testing.T) {
	c := Config{Dir: t.TempDir(), Ports: make([]uint16, maxPorts+1)}
	if j, err := Start(t.Context(), c); j != nil || err == nil || !strings.Contains(err.Error(), "at most 1024") {
		t.Errorf("%v, %v", j, err)
	}
}

// The entries of the document count connections, and add up bytes of open and closed ones.
func TestDocumentEntries(t *testing.T) {
	s := Status{ClosedConnections: 7, ClosedBytes: 1000, Sockets: 9, Releases: 2, LastRelease: "x", Limited: "y", Error: "z", Connections: []Connection{
		{Client: End{Joined: true, Bytes: 1}, Server: End{Joined: true, Bytes: 2}, NAT: true}, {Server: End{Joined: true, Bytes: 4}}, {Released: Ordered, NAT: true, Client: End{Bytes: 8}}, {},
	}}
	want := status.Joining{Connections: 4, Joined: 2, Translated: 2, Released: 1, Bytes: 1015, Closed: 7, Sockets: 9, Releases: 2, LastRelease: "x", Limited: "y", Error: "z"}
	if got := s.Document(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
