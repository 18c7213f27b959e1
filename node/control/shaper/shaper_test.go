package shaper

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"penstock/lab/netns"
	"penstock/node/control/journal"
)

// within reports an error unless the rate got is near want. The machine may be busy, so the bounds are wide.
func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	t.Logf("%s: %.2f MB/s, %+.1f %%", what, got/mb, 100*(got/want-1))
	if got > 1.25*want || got < 0.5*want {
		t.Errorf("%s: %.0f B/s, want about %.0f", what, got, want)
	}
}

// TestRate: a connection's rate changes while data flows, in both directions, with IPv4 and IPv6. Another
// connection of the same interface is not slowed.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to func(*rig) *netns.Machine
		address  func(*rig) netip.Addr
		ingress  bool
	}{
		{"egress, IPv4", here, peer, func(r *rig) netip.Addr { return r.peer.Address }, false},
		{"ingress, IPv4", peer, here, func(r *rig) netip.Addr { return r.here.Address }, true},
		{"egress, loopback", here, here, func(*rig) netip.Addr { return netip.MustParseAddr("127.0.0.1") }, false},
		{"egress, IPv6", here, peer, func(r *rig) netip.Addr { return sixth(r.peer) }, false},
		{"egress, IPv6 on loopback", here, here, func(*rig) netip.Addr { return netip.IPv6Loopback() }, false},
		{"ingress, IPv6", peer, here, func(r *rig) netip.Addr { return sixth(r.here) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := build(t)
			r.open()
			s := r.send(c.from(r), c.to(r), c.address(r))
			if s.shaped.Ingress != c.ingress {
				t.Fatalf("the connection is %v", s.shaped)
			}
			if free := s.arriving.Over(200 * time.Millisecond); free < 80*mb {
				t.Fatalf("the connection moves %.1f MB/s without a rate: too slow to show a rate's effect", free/mb)
			}
			for _, want := range []float64{20 * mb, 5 * mb, 40 * mb} {
				begin := time.Now()
				if err := r.set(s.shaped, uint64(want)); err != nil {
					t.Fatal(err)
				}
				t.Logf("Set took %v", time.Since(begin))
				s.arriving.Over(200 * time.Millisecond)
				within(t, fmt.Sprintf("at %.0f MB/s", want/mb), s.arriving.Over(800*time.Millisecond), want)
				t.Logf("rtt %v", s.rtt(t))
			}
			if rates := r.s.Rates(); len(rates) != 1 || rates[s.shaped] != 40*mb {
				t.Errorf("rates: %v", rates)
			}
			other := r.send(c.from(r), c.to(r), c.address(r))
			if free := other.arriving.Over(500 * time.Millisecond); free < 60*mb {
				t.Errorf("another connection moves %.1f MB/s", free/mb)
			}
			if err := r.lift(s.shaped); err != nil {
				t.Fatal(err)
			}
			r.unchanged("after Lift")
			other.from.Close()
			s.arriving.Over(300 * time.Millisecond)
			if free := s.arriving.Over(500 * time.Millisecond); free < 50*mb {
				t.Errorf("after Lift the connection moves %.1f MB/s", free/mb)
			}
			if len(r.j.Changes()) != 0 || len(r.s.Rates()) != 0 {
				t.Errorf("after Lift: %+v, %v", r.j.Changes(), r.s.Rates())
			}
		})
	}
}

func here(r *rig) *netns.Machine { return r.here }
func peer(r *rig) *netns.Machine { return r.peer }

// connection returns a connection that need not exist.
func connection(name string, ingress bool, port int) Connection {
	return Connection{name, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, 1}), uint16(port)),
		netip.MustParseAddrPort("198.18.0.2:9866"), ingress}
}

// TestKilled: a killed daemon leaves its queueing disciplines behind, and the next daemon removes them.
func TestKilled(t *testing.T) {
	r := build(t)
	r.crash(0, 0, connection("eth0", false, 1), connection("eth0", false, 2), connection("eth0", true, 3), connection("lo", false, 4))
	now := r.configuration()
	for _, want := range []string{"eth0 has htb 5053:0", "lo has htb 5053:0", "eth0 has ingress", "(ifb)", "eth0 has a filter 1"} {
		if !strings.Contains(now, want) {
			t.Fatalf("after the daemon's end there is no %q in\n%s", want, now)
		}
	}
	r.open()
	r.unchanged("after the next daemon's start")
	restored := r.j.Restored()
	for _, c := range restored {
		if c.Err != nil {
			t.Errorf("%+v", c)
		}
	}
	if len(restored) != 8 { // 4 classes, 2 roots, the device and the incoming packets' discipline
		t.Errorf("restored: %+v", restored)
	}
}

