package pacing

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/rate"
	"penstock/node/control/journal"
	"penstock/node/monitor/connections"
	"penstock/node/monitor/processes"
)

const mb = 1e6

// within reports an error unless the rate got is near want. Only the upper bound is narrow: on a busy
// machine, a sender that waits for a CPU sends less, but never more.
func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	t.Logf("%s: %.2f MB/s, %+.1f %%", what, got/mb, 100*(got/want-1))
	if got > 1.15*want || got < 0.5*want {
		t.Errorf("%s: %.0f B/s, want about %.0f", what, got, want)
	}
}

// held paces a stream at several rates while data flows.
func held(t *testing.T, s *stream) {
	t.Helper()
	j, p := opened(t)
	s.tell(t, "go")
	arriving := rate.New(s.got)
	free := arriving.Over(200 * time.Millisecond)
	t.Logf("free: %.1f MB/s", free/mb)
	if free < 60*mb {
		t.Fatalf("the connection moves %.1f MB/s without a rate: too slow to show a rate's effect", free/mb)
	}
	for _, r := range []float64{20 * mb, 5 * mb, 40 * mb} {
		begin := time.Now()
		if err := p.Set(s.socket, uint64(r), "a test"); err != nil {
			t.Fatal(err)
		}
		t.Logf("Set took %v", time.Since(begin))
		if now, _ := s.pacing(t); now != uint64(r) {
			t.Errorf("the socket's rate is %d, want %.0f", now, r)
		}
		arriving.Over(100 * time.Millisecond) // what was in flight, and the present burst
		within(t, fmt.Sprintf("at %.0f MB/s", r/mb), arriving.Over(700*time.Millisecond), r)
	}
	if changes := j.Changes(); len(changes) != 1 || changes[0].Before != strconv.FormatUint(Unlimited, 10) || changes[0].After != "40000000" {
		t.Errorf("changes in force: %+v", changes)
	}
	if err := p.Lift(s.socket); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.pacing(t); now != Unlimited {
		t.Errorf("after Lift the socket's rate is %d", now)
	}
	if after := arriving.Over(500 * time.Millisecond); after < 45*mb {
		t.Errorf("after Lift the connection moves %.1f MB/s, and %.1f MB/s before the first rate", after/mb, free/mb)
	}
	if len(j.Changes()) != 0 || len(p.Rates()) != 0 {
		t.Errorf("after Lift: %+v, %v", j.Changes(), p.Rates())
	}
}

func TestRateOnLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) { held(t, connect(t, listen(t, address))) })
	}
}

