package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/identity"
	"penstock/node/monitor/connections"
	"penstock/wire"
)

// otherUser is a user without a name.
const otherUser = 54321

// loopback is a server on a real loopback port. The kernel's data about its peers are real.
type loopback struct {
	*Server
	t       *testing.T
	address string
	log     syncBuffer
}

func newLoopback(t *testing.T, b Bounds) *loopback {
	t.Helper()
	s := prepareLoopback(t, b)
	s.serve(s.listen())
	return s
}

func prepareLoopback(t *testing.T, b Bounds) *loopback {
	s := &loopback{t: t}
	checker := identity.New(identity.Settings{Mode: identity.Trust})
	t.Cleanup(checker.Close)
	s.Server = &Server{Opener: &daemon{alive: 1}, Bounds: b, Log: slog.New(slog.NewTextHandler(&s.log, nil)), Holder: checker.Holder}
	s.Allow = func(uid uint32, role wire.Role) bool {
		return uid == uint32(os.Getuid()) || uid == otherUser && !Serves(role)
	}
	return s
}

func (s *loopback) listen() *net.TCPListener {
	s.t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = l.Addr().String()
	return l
}

func (s *loopback) serve(l *net.TCPListener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.ServeLoopback(ctx, l) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *loopback) connect() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// enter connects and sends a hello; in is false if no welcome arrives.
func (s *loopback) enter(h wire.Hello) (c net.Conn, in bool) {
	s.t.Helper()
	c = s.connect()
	if _, err := c.Write(frames(s.t, h)); err != nil {
		return c, false
	}
	_, err := wire.NewReader(c).Next()
	return c, err == nil
}

func TestAnAgentByLoopback(t *testing.T) {
	s := newLoopback(t, Bounds{})
	c, in := s.enter(hello)
	if !in {
		t.Fatalf("no welcome\n%s", s.log.String())
	}
	all := s.Agents()
	if len(all) != 1 || all[0].PID != int32(os.Getpid()) || all[0].UID != uint32(os.Getuid()) || !all[0].Loopback ||
		all[0].Container != fmt.Sprintf("process %d", os.Getpid()) {
		t.Fatalf("%+v", all)
	}
	// The connection is one like any other.
	if _, err := c.Write(frames(t, wire.Open{Stream: 1, Direction: wire.Read, Flow: "a", Path: "/x/b", To: 9})); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, c, 1)
	c.Close()
	eventually(t, "the end", func() bool { return len(s.Agents()) == 0 })
}

// A process that gives the number of another process is not taken for it.
func TestAForgedNumber(t *testing.T) {
	s := newLoopback(t, Bounds{})
	forged := hello
	for i, pid := range []uint32{uint32(os.Getppid()), 1, 0, 1 << 31, uint32(os.Getpid()) + 1<<22} {
		forged.PID = pid
		c, in := s.enter(forged)
		if in {
			t.Fatalf("let in as process %d", pid)
		}
		ended(t, c)
		eventually(t, "the count", func() bool { return s.Stats.NoProcess.Load() == int64(i+1) && s.Stats.Refused.Load() == int64(i+1) })
	}
	if n := len(s.Agents()); n != 0 {
		t.Errorf("%d agents", n)
	}
}

// agentByLoopback is a child process: it sends a hello, prints its number, and stays connected until its
// input ends.
func agentByLoopback(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	h := task
	h.PID = uint32(os.Getpid())
	b, err := wire.Append(nil, h)
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = wire.NewReader(c).Next()
	fmt.Println(os.Getpid(), err == nil)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// letsOtherIn connects as another user, which only root can do, and fails the test if that user is kept out.
func (s *loopback) letsOtherIn(why string) {
	s.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	if _, _, in := startAgent(s.t, s.address, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}); !in {
		s.t.Errorf("another user was kept out by %s\n%s", why, s.log.String())
	}
}

// startAgent starts a child process and returns its number, the one that it gives itself, and whether it
// was let in.
func startAgent(t *testing.T, address string, attr *syscall.SysProcAttr) (pid, says int, in bool) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // also for a user who may not enter the folder of the binary
	cmd.Env = []string{childOf + "=" + address, childState + "=agent"}
	cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	if _, err := fmt.Fscan(out, &says, &in); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, says, in
}

