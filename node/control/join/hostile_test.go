package join

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"penstock/bpf"
	"penstock/node/control/journal"
)

// twins makes two namespaces that are connected to each other only, with the addresses 198.51.100.1 and .2, and
// returns a function that calls its argument in one of them.
func twins(t *testing.T) (in func(which int, f func() error) error) {
	t.Helper()
	var spaces [2]netns.NsHandle
	apart := func(f func() error) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
			done <- f()
		}()
		return <-done
	}
	for i := range spaces {
		err := apart(func() (err error) {
			spaces[i], err = netns.New()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { spaces[i].Close() })
	}
	for i, ns := range spaces {
		h, err := netlink.NewHandleAt(ns)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if i == 0 {
			err = h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(spaces[1])})
			if err != nil {
				t.Fatal(err)
			}
		}
		link, err := h.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		address := &net.IPNet{IP: net.IPv4(198, 51, 100, byte(i+1)).To4(), Mask: net.CIDRMask(24, 32)}
		if err := errors.Join(h.AddrAdd(link, &netlink.Addr{IPNet: address}), h.LinkSetUp(link)); err != nil {
			t.Fatal(err)
		}
	}
	return func(which int, f func() error) error {
		return apart(func() error {
			if err := netns.Set(spaces[which]); err != nil {
				return err
			}
			return f()
		})
	}
}

// TestTheSameAddressesTwice: two pairs of containers in separate networks have connections with the same addresses
// and ports.
func TestTheSameAddressesTwice(t *testing.T) {
	r := build(t)
	r.start()
	var clients, servers [2]*net.TCPConn
	for i := range 2 {
		in := twins(t)
		var l net.Listener
		r.must(in(1, func() (err error) {
			l, err = net.Listen("tcp4", "198.51.100.2:9866")
			return err
		}))
		defer l.Close()
		var c net.Conn
		r.must(in(0, func() (err error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 40000}, Timeout: patience}
			c, err = d.Dial("tcp4", "198.51.100.2:9866")
			return err
		}))
		s, err := l.Accept()
		r.must(err)
		defer c.Close()
		defer s.Close()
		clients[i], servers[i] = c.(*net.TCPConn), s.(*net.TCPConn)
		deadline := time.Now().Add(patience)
		r.must(errors.Join(c.SetDeadline(deadline), s.SetDeadline(deadline)))
	}
	for i, message := range []string{"of the first", "of the second"} {
		r.write(clients[i], []byte(message))
	}
	for i, message := range []string{"of the first", "of the second"} {
		got := make([]byte, 64)
		if n, err := servers[i].Read(got); err != nil || string(got[:n]) != message {
			t.Errorf("pair %d: %q, %v", i, got[:n], err)
		}
		r.ping(clients[i], servers[i], 10)
	}
	a, b := r.found(clients[0]), r.found(clients[1])
	if a.Client.Local != b.Client.Local || a.Client.Remote != b.Client.Remote || a.Client.Namespace == b.Client.Namespace || !a.Server.Joined || !b.Server.Joined {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// repaired returns a socket whose addresses and sequence numbers this process has chosen (TCP_REPAIR), as a hostile
// container with CAP_NET_ADMIN in its own namespace can.
func repaired(local, remote netip.AddrPort, sent, received int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	const recvQueue, sendQueue = 1, 2
	set := func(option, value int) func() error {
		return func() error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, value) }
	}
	for _, step := range []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		set(unix.TCP_REPAIR, 1),
		set(unix.TCP_REPAIR_QUEUE, sendQueue), set(unix.TCP_QUEUE_SEQ, sent),
		set(unix.TCP_REPAIR_QUEUE, recvQueue), set(unix.TCP_QUEUE_SEQ, received),
		func() error {
			return unix.Bind(fd, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()})
		},
		func() error {
			return unix.Connect(fd, &unix.SockaddrInet4{Port: int(remote.Port()), Addr: remote.Addr().As4()})
		},
		set(unix.TCP_REPAIR, 0),
	} {
		if err := step(); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// TestARepairedSocketIsNotJoined: a hostile container cannot take the place of a connection's end.
func TestARepairedSocketIsNotJoined(t *testing.T) {
	r := build(t)
	hostile := r.network.Machines[2]
	j := r.start()
	client, server := r.pair()
	r.ping(client, server, 10)
	before, err := keys[[8]byte](j.objects.Pending)
	r.must(err)
	c := r.found(client)
	var fd int
	r.must(hostile.Do(func() error {
		// It takes the client's address.
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		address := &net.IPNet{IP: c.Client.Local.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: address}); err != nil {
			return err
		}
		fd, err = repaired(c.Client.Local, c.Client.Remote, 1000, 2000)
		return err
	}))
	defer unix.Close(fd)
	if after, err := keys[[8]byte](j.objects.Pending); err != nil || len(after) != len(before) {
		t.Errorf("the socket was noted: %v, %v", after, err)
	}
	if s := j.Status(); s.Sockets != 2 || len(s.Connections) != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := unix.Write(fd, []byte("forged")); err != nil {
		t.Fatal(err)
	}
	r.must(server.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
	got := make([]byte, 16)
	if n, err := server.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server got %q, %v", got[:n], err)
	}
	r.must(server.SetReadDeadline(time.Now().Add(patience)))
	r.ping(client, server, 10)
}