// connectMachines starts a child on one machine that is connected to another machine.
func connectMachines(t testing.TB) *stream {
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
	server, client := network.Machines[0], network.Machines[1]
	l, err := server.Listen(t.Context(), server.Address.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return connect(t, l, "nsenter", "--net="+client.Path(), "--")
}

func TestRateBetweenNamespaces(t *testing.T) { held(t, connectMachines(t)) }

func TestTheSenderIsPaced(t *testing.T) {
	server, client := netip.MustParseAddrPort("10.0.0.1:9866"), netip.MustParseAddrPort("10.0.0.2:4000")
	ends := connections.Ends{Server: server, Client: client}
	if local, remote := Sender(ends, false); local != server || remote != client {
		t.Errorf("a reader's sender is %v to %v", local, remote)
	}
	if local, remote := Sender(ends, true); local != client || remote != server {
		t.Errorf("a writer's sender is %v to %v", local, remote)
	}
}

// TestKilled: a killed daemon leaves a rate behind, and the next daemon puts the value before back.
func TestKilled(t *testing.T) {
	s := connect(t, listen(t, "127.0.0.1:0"))
	path := t.TempDir() + "/journal"
	daemon := start(t, fmt.Sprintf("pace %s %v %d", path, target{s.socket.normal(), 1}, 3_000_000))
	if now, _ := s.pacing(t); now != 3_000_000 {
		t.Fatalf("the rate is %d", now)
	}
	if _, err := journal.Open(path, map[string]journal.Undo{Mechanism: Undo}); !errors.Is(err, journal.ErrInUse) {
		t.Fatalf("while the daemon lives: %v", err)
	}
	daemon.kill()
	if now, _ := s.pacing(t); now != 3_000_000 {
		t.Fatalf("after the daemon's end the rate is %d", now)
	}
	j, err := journal.Open(path, map[string]journal.Undo{Mechanism: Undo})
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := s.pacing(t); now != Unlimited {
		t.Errorf("after the next daemon's start the rate is %d", now)
	}
	if r := j.Restored(); len(r) != 1 || r[0].Err != nil {
		t.Errorf("restored: %+v", r)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestKilledAtAnyMoment: at whatever moment a daemon is killed, the next one puts the value before back.
func TestKilledAtAnyMoment(t *testing.T) {
	s := connect(t, listen(t, "127.0.0.1:0"))
	path := t.TempDir() + "/journal"
	random := rand.New(rand.NewPCG(1, 1))
	left := 0
	for range 30 {
		daemon := start(t, fmt.Sprintf("pace %s %v %d", path, target{s.socket.normal(), 1}, 3_000_001))
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Millisecond))))
		daemon.kill()
		if daemon.cmd.ProcessState.Exited() {
			t.Fatal("the daemon ended early")
		}
		if now, _ := s.pacing(t); now != Unlimited {
			left++
		}
		j, err := journal.Open(path, map[string]journal.Undo{Mechanism: Undo})
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := s.pacing(t); now != Unlimited {
			t.Errorf("after the next daemon's start the rate is %d", now)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("30 kills have left %d rates, which were put back", left)
	if left == 0 {
		t.Error("no daemon was killed while its rate was in force")
	}
}

// TestRefused: Set changes nothing if the socket is not the connection that the caller describes.
func TestRefused(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	s := connect(t, l)
	_, p := opened(t)
	refuse := func(what string, socket Socket, rate uint64, want string) {
		t.Helper()
		err := p.Set(socket, rate, "a test")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ... %s", what, err, want)
		}
		if now, _ := s.pacing(t); now != Unlimited {
			t.Fatalf("%s: the rate is %d", what, now)
		}
	}
	change := func(f func(*Socket)) Socket {
		socket := s.socket
		f(&socket)
		return socket
	}
	refuse("rate 0", s.socket, 0, "too low")
	refuse("below the floor", s.socket, Floor-1, "too low")
	refuse("above the ceiling", s.socket, Ceiling+1, "too high")
	refuse("no limit", s.socket, math.MaxUint64, "too high")
	for _, forget := range []func(*Socket){
		func(s *Socket) { s.PID = 0 }, func(s *Socket) { s.Start = 0 }, func(s *Socket) { s.Inode = 0 },
		func(s *Socket) { s.Local = netip.AddrPort{} }, func(s *Socket) { s.Remote = netip.AddrPort{} },
	} {
		refuse("incomplete", change(forget), Floor, "not described")
	}
	refuse("another process", change(func(s *Socket) { s.PID = os.Getppid() }), Floor, "another process now")
	refuse("a used pid", change(func(s *Socket) { s.Start++ }), Floor, "another process now")
	refuse("another inode", change(func(s *Socket) { s.Inode++ }), Floor, "no socket with the inode")
	refuse("other addresses", change(func(s *Socket) { s.Remote, s.Local = s.Local, s.Remote }), Floor, "connects")
	self, err := processes.StartOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	refuse("the wrong process", change(func(s *Socket) { s.PID, s.Start = os.Getpid(), self }), Floor, "no socket with the inode")

	// Sockets of this process that are no connections of TCP.
	for name, made := range map[string]func() (int, error){
		"UDP": func() (int, error) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return fd, errors.Join(err, unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}))
		},
		"Unix": func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) },
		"listening": func() (int, error) {
			file, err := l.(*net.TCPListener).File()
			if err != nil {
				return 0, err
			}
			defer file.Close()
			return unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		},
	} {
		fd, err := made()
		if err != nil {
			t.Fatal(name, err)
		}
		inode, err := inodeOf(os.Getpid(), fd)
		if err != nil || inode == 0 {
			t.Fatalf("%s: inode %d, %v", name, inode, err)
		}
		socket := change(func(s *Socket) { s.PID, s.Start, s.Inode = os.Getpid(), self, inode })
		refuse(name, socket, Floor, "not a connection of TCP")
		unix.Close(fd)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	inode, err := inodeOf(os.Getpid(), fd)
	if err != nil {
		t.Fatal(err)
	}
	refuse("not connected", change(func(s *Socket) { s.PID, s.Start, s.Inode = os.Getpid(), self, inode }), Floor, "not connected")

	s.kill()
	err = p.Set(s.socket, Floor, "a test")
	if !errors.Is(err, errGone) {
		t.Errorf("an ended process: %v", err)
	}
	if _, err := Find(s.cmd.Process.Pid, s.socket.Local, s.socket.Remote); !errors.Is(err, errGone) {
		t.Errorf("Find in an ended process: %v", err)
	}
}