func TestOtherProcessesAndUsers(t *testing.T) {
	s := newLoopback(t, Bounds{})
	want := map[int32]uint32{}
	for _, c := range []struct {
		uid   uint32
		flags uintptr
		in    bool
	}{
		{uint32(os.Getuid()), 0, true},
		{uint32(os.Getuid()), syscall.CLONE_NEWPID, true},
		{otherUser, 0, true},
		{otherUser, syscall.CLONE_NEWPID, true},
		{otherUser + 1, 0, false},
	} {
		if os.Getuid() != 0 && (c.uid != uint32(os.Getuid()) || c.flags != 0) {
			continue // only root can start such a process
		}
		attr := &syscall.SysProcAttr{Cloneflags: c.flags}
		if c.uid != uint32(os.Getuid()) {
			attr.Credential = &syscall.Credential{Uid: c.uid, Gid: c.uid}
		}
		pid, says, in := startAgent(t, s.address, attr)
		if in != c.in {
			t.Fatalf("user %d, process %d (%d): let in: %v\n%s", c.uid, pid, says, in, s.log.String())
		}
		if c.flags != 0 && pid == says {
			t.Errorf("process %d is in no namespace", pid)
		}
		if in {
			want[int32(pid)] = c.uid
		}
	}
	for _, a := range s.Agents() {
		if uid, ok := want[a.PID]; !ok || uid != a.UID {
			t.Errorf("an agent that is not there: %+v", a)
		}
		delete(want, a.PID)
	}
	if len(want) > 0 {
		t.Errorf("not connected: %v", want)
	}
	if log := s.log.String(); os.Getuid() == 0 && !strings.Contains(log, "user 54322 has no permission") {
		t.Error(log)
	}
}

// A user without permission takes no place and is not listened to, however often it connects.
func TestAFloodWithoutPermission(t *testing.T) {
	s := prepareLoopback(t, Bounds{Connections: 4, Servers: 2, Greetings: 2, ServerFiles: 1, TaskFiles: 1})
	allow := s.Allow
	s.Allow = func(uid uint32, role wire.Role) bool { return uid != uint32(os.Getuid()) && allow(uid, role) }
	s.serve(s.listen())
	for range 200 {
		ended(t, s.connect())
	}
	if got := s.Stats.Refused.Load(); got != 200 {
		t.Errorf("%d refused", got)
	}
	if n := s.Stats.Accepted.Load(); n != 0 {
		t.Errorf("%d accepted", n)
	}
	s.letsOtherIn("connections without permission")
	if n := strings.Count(s.log.String(), "\n"); n > 10 {
		t.Errorf("%d lines in the log", n)
	}
}

// Silent connections of a user are bounded; beyond the bound the oldest is closed.
func TestSilentConnectionsByLoopback(t *testing.T) {
	s := newLoopback(t, Bounds{})
	greeting := func(n int) func() bool {
		return func() bool {
			s.Server.mu.Lock()
			defer s.Server.mu.Unlock()
			return len(s.greetings) == n
		}
	}
	first := s.connect()
	eventually(t, "the first", greeting(1))
	for range maxUserGreets - 1 {
		s.connect()
	}
	eventually(t, "the bound", greeting(maxUserGreets))
	if err := first.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("closed at the bound: %v", err)
	}
	if err := first.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, in := s.enter(hello); !in {
		t.Error("kept out by silent connections of the same user")
	}
	ended(t, first)
	eventually(t, "the others", greeting(maxUserGreets-1))
	s.letsOtherIn("silent connections")
}

// A connection that its process has closed when it is accepted has no owner.
func TestASocketThatIsClosedBeforeTheLookup(t *testing.T) {
	s := prepareLoopback(t, Bounds{})
	l := s.listen()
	c := s.connect()
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.serve(l)
	eventually(t, "the refusal", func() bool { return s.Stats.NoSocket.Load() == 1 && s.Stats.Refused.Load() == 1 })
	if n := s.Stats.Accepted.Load(); n != 0 {
		t.Errorf("%d accepted", n)
	}
}