// TestKilledAtAnyMoment: at whatever moment a daemon is killed, the next one removes all that it has left.
func TestKilledAtAnyMoment(t *testing.T) {
	r := build(t)
	restored := 0
	for seed := uint64(1); seed <= 15; seed++ {
		after := time.Duration(rand.New(rand.NewPCG(seed, 1)).Uint64N(uint64(30 * time.Millisecond)))
		r.crash(seed, after, connection("eth0", false, 1), connection("eth0", false, 2), connection("eth0", true, 3), connection("eth0", true, 4), connection("lo", false, 5))
		r.do(func() error {
			j, err := journal.Open(r.path, undo)
			if err != nil {
				return err
			}
			for _, c := range j.Restored() {
				restored++
				if c.Err != nil {
					t.Errorf("seed %d: %+v", seed, c)
				}
			}
			return j.Close()
		})
		r.unchanged(fmt.Sprintf("seed %d: after the next daemon's start", seed))
	}
	t.Logf("%d changes were put back", restored)
	if restored == 0 {
		t.Error("no daemon was killed while a change was in force")
	}
}

// TestTheJournalIsLost: without its journal, a discipline that an earlier daemon has left is recognised and
// replaced. It is not mistaken for one of an operator.
func TestTheJournalIsLost(t *testing.T) {
	r := build(t)
	r.crash(0, 0, connection("eth0", false, 1), connection("eth0", true, 2))
	r.path += "-another"
	r.open()
	for _, ingress := range []bool{false, true} {
		if err := r.set(connection("eth0", ingress, 3), Floor); err != nil {
			t.Error(err)
		}
		if err := r.lift(connection("eth0", ingress, 3)); err != nil {
			t.Error(err)
		}
	}
	r.unchanged("after Lift")
}

// TestOperators: Set refuses an interface whose queueing discipline somebody else has set, and leaves it as
// it is.
func TestOperators(t *testing.T) {
	r := build(t)
	r.open()
	refuse := func(what string, c Connection, want string) {
		t.Helper()
		before := r.configuration()
		if err := r.set(c, Floor); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ... %s", what, err, want)
		}
		if now := r.configuration(); now != before || len(r.j.Changes()) != 0 {
			t.Errorf("%s was changed to\n%s\nfrom\n%s\n%+v", what, now, before, r.j.Changes())
		}
	}
	var eth0 netlink.Link
	r.do(func() (err error) { eth0, err = netlink.LinkByName("eth0"); return err })
	index := eth0.Attrs().Index
	root := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	for _, q := range []netlink.Qdisc{
		netlink.NewHtb(root), &netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "pfifo"}, &netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "bfifo"},
	} {
		r.do(func() error { return netlink.QdiscAdd(q) })
		refuse(q.Type(), connection("eth0", false, 1), q.Type()+" 1:0, which is not the kernel's default")
		r.do(func() error { return netlink.QdiscDel(q) })
	}
	r.do(func() error { return netlink.QdiscAdd(ingress(index)) })
	refuse("incoming packets", connection("eth0", true, 1), "has a queueing discipline for incoming packets")
	r.do(func() error { return netlink.QdiscDel(ingress(index)) })

	a := netlink.NewLinkAttrs()
	a.Name = deviceName(index)
	r.do(func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}) })
	refuse("a device with our name", connection("eth0", true, 1), "was made by somebody else")
	r.do(func() error { return netlink.LinkDel(&netlink.Bridge{LinkAttrs: a}) })
	r.do(func() error { return netlink.LinkAdd(&netlink.Ifb{LinkAttrs: a}) })
	refuse("a device of our kind with our name", connection("eth0", true, 1), "was made by somebody else")
	r.do(func() error { return netlink.LinkDel(&netlink.Ifb{LinkAttrs: a}) })
	refuse("incoming packets of loopback", connection("lo", true, 1), "loopback")
	refuse("no interface", connection("eth9", false, 1), "eth9")
	refuse("no interface", connection("", false, 1), "not described")
	mixed := connection("eth0", false, 1)
	mixed.To = netip.MustParseAddrPort("[::1]:1")
	refuse("two kinds of addresses", mixed, "not described")
	r.unchanged("after the refusals")
}

