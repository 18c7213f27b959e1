package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"penstock/bpf"
	"penstock/node/monitor/connections"
)

type connectionState = bpf.SocketjoinConnection

func TestAFirewallRuleBites(t *testing.T) {
	r, client, server := joined(t)
	r.ping(client, server, 10)
	idle, other := r.pair()
	r.ping(idle, other, 1)
	begin := time.Now()
	r.must(r.router.Drop())
	r.eventually("all connections are released", func() bool { return r.join.Status().Releases > 0 })
	if took := time.Since(begin); took > time.Second {
		t.Errorf("released after %v", took)
	}
	if _, err := client.Write([]byte("dropped")); err != nil {
		t.Fatal(err)
	}
	r.must(server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)))
	got := make([]byte, 16)
	if n, err := server.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the rule does not hold: %q, %v", got[:n], err)
	}
	if c := r.found(client); c.Released != RulesChanged {
		t.Errorf("%+v", c)
	}
	r.must(r.router.Undrop())
	r.must(server.SetReadDeadline(time.Now().Add(patience)))
	if n, err := server.Read(got); err != nil || string(got[:n]) != "dropped" {
		t.Errorf("after the rule is removed: %q, %v", got[:n], err)
	}
	before := r.found(client).Client.Bytes
	r.ping(client, server, 10)
	if c := r.found(client); c.Client.Bytes != before || c.Client.Joined {
		t.Errorf("a released connection is joined again: %+v", c)
	}
	// A connection that is made under the new rules is joined.
	client, server = r.pair()
	r.ping(client, server, 10)
	if c := r.found(client); !c.Client.Joined {
		t.Errorf("%+v", c)
	}
	// A connection that the rules do not allow is not made, and so not joined.
	r.must(r.router.Drop())
	l := r.listen(r.b)
	err := r.a.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		limit := unix.Timeval{Usec: 200_000}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(port(l)), Addr: r.b.Address.As4()})
	})
	if !errors.Is(err, unix.EINPROGRESS) {
		t.Errorf("connect: %v", err)
	}
}

// TestAWayThatIsCut: packets are lost without any rule that drops them, here at the bridge's port. Each direction sends a message
// by TCP now and then, so the connection stops, and nothing is lost.
func TestAWayThatIsCut(t *testing.T) {
	r := build(t)
	r.proof = 200 * time.Millisecond
	r.start()
	client, server := r.pair()
	r.ping(client, server, 10)
	r.must(r.b.Cut())
	received := make(chan int, 1)
	go func() {
		got, total := make([]byte, 1000), 0
		for {
			n, err := server.Read(got)
			for i := range n {
				if got[i] != byte((total+i)%251) {
					err = errors.New("a wrong byte")
				}
			}
			if total += n; err != nil {
				received <- total
				return
			}
		}
	}()
	sent, last, stopped := 0, uint64(0), time.Now()
	for begin := time.Now(); time.Since(begin) < 2*time.Second; time.Sleep(time.Millisecond) {
		message := make([]byte, 10)
		for i := range message {
			message[i] = byte((sent + i) % 251)
		}
		n, err := client.Write(message)
		r.must(err)
		sent += n
		if b := r.found(client).Client.Bytes; b != last {
			last, stopped = b, time.Now()
		}
		if time.Since(stopped) > 500*time.Millisecond {
			break
		}
	}
	if time.Since(stopped) < 500*time.Millisecond {
		t.Errorf("%d of %d bytes pass a way that is cut", last, sent)
	}
	r.must(r.b.Mend())
	r.must(client.CloseWrite())
	if got := <-received; got != sent {
		t.Errorf("%d bytes of %d", got, sent)
	}
	before := r.found(client).Server.Bytes
	for range 20 {
		if _, err := server.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]byte, 120)
	if _, err := io.ReadFull(client, all); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	if _, err := server.Write([]byte("joined again")); err != nil {
		t.Fatal(err)
	}
	if c := r.found(client); !c.Server.Joined || c.Server.Bytes == before || c.Released != NotReleased {
		t.Errorf("the way is open again: %+v", c)
	}
}