// A socket that is replaced by another one with the same ends, while its process is being looked for, is
// not taken for it.
func TestAPortThatIsReusedDuringTheLookup(t *testing.T) {
	s := prepareLoopback(t, Bounds{})
	hold := s.Holder
	l := s.listen()
	// Only this test uses this address, so the port is free again when the socket is closed.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 5)}}
	conn, err := d.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	c := conn.(*net.TCPConn)
	d.LocalAddr = c.LocalAddr()
	s.Holder = func(ctx context.Context, inode uint64, uid uint32, claimed int) (int32, error) {
		pid, err := hold(ctx, inode, uid, claimed)
		if err := c.SetLinger(0); err != nil { // no TIME_WAIT
			t.Error(err)
		}
		c.Close()
		again, err2 := d.Dial("tcp", s.address)
		if err2 != nil {
			t.Error(err2)
			return pid, err
		}
		t.Cleanup(func() { again.Close() })
		return pid, err
	}
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	s.serve(l)
	eventually(t, "the refusal", func() bool { return s.Stats.NoSocket.Load() == 1 && s.Stats.Refused.Load() == 1 })
	if all := s.Agents(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestOnlyLoopback(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := socketOf(a); err == nil {
		t.Error("a pipe has a socket")
	}
	if _, err := socketOf(far{a}); err == nil || errors.Is(err, connections.ErrNoEndpoint) {
		t.Errorf("a connection from elsewhere: %v", err)
	}
}

// far is a connection from another machine.
type far struct{ net.Conn }

func (far) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (far) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 2} }

// A process that connects too often is refused once it is known.
func TestAHurriedProcess(t *testing.T) {
	s := newLoopback(t, Bounds{})
	let := 0
	for range processBurst + 20 {
		c, in := s.enter(hello)
		if in {
			let++
		}
		c.Close()
	}
	if let < processBurst || s.Stats.Hurried.Load() == 0 {
		t.Errorf("%d let in, %d in a hurry", let, s.Stats.Hurried.Load())
	}
}

// TestSearches: one search of a user at a time and two of all, and a rest after each.
func TestSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSearches()
		ctx := context.Background()
		began := time.Now()
		begin := func(uid uint32) func() {
			end, err := s.begin(ctx, uid)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		at := func(want time.Duration, what string) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s began after %v, want %v", what, got, want)
			}
		}
		one := begin(1)
		two := begin(2)
		at(0, "two users' searches")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := s.begin(short, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third search: %v", err)
		}
		at(time.Second, "the third user's")
		one()
		three := begin(3)
		at(time.Second, "the third user's second")
		three()
		again := begin(1)
		at((1+searchRest)*time.Second, "the first user's second")
		again()
		two()
		begin(3)() // its search took no time
		at((1+searchRest)*time.Second, "the third user's third")
		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.users) != 0 || len(s.all) != 0 {
			t.Errorf("%d users and %d searches are left", len(s.users), len(s.all))
		}
	})
}

func TestThePortFile(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	file := PortFile(socket)
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("the file of a killed daemon\n")
	old := syscall.Umask(0o077)
	withdraw, err := Announce(socket, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234})
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	space, err2 := os.Readlink("/proc/self/ns/net")
	if want := fmt.Sprintf("127.0.0.1:1234 %s %d\n", space, os.Getpid()); err != nil || err2 != nil || string(text) != want {
		t.Errorf("%q, %v, %v; want %q", text, err, err2, want)
	}
	if st, err := os.Lstat(file); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := withdraw(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}

	// A daemon does not remove the file of its successor.
	withdraw, err = Announce(socket, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234})
	if err != nil {
		t.Fatal(err)
	}
	put("127.0.0.1:1234 " + space + " 1\n")
	if err := withdraw(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(file); err != nil {
		t.Error(err)
	}
	// What is left of an interrupted start is in nobody's way, and a link is replaced and not followed.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "target")
	for _, link := range []string{file, file + ".new"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if withdraw, err = Announce(socket, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
	if err := withdraw(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if len(left) != 1 || left[0].Name() != "agent.sock.lock" {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := Announce(filepath.Join(dir, "none", "s"), &net.TCPAddr{}); err == nil {
		t.Error("a file in a folder that is missing")
	}
}