// TestReplaced: somebody replaces our discipline. The connections are no longer held, and the present
// discipline stays.
func TestReplaced(t *testing.T) {
	r := build(t)
	r.open()
	out, in := connection("eth0", false, 1), connection("eth0", true, 2)
	for _, c := range []Connection{out, in} {
		if err := r.set(c, Floor); err != nil {
			t.Fatal(err)
		}
	}
	changes := r.j.Changes()
	var index int
	r.do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		index = eth0.Attrs().Index
		if err := netlink.QdiscDel(htb(index)); err != nil {
			return err
		}
		theirs := htb(index)
		theirs.Handle = netlink.MakeHandle(1, 0)
		if err := netlink.QdiscAdd(theirs); err != nil {
			return err
		}
		// A filter of somebody else in the ingress that we made.
		f := filters(100, out.From, out.To)[0]
		f.LinkIndex, f.Parent, f.ClassId = index, ingressParent, netlink.MakeHandle(0xffff, 1)
		return netlink.FilterAdd(f)
	})
	if err := r.set(out, 2*Floor); err == nil || !strings.Contains(err.Error(), "replaced or deleted by somebody else") {
		t.Errorf("Set: %v", err)
	}
	if err := r.set(out, 2*Floor); err == nil || !strings.Contains(err.Error(), "not the kernel's default") {
		t.Errorf("Set again: %v", err)
	}
	if err := r.lift(out); err != nil {
		t.Error(err)
	}
	if err := r.lift(in); err != nil {
		t.Error(err)
	}
	if len(r.j.Changes()) != 0 || len(r.s.Rates()) != 0 {
		t.Errorf("after Lift: %+v, %v", r.j.Changes(), r.s.Rates())
	}
	// A further Undo of all changes does nothing.
	for _, c := range slices.Backward(changes) {
		r.do(func() error { return Undo(c) })
	}
	now := r.configuration()
	for _, want := range []string{"eth0 has htb 1:0", "eth0 has ingress", "eth0 has a filter 100"} {
		if !strings.Contains(now, want) {
			t.Errorf("somebody else's %q is gone; there is\n%s", want, now)
		}
	}
	if strings.Contains(now, "penstock") || strings.Contains(now, "5053") || strings.Contains(now, "eth0 has a filter 1\n") {
		t.Errorf("ours is left:\n%s", now)
	}
	r.do(func() error {
		theirs := htb(index)
		theirs.Handle = netlink.MakeHandle(1, 0)
		return errors.Join(netlink.QdiscDel(theirs), netlink.QdiscDel(ingress(index)))
	})
}

// TestTheInterfaceIsGone: when an interface is deleted, its disciplines are deleted with it, and the shaper
// deletes the IFB device.
func TestTheInterfaceIsGone(t *testing.T) {
	r := build(t)
	r.open()
	a := netlink.NewLinkAttrs()
	a.Name = "another"
	r.do(func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}) })
	for _, ingress := range []bool{false, true} {
		if err := r.set(connection("another", ingress, 1), Floor); err != nil {
			t.Fatal(err)
		}
	}
	r.do(func() error { return netlink.LinkDel(&netlink.Bridge{LinkAttrs: a}) })
	for _, ingress := range []bool{false, true} {
		if err := r.set(connection("another", ingress, 1), 2*Floor); err == nil {
			t.Error("Set on an interface that is gone: no error")
		}
	}
	if len(r.j.Changes()) != 0 || len(r.s.Rates()) != 0 {
		t.Errorf("in force: %+v, %v", r.j.Changes(), r.s.Rates())
	}
	r.unchanged("after the interface's end")
}

func TestBounds(t *testing.T) {
	r := build(t)
	r.open()
	for rate, want := range map[uint64]string{0: "too low", Floor - 1: "too low", Floor: "", Ceiling: "", Ceiling + 1: "too high"} {
		err := r.set(connection("eth0", false, 1), rate)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("rate %d: %v, want %q", rate, err, want)
		}
	}
	for i := range MaxConnections {
		if err := r.set(connection("eth0", false, i+1), Floor); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.set(connection("eth0", false, MaxConnections+1), Floor); err == nil || !strings.Contains(err.Error(), "which is the limit") {
		t.Errorf("over the limit: %v", err)
	}
	if err := r.lift(connection("eth0", false, 7)); err != nil {
		t.Fatal(err)
	}
	if err := r.set(connection("eth0", false, MaxConnections+1), Floor); err != nil {
		t.Errorf("after Lift: %v", err)
	}
	if n := len(r.s.Rates()); n != MaxConnections {
		t.Errorf("%d connections are held, want %d", n, MaxConnections)
	}
}