// TestTrafficControlReleases: a shaper's limit holds packets only, so joined connections must not bypass it.
func TestTrafficControlReleases(t *testing.T) {
	r, client, server := joined(t)
	r.ping(client, server, 10)
	// A container that starts and stops releases nothing.
	r.must(r.router.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth9"}, PeerName: "veth10"}
		return errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth), netlink.LinkDel(veth))
	}))
	time.Sleep(2 * rulesEvery)
	if s := r.join.Status(); s.Releases != 0 {
		t.Errorf("%+v", s)
	}
	var limit *netlink.Htb
	r.must(r.router.Do(func() error {
		link, err := netlink.LinkByName("bridge")
		if err != nil {
			return err
		}
		limit = netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: 1 << 16, Parent: netlink.HANDLE_ROOT})
		return netlink.QdiscAdd(limit)
	}))
	r.eventually("all connections are released", func() bool { return r.join.Status().Limited != "" })
	r.ping(client, server, 10)
	if c := r.found(client); c.Released != RulesChanged || c.Client.Messages != 10 {
		t.Errorf("%+v", c)
	}
	// A limit that is there before a connection counts, too.
	client, server = r.pair()
	r.ping(client, server, 10)
	if c, ok := r.connection(client); ok {
		t.Errorf("a connection that is limited: %+v", c)
	}
	r.must(r.router.Do(func() error { return netlink.QdiscDel(limit) }))
	r.eventually("there is no limit", func() bool { return r.join.Status().Limited == "" })
	client, server = r.pair()
	r.ping(client, server, 10)
	if c := r.found(client); !c.Client.Joined {
		t.Errorf("%+v", c)
	}
}

func TestAPacedConnectionIsReleased(t *testing.T) {
	r, client, server := joined(t)
	r.ping(client, server, 10)
	const rate = 4 << 20
	control(t, client, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, rate) })
	before := r.found(client).Client.Bytes
	received := make(chan int)
	go func() {
		got, total := make([]byte, 64<<10), 0
		for {
			n, err := server.Read(got)
			total += n
			if err != nil {
				received <- total
				return
			}
		}
	}()
	message := make([]byte, 16<<10)
	begin, sent := time.Now(), 0
	for time.Since(begin) < 1500*time.Millisecond {
		n, err := client.Write(message)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	r.must(client.CloseWrite())
	if got := <-received; got != sent {
		t.Errorf("%d bytes of %d", got, sent)
	}
	got := float64(sent) / time.Since(begin).Seconds()
	t.Logf("%.2f of the rate", got/rate)
	// Only the upper bound is narrow: on a busy machine, a sender that waits for a CPU sends less, but never more.
	if got > 1.05*rate || got < 0.5*rate {
		t.Errorf("%.0f bytes per second, want %d", got, rate)
	}
	if c := r.found(client); c.Client.Bytes != before || c.Released != Paced {
		t.Errorf("%+v", c)
	}
}

func TestReleaseOfSome(t *testing.T) {
	r, client, server := joined(t)
	r.ping(client, server, 10)
	if b := r.join.Bypass(); b[cookie(t, client)] != (connections.Bypass{Sent: 70, Received: 90}) || b[cookie(t, server)] != (connections.Bypass{Sent: 90, Received: 70}) || len(b) != 2 {
		t.Errorf("%+v", b)
	}
	other, end := r.pair()
	r.ping(other, end, 10)
	n, err := r.join.Release(func(c Connection) bool { return c.ID == cookie(t, client) })
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	r.ping(client, server, 10)
	r.ping(other, end, 10)
	if c := r.found(client); c.Released != Ordered || c.Client.Messages != 10 {
		t.Errorf("%+v", c)
	}
	if c := r.found(other); c.Released != NotReleased || c.Client.Messages != 20 {
		t.Errorf("%+v", c)
	}
	if n, err := r.join.Release(func(Connection) bool { return true }); err != nil || n != 1 {
		t.Errorf("the second time: %d, %v", n, err)
	}
}

