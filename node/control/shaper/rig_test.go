package shaper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"penstock/lab/asroot"
	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/rate"
	"penstock/node/control/journal"
)

const (
	mb        = 1e6
	childRole = "PENSTOCK_SHAPER_CHILD"
)

var undo = map[string]journal.Undo{Mechanism: Undo}

// TestMain runs this program as a daemon for the tests of a crash. The daemon shapes connections and waits to
// be killed. The environment variable has the journal's path, a seed and the connections. With a seed other
// than 0, the daemon sets and lifts rates at random, without end.
func TestMain(m *testing.M) {
	if role := strings.Split(os.Getenv(childRole), "\n"); len(role) > 2 {
		fmt.Fprintln(os.Stderr, daemon(role[0], role[1], role[2:]))
		os.Exit(1)
	}
	asroot.Main(m, "Nonsense|OnWire|^Fuzz")
}

func daemon(path, seed string, connections []string) error {
	j, err := journal.Open(path, undo)
	if err != nil {
		return err
	}
	s, err := Open(j)
	if err != nil {
		return err
	}
	var all []Connection
	for _, text := range connections {
		t, err := parseTarget("1 " + text)
		if err != nil {
			return err
		}
		all = append(all, Connection{t.name, t.from, t.to, t.kind == kindIn})
	}
	fmt.Println("begins")
	number, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	for random := rand.New(rand.NewPCG(number, 0)); number != 0; {
		c := all[random.IntN(len(all))]
		if random.IntN(2) == 0 {
			err = s.Set(c, Floor+random.Uint64N(mb), "a test")
		} else {
			err = s.Lift(c)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range all {
		if err := s.Set(c, 5*mb, "a test"); err != nil {
			return err
		}
	}
	fmt.Println("shaped")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// rig has two machines in network namespaces. One of them has a shaper.
type rig struct {
	t      testing.TB
	here   *netns.Machine // the machine with the shaper
	peer   *netns.Machine
	before string // the configuration of here at the beginning
	path   string // of the journal
	j      *journal.Journal
	s      *Shaper
}

// build makes a rig. At the end of the test, it checks that the configuration of the shaper's machine is as
// before.
func build(t testing.TB) *rig {
	t.Helper()
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	network, err := netns.New(book, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, here: network.Machines[0], peer: network.Machines[1], path: t.TempDir() + "/journal"}
	for _, m := range network.Machines {
		if err := m.Do(func() error { return addSixth(m) }); err != nil {
			t.Fatal(err)
		}
	}
	r.before = r.configuration()
	t.Cleanup(r.end)
	return r
}

// sixth returns the IPv6 address of a machine, which ends like its IPv4 address.
func sixth(m *netns.Machine) netip.Addr {
	four := m.Address.As4()
	return netip.AddrFrom16([16]byte{0: 0xfd, 12: four[0], 13: four[1], 14: four[2], 15: four[3]})
}

// addSixth gives the caller's machine its IPv6 address.
func addSixth(m *netns.Machine) error {
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	// No other machine has the address, so the kernel need not look for duplicates.
	return netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: sixth(m).AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD})
}

// open opens the journal and the shaper.
func (r *rig) open() {
	r.t.Helper()
	r.do(func() (err error) {
		if r.j, err = journal.Open(r.path, undo); err != nil {
			return err
		}
		r.s, err = Open(r.j)
		return err
	})
}

func (r *rig) end() {
	if r.s != nil {
		r.s.Close()
		if err := r.here.Do(r.j.Close); err != nil {
			r.t.Error(err)
		}
	}
	r.unchanged("at the end")
}

func (r *rig) unchanged(when string) {
	r.t.Helper()
	if now := r.configuration(); now != r.before {
		r.t.Errorf("%s the machine has\n%s\nbut had\n%s", when, now, r.before)
	}
}

// do calls f on the shaper's machine. It ends the test if f fails.
func (r *rig) do(f func() error) {
	r.t.Helper()
	if err := r.here.Do(f); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) set(c Connection, rate uint64) (err error) {
	r.here.Do(func() error { err = r.s.Set(c, rate, "a test"); return nil })
	return err
}

func (r *rig) lift(c Connection) (err error) {
	r.here.Do(func() error { err = r.s.Lift(c); return nil })
	return err
}

// configuration returns the interfaces of the shaper's machine, and their queueing disciplines and
// filters of incoming packets.
func (r *rig) configuration() string {
	r.t.Helper()
	var all []string
	r.do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			all = append(all, fmt.Sprintf("%s (%s)", link.Attrs().Name, link.Type()))
			qdiscs, err := netlink.QdiscList(link)
			if err != nil {
				return err
			}
			for _, q := range qdiscs {
				all = append(all, fmt.Sprintf("%s has %s %s", link.Attrs().Name, q.Type(), netlink.HandleStr(q.Attrs().Handle)))
				if !isIngress(q) {
					continue
				}
				filters, err := netlink.FilterList(link, ingressParent)
				if err != nil {
					return err
				}
				for _, f := range filters {
					all = append(all, fmt.Sprintf("%s has a filter %d", link.Attrs().Name, f.Attrs().Priority))
				}
			}
		}
		return nil
	})
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// stream is a connection on which as many bytes as possible are sent.
type stream struct {
	from     *net.TCPConn
	shaped   Connection
	arriving *rate.Meter
}

// send connects two machines and sends.
func (r *rig) send(from, to *netns.Machine, address netip.Addr) *stream {
	t := r.t
	t.Helper()
	l, err := to.Listen(t.Context(), netip.AddrPortFrom(address, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := from.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { got.Close() })
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buffer); err != nil {
				return
			}
		}
	}()
	name := "eth0"
	if from == to {
		name = "lo"
	}
	return &stream{c.(*net.TCPConn), Connection{name, port(c.LocalAddr()), port(c.RemoteAddr()), to == r.here && from != to}, rate.New(got)}
}

func port(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// rtt returns the sender's smoothed round trip time.
func (s *stream) rtt(t testing.TB) time.Duration {
	t.Helper()
	raw, err := s.from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if err := errors.Join(raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }), err); err != nil {
		t.Fatal(err)
	}
	return time.Duration(info.Rtt) * time.Microsecond
}

// crash starts a daemon that shapes the connections, and kills the daemon. With the seed 0, it does so when
// all connections are shaped; otherwise it does so after the given time.
func (r *rig) crash(seed uint64, after time.Duration, connections ...Connection) {
	t := r.t
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	role := fmt.Sprintf("%s\n%d", r.path, seed)
	for _, c := range connections {
		role += "\n" + c.String()
	}
	cmd := exec.Command("nsenter", "--net="+r.here.Path(), "--", self)
	cmd.Env = append(os.Environ(), childRole+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	ready := lines.Scan()
	if seed == 0 {
		ready = ready && lines.Scan()
	}
	time.Sleep(after)
	cmd.Process.Kill()
	if err := cmd.Wait(); !ready || cmd.ProcessState.Exited() {
		t.Fatalf("the daemon ended early: %v", err)
	}
}