// TestBounds: rates at the bounds are set.
func TestBounds(t *testing.T) {
	s := connect(t, listen(t, "127.0.0.1:0"))
	_, p := opened(t)
	for _, rate := range []uint64{Floor, Ceiling} {
		if err := p.Set(s.socket, rate, "a test"); err != nil {
			t.Error(err)
		}
		if now, _ := s.pacing(t); now != rate {
			t.Errorf("the rate is %d, want %d", now, rate)
		}
	}
	// One socket more than the limit is refused, until a socket is gone.
	p.mu.Lock()
	for i := len(p.paced); i < maxSockets; i++ {
		other := s.socket.normal()
		other.Remote = netip.AddrPortFrom(other.Remote.Addr(), uint16(i))
		p.paced[other] = &paced{target: target{other, 0}, number: unknownNumber}
	}
	p.mu.Unlock()
	l := listen(t, "127.0.0.1:0")
	if err := p.Set(connect(t, l).socket, Floor, "a test"); !errors.Is(err, ErrFull) {
		t.Errorf("over the limit: %v", err)
	}
	s.kill()
	if err := p.Set(connect(t, l).socket, Floor, "a test"); err != nil {
		t.Errorf("after the end of the paced sockets: %v", err)
	}
	if len(p.Rates()) != 1 {
		t.Errorf("%d rates, want 1", len(p.Rates()))
	}
}