// TestReleasedSocketsAreGivenBack: the sockets of a released connection leave the map when they have read
// everything, but not while a call waits.
func TestReleasedSocketsAreGivenBack(t *testing.T) {
	r, client, server := joined(t)
	r.ping(client, server, 10)
	r.write(client, []byte("unread"))
	busy, end := r.pair()
	r.ping(busy, end, 10)
	fd := blocking(t, busy)
	read := make(chan string)
	go func() {
		got := make([]byte, 64)
		n, _ := unix.Read(fd, got)
		read <- string(got[:max(n, 0)])
	}()
	time.Sleep(50 * time.Millisecond) // the reader waits; if not yet, the test checks less
	r.join.ReleaseAll("a test")
	r.eventually("the socket that has read everything leaves the map", func() bool { return r.join.Status().Sockets == 3 })
	if _, err := client.Write([]byte(" bytes")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 12)
	for at := 0; at < len(got); {
		n, err := server.Read(got[at:])
		r.must(err)
		at += n
	}
	if string(got) != "unread bytes" {
		t.Errorf("%q", got)
	}
	r.eventually("the other socket leaves the map", func() bool { return r.join.Status().Sockets == 2 })
	if _, err := end.Write([]byte("to the waiting reader")); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "to the waiting reader" {
		t.Errorf("%q", got)
	}
	r.eventually("the sockets of the reader that has waited leave the map", func() bool { return r.join.Status().Sockets == 0 })
	for _, c := range []*net.TCPConn{client, busy} {
		if c := r.found(c); c.Client.Bytes < 70 || c.Released != RulesChanged || c.Client.Joined {
			t.Errorf("%+v", c)
		}
	}
	r.ping(client, server, 10)
}

func TestOnlyNamedPorts(t *testing.T) {
	r := build(t)
	l, other := r.listen(r.b), r.listen(r.b)
	r.start(port(l))
	client, server := r.dial(r.a, l.Addr().String(), l)
	r.ping(client, server, 10)
	if c := r.found(client); !c.Client.Joined {
		t.Errorf("%+v", c)
	}
	client, server = r.dial(r.a, other.Addr().String(), other)
	r.ping(client, server, 10)
	if c, ok := r.connection(client); ok {
		t.Errorf("a connection to another port: %+v", c)
	}
	r.eventually("the socket of the other connection leaves the map", func() bool { return r.join.Status().Sockets == 2 })
	r.ping(client, server, 10)
}

func TestOneNamespaceIsNotJoined(t *testing.T) {
	r := build(t)
	r.start()
	l := r.listen(r.a)
	client, server := r.dial(r.a, l.Addr().String(), l)
	r.ping(client, server, 10)
	if s := r.join.Status(); len(s.Connections) > 0 || s.Sockets > 0 {
		t.Errorf("%+v", s)
	}
}

func TestEntriesWithoutCounters(t *testing.T) {
	for _, six := range []bool{false, true} {
		head, next, counters := 112, 90, 96
		if six {
			head, next, counters = 168, 142, 152
		}
		table := func(count byte, rule byte) []byte {
			var all []byte
			for range 3 {
				e := make([]byte, head+40)
				binary.NativeEndian.PutUint16(e[next:], uint16(len(e)))
				e[counters], e[counters+15], e[head] = count, count, rule
				all = append(all, e...)
			}
			return all
		}
		of := func(b []byte) string {
			withoutCounters(b, six)
			return string(b)
		}
		if of(table(1, 5)) != of(table(2, 5)) {
			t.Errorf("six %v: counters matter", six)
		}
		if of(table(1, 5)) == of(table(1, 6)) {
			t.Errorf("six %v: rules do not matter", six)
		}
	}
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(make([]byte, 400), true)
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		n := len(b)
		withoutCounters(b, six)
		if len(b) != n {
			t.Error("the length changed")
		}
	})
}