func TestFind(t *testing.T) {
	r := build(t)
	r.open()
	at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 1) }
	for _, c := range []struct {
		from, to netip.Addr
		name     string
		ingress  bool
	}{
		{r.here.Address, r.peer.Address, "eth0", false},
		{r.peer.Address, r.here.Address, "eth0", true},
		{netip.AddrFrom16(r.here.Address.As16()), netip.AddrFrom16(r.peer.Address.As16()), "eth0", false},
		{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1"), "lo", false},
		{netip.IPv6Loopback(), netip.IPv6Loopback(), "lo", false},
	} {
		got, err := r.s.Find(at(c.from), at(c.to))
		if want := (Connection{c.name, at(c.from.Unmap()), at(c.to.Unmap()), c.ingress}); err != nil || got != want {
			t.Errorf("%v to %v: %+v, %v, want %+v", c.from, c.to, got, err, want)
		}
	}
	if got, err := r.s.Find(at(r.here.Address), at(netip.MustParseAddr("192.0.2.1"))); err == nil {
		t.Errorf("an address without a route: %+v", got)
	}
}

func TestAvailable(t *testing.T) {
	if err := Available(); err != nil {
		t.Error(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends without its capabilities
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&header, &sets[0])
		sets[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		if err := errors.Join(err, unix.Capset(&header, &sets[0])); err != nil {
			done <- err
			return
		}
		done <- try()
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
		t.Errorf("without the capability: %v", err)
	}
}

func TestUndoOfNonsense(t *testing.T) {
	for _, c := range []journal.Change{
		{Target: "eth0"}, {Target: "0 eth0 root"}, {Target: "1 lo nothing"}, {Target: "1 lo root 127.0.0.1:1>127.0.0.1:2"},
		{Target: "1 lo egress"}, {Target: "1 lo egress 127.0.0.1:1>[::1]:2"}, {Target: "1  lo root"},
		{Target: "1 lo egress 127.0.0.1:1>127.0.0.1:2", After: "class 0, 1 B/s"},
		{Target: "1 lo egress 127.0.0.1:1>127.0.0.1:2", After: "class 65, 1 B/s"},
		{Target: "1 lo egress 127.0.0.1:1>127.0.0.1:2", After: "much"},
	} {
		if err := Undo(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestOnWire(t *testing.T) {
	four, six := netip.MustParseAddr("10.0.0.1"), netip.IPv6Loopback()
	// 1,448 bytes of payload are 1,514 bytes of an Ethernet packet.
	if got := onWire(1448, 1500, four); got != 1514 {
		t.Errorf("%d bytes, want 1514", got)
	}
	if got := onWire(1428, 1500, six); got != 1514 {
		t.Errorf("%d bytes, want 1514", got)
	}
	if got := onWire(1448, 0, four); got != 1448 { // an interface without packets
		t.Errorf("%d bytes, want 1448", got)
	}
	if got := onWire(Ceiling, 1500, six); got > 1<<32-1 {
		t.Errorf("the ceiling has %d bytes per second on the wire, which HTB does not know", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"1 lo root", "2 eth0 ifb", "3 e#h incoming", "4 eth0 egress 10.0.0.1:1>10.0.0.2:2",
		"4 eth0 ingress [::1]:1>[fe80::1]:2", "", "4 eth0 egress 10.0.0.1:1>[::1]:2", "-1 lo root"} {
		f.Add(text, "class 1, 65536 B/s")
	}
	f.Add("", "class 65, 1 B/s")
	f.Fuzz(func(t *testing.T, text, value string) {
		if made, err := parseTarget(text); err == nil && (made.String() != text || made.index <= 0) {
			t.Errorf("%q was parsed as %v", text, made)
		}
		if minor, err := parseMinor(value); err == nil && (minor == 0 || minor > MaxConnections) {
			t.Errorf("%q was parsed as class %d", value, minor)
		}
	})
}