// TestCloseWithUnreadBytes: Close leaves what a reader has not read. The journal keeps the change until the reader has read.
func TestCloseWithUnreadBytes(t *testing.T) {
	r, client, server := joined(t)
	r.write(client, []byte("unread, "))
	if err := r.join.Close(); !errors.Is(err, ErrUnread) || r.journal.Len() != 1 {
		t.Errorf("the end: %v, %d changes", err, r.journal.Len())
	}
	if err := r.journal.Close(); !errors.Is(err, ErrUnread) {
		t.Errorf("the journal's end: %v", err)
	}
	dir := r.config().Dir
	pinned := func() {
		t.Helper()
		if paths, err := generations(dir); err != nil || len(paths) != 1 {
			t.Fatalf("%v, %v", paths, err)
		}
	}
	pinned()
	// A daemon that joins nothing finds the change.
	reopen := func() *journal.Journal {
		t.Helper()
		book, err := journal.Open(filepath.Join(r.dir, "journal"), undo)
		r.must(err)
		return book
	}
	book := reopen()
	if all := book.Restored(); len(all) != 1 || !errors.Is(all[0].Err, ErrUnread) || book.Len() != 1 {
		t.Errorf("%+v, %d changes", all, book.Len())
	}
	if err := book.Close(); !errors.Is(err, ErrUnread) {
		t.Errorf("the second end: %v", err)
	}
	pinned()
	if _, err := client.Write([]byte("then by TCP")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 19)
	for at := 0; at < len(got); {
		n, err := server.Read(got[at:])
		r.must(err)
		at += n
	}
	if string(got) != "unread, then by TCP" {
		t.Errorf("%q", got)
	}
	book = reopen()
	if all := book.Restored(); len(all) != 1 || all[0].Err != nil || book.Len() != 0 || isMounted(dir) {
		t.Errorf("after the reader has read: %+v, %d changes", all, book.Len())
	}
	r.must(book.Close())
	r.start()
	pinned()
	r.ping(client, server, 10)
	if c, ok := r.connection(client); ok {
		t.Errorf("an old connection: %+v", c)
	}
}

// TestAnotherVersion: what a daemon of another version has pinned is released, and removed when it has no sockets.
func TestAnotherVersion(t *testing.T) {
	r := build(t)
	dir := r.config().Dir
	r.must(mount(dir))
	old := filepath.Join(dir, "7")
	r.must(os.Mkdir(old, 0o700))
	var socket *ebpf.Map
	for _, m := range []*ebpf.MapSpec{
		{Name: names.controls, Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 1},
		{Name: names.connections, Type: ebpf.Hash, KeySize: 8, ValueSize: 16, MaxEntries: 8},
		{Name: names.sockets, Type: ebpf.SockHash, KeySize: 8, ValueSize: 8, MaxEntries: 8},
	} {
		opened, err := ebpf.NewMap(m)
		r.must(err)
		defer opened.Close()
		r.must(opened.Pin(filepath.Join(old, m.Name)))
		socket = opened
	}
	program, err := bpf.LoadSocketjoin()
	r.must(err)
	loaded, err := ebpf.NewCollection(program)
	r.must(err)
	defer loaded.Close()
	r.must(loaded.Programs["drained"].Pin(filepath.Join(old, names.drained)))

	client, server := r.pair()
	control(t, client, func(fd int) error { return socket.Put(uint64(1), uint64(fd)) })
	r.start()
	if paths, err := generations(dir); err != nil || len(paths) != 2 {
		t.Errorf("%v, %v", paths, err)
	}
	joined, end := r.pair()
	r.ping(joined, end, 10)
	r.ping(client, server, 10)
	if err := r.join.Close(); !errors.Is(err, ErrUnread) {
		t.Errorf("the end: %v", err)
	}
	if paths, err := generations(dir); err != nil || len(paths) != 1 {
		t.Errorf("%v, %v", paths, err)
	}
	client.Close()
	server.Close()
	r.must(r.journal.Close())
	if isMounted(dir) {
		t.Error("the BPF file system is left over")
	}
}