// dropForwarded sets the policy of the chain FORWARD of iptables-legacy to DROP, as `iptables -P FORWARD DROP` does,
// in the network namespace of the thread. acceptForwarded sets it to ACCEPT.
func dropForwarded() error   { return setForwarded(-1) } // -NF_DROP - 1
func acceptForwarded() error { return setForwarded(-2) } // -NF_ACCEPT - 1

func setForwarded(verdict int32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	table := &oldTables{socket: fd, level: unix.SOL_IP}
	info := make([]byte, infoSize)
	copy(info, "filter")
	if err := table.get(getInfo, info); err != nil {
		return err
	}
	entries, err := table.entries("filter")
	if err != nil {
		return err
	}
	const (
		forward     = 2   // NF_INET_FORWARD
		underflowAt = 56  // in struct ipt_getinfo: hook_entry is before it
		numberAt    = 76  // its num_entries
		verdictAt   = 144 // in an entry without matches
		setReplace  = 64  // IPT_SO_SET_REPLACE
	)
	policy := binary.NativeEndian.Uint32(info[underflowAt+4*forward:])
	binary.NativeEndian.PutUint32(entries[policy+verdictAt:], uint32(verdict))
	number := binary.NativeEndian.Uint32(info[numberAt:])
	counters := make([]byte, 16*number)
	replace := make([]byte, 0, 96+len(entries)) // struct ipt_replace
	replace = append(replace, info[:36]...)     // name, valid_hooks
	replace = binary.NativeEndian.AppendUint32(replace, number)
	replace = binary.NativeEndian.AppendUint32(replace, uint32(len(entries)))
	replace = append(replace, info[36:76]...) // hook_entry, underflow
	replace = binary.NativeEndian.AppendUint32(replace, number)
	replace = binary.NativeEndian.AppendUint64(replace, uint64(uintptr(unsafe.Pointer(&counters[0]))))
	replace = append(replace, entries...)
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_IP, setReplace, uintptr(unsafe.Pointer(&replace[0])), uintptr(len(replace)), 0)
	runtime.KeepAlive(counters)
	if errno != 0 {
		return fmt.Errorf("replace the table: %w", errno)
	}
	return nil
}

// TestRulesOfIptablesLegacy: the kernel does not announce their changes.
func TestRulesOfIptablesLegacy(t *testing.T) {
	r := build(t)
	// The table exists before, as on a host with Docker.
	r.must(r.router.Do(acceptForwarded))
	r.start()
	client, server := r.pair()
	r.ping(client, server, 10)
	time.Sleep(2 * rulesEvery)
	if s := r.join.Status(); s.Releases != 0 || s.Error != "" {
		t.Fatalf("%+v", s)
	}
	other := r.network.Machines[2]
	r.must(other.Do(dropForwarded)) // in a namespace that does not matter
	time.Sleep(2 * rulesEvery)
	if s := r.join.Status(); s.Releases != 0 {
		t.Errorf("rules of another namespace: %+v", s)
	}
	begin := time.Now()
	r.must(r.router.Do(dropForwarded))
	r.eventually("connections are released", func() bool { return r.join.Status().Releases == 1 })
	if took := time.Since(begin); took > time.Second {
		t.Errorf("released after %v", took)
	}
	// The bridge shows its packets to iptables if br_netfilter is loaded, so whether they pass depends on the machine.
	if _, err := client.Write([]byte("by TCP")); err != nil {
		t.Fatal(err)
	}
	if c := r.found(client); c.Released != RulesChanged || c.Client.Messages != 10 {
		t.Errorf("%+v", c)
	}
}