// TestReplaced: the process puts another connection in the place of the paced one.
func TestReplaced(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	s := connect(t, l)
	j, p := opened(t)
	if err := p.Set(s.socket, 1_000_000, "a test"); err != nil {
		t.Fatal(err)
	}
	change, number := j.Changes()[0], p.paced[s.socket.normal()].number
	s.tell(t, "swap")
	s.accept(t, l)
	pidfd, err := pidfdOpen(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if _, err := take(pidfd, number, s.socket); !errors.Is(err, errGone) || !strings.Contains(err.Error(), "another file now") {
		t.Errorf("the descriptor of the replaced socket: %v", err)
	}
	if err := p.Set(s.socket, 2_000_000, "a test"); !errors.Is(err, errGone) {
		t.Errorf("Set: %v", err)
	}
	old := s.socket
	if s.socket, err = Find(s.cmd.Process.Pid, port(s.got.RemoteAddr()), port(s.got.LocalAddr())); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.pacing(t); now != Unlimited {
		t.Errorf("the new connection's rate is %d", now)
	}
	// Undo of the old one has nothing to do, and does not touch the new one.
	if err := Undo(change); err != nil {
		t.Error(err)
	}
	if err := p.Sweep(); err != nil || len(p.Rates()) != 0 || len(j.Changes()) != 0 {
		t.Errorf("after Sweep: %v, %v, %+v", err, p.Rates(), j.Changes())
	}
	if err := p.Lift(old); err != nil {
		t.Error(err)
	}
	if err := p.Set(s.socket, 3_000_000, "a test"); err != nil {
		t.Error(err)
	}
}

// TestTheProcessSetsARate: a rate that the process itself sets is not lost.
func TestTheProcessSetsARate(t *testing.T) {
	s := connect(t, listen(t, "127.0.0.1:0"))
	j, p := opened(t)
	byItself := func(rate uint64) {
		t.Helper()
		d, err := duplicate(s.socket, unknownNumber)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		if err := d.setRate(rate); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want uint64) {
		t.Helper()
		if now, _ := s.pacing(t); now != want {
			t.Errorf("%s: the rate is %d, want %d", what, now, want)
		}
	}
	set := func(rate uint64) {
		t.Helper()
		if err := p.Set(s.socket, rate, "a test"); err != nil {
			t.Fatal(err)
		}
	}
	byItself(5_000_000)
	set(8_000_000)
	expect("a higher rate", 5_000_000)
	set(2_000_000)
	expect("a lower rate", 2_000_000)
	set(8_000_000)
	expect("a higher rate later", 5_000_000)
	set(1_000_000)
	byItself(4_000_000) // the process sets another rate
	first := j.Changes()[0]
	if err := Undo(first); err != nil {
		t.Error(err)
	}
	expect("Undo of a change that was overwritten", 4_000_000)
	set(3_000_000)
	expect("the next rate", 3_000_000)
	for range 2 {
		if err := Undo(j.Changes()[0]); err != nil {
			t.Error(err)
		}
		expect("Undo", 4_000_000)
	}
}

// TestUndoWhenGone: Undo does nothing when the process or the socket no longer exists.
func TestUndoWhenGone(t *testing.T) {
	s := connect(t, listen(t, "127.0.0.1:0"))
	j, p := opened(t)
	if err := p.Set(s.socket, 1_000_000, "a test"); err != nil {
		t.Fatal(err)
	}
	change := j.Changes()[0]
	for _, other := range []func(*target){func(t *target) { t.Start++ }, func(t *target) { t.Inode++ }, func(t *target) { t.cookie++ }} {
		c := change
		made, err := parseTarget(c.Target)
		if err != nil {
			t.Fatal(err)
		}
		other(&made)
		c.Target = made.String()
		if err := Undo(c); err != nil {
			t.Errorf("%s: %v", c.Target, err)
		}
		if now, _ := s.pacing(t); now != 1_000_000 {
			t.Errorf("%s: the rate is %d", c.Target, now)
		}
	}
	s.kill()
	if err := Undo(change); err != nil {
		t.Error(err)
	}
	for _, bad := range []journal.Change{
		{Target: "eth0", Before: change.Before, After: change.After},
		{Target: change.Target, Before: "much", After: change.After},
		{Target: change.Target, Before: change.Before, After: "-1"},
	} {
		if err := Undo(bad); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// withoutPtrace calls f on a thread that lacks CAP_SYS_PTRACE. The thread ends with f.
func withoutPtrace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&header, &sets[0])
		sets[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
		sets[0].Permitted &^= 1 << unix.CAP_SYS_PTRACE
		if err := errors.Join(err, unix.Capset(&header, &sets[0])); err != nil {
			done <- err
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAvailable(t *testing.T) {
	if err := Available(); err != nil {
		t.Error(err)
	}
	s := connect(t, listen(t, "127.0.0.1:0"))
	j, p := opened(t)
	if err := p.Set(s.socket, Floor, "a test"); err != nil {
		t.Fatal(err)
	}
	withoutPtrace(t, func() {
		if err := Available(); err == nil || !strings.Contains(err.Error(), "CAP_SYS_PTRACE is missing") {
			t.Errorf("without the capability: %v", err)
		}
		if err := p.Set(s.socket, 2*Floor, "a test"); !errors.Is(err, errRights) {
			t.Errorf("Set without the capability: %v", err)
		}
		if err := Undo(j.Changes()[0]); !errors.Is(err, errRights) {
			t.Errorf("Undo without the capability, which must not count as done: %v", err)
		}
	})
	for text, want := range map[string]error{"0\n": nil, "1\n": nil, "2\n": nil, "3\n": errYama} {
		scope := filepath.Join(t.TempDir(), "scope")
		if err := os.WriteFile(scope, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := available(scope); !errors.Is(err, want) {
			t.Errorf("ptrace_scope %q: %v", text, err)
		}
	}
}

func TestSocketInode(t *testing.T) {
	for link, want := range map[string]uint64{
		"socket:[123]": 123, "socket:[18446744073709551615]": math.MaxUint64, "socket:[18446744073709551616]": 0,
		"pipe:[123]": 0, "socket:[123": 0, "socket:[-1]": 0, "/tmp/socket:[1]": 0, "": 0,
	} {
		if got := socketInode(link); got != want {
			t.Errorf("%q: %d, want %d", link, got, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{
		"127.0.0.1:1>127.0.0.1:2 pid=3 start=4 inode=5 cookie=6", "[::1]:1>[fe80::1]:2 pid=3 start=4 inode=5 cookie=18446744073709551615",
		"127.0.0.1:1>127.0.0.1:2 pid=-3 start=4 inode=5 cookie=6", "x", "", "127.0.0.1:1> pid=3 start=4 inode=5 cookie=6",
		"[fe80::1%eth0 pid]:1>127.0.0.1:2 pid=3 start=4 inode=5 cookie=6",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		made, err := parseTarget(text)
		if err != nil {
			return
		}
		if made.String() != text || made.PID <= 0 {
			t.Errorf("%q was parsed as %v", text, made)
		}
	})
}
