package pacing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/asroot"
	"penstock/node/control/journal"
)

const (
	patience  = 20 * time.Second // bounds every wait for an event
	childRole = "PENSTOCK_PACING_CHILD"
)

// TestMain runs this program in a role, which is how the tests start other processes. "send ADDRESS" connects
// and sends. "pace JOURNAL SOCKET RATE" paces a socket and waits to be killed; with an odd rate, it sets and
// lifts rates without end.
func TestMain(m *testing.M) {
	if role := strings.Fields(os.Getenv(childRole)); len(role) > 0 {
		var err error
		switch role[0] {
		case "send":
			err = sender(role[1])
		case "pace":
			err = pacer(role[1], role[2:])
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	asroot.Main(m, "Loopback|Sender|Killed|Refused|Bounds|Replaced|SetsARate|WhenGone|Inode|^Fuzz")
}

// sender connects to an address and executes the commands on its standard input: "go" sends as fast as
// possible, "go N" sends N bytes per second, and "swap" replaces the connection at the descriptor by another
// one. It answers each command with a line.
func sender(to string) error {
	c, err := net.Dial("tcp", to)
	if err != nil {
		return err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	fmt.Println("connected")
	var limit atomic.Int64
	sending := false
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "go":
			if len(words) > 1 {
				n, err := strconv.ParseInt(words[1], 10, 64)
				if err != nil {
					return err
				}
				limit.Store(n)
			} else {
				limit.Store(0)
			}
			if !sending {
				sending = true
				go send(c, &limit)
			}
		case "swap":
			other, err := net.Dial("tcp", to)
			if err != nil {
				return err
			}
			file, err := other.(*net.TCPConn).File()
			if err != nil {
				return err
			}
			if err := errors.Join(raw.Control(func(fd uintptr) { err = unix.Dup3(int(file.Fd()), int(fd), unix.O_CLOEXEC) }), err); err != nil {
				return err
			}
		}
		fmt.Println("done")
	}
	return errors.New("the test has ended")
}

// send sends at a rate in bytes per second, or as fast as possible if the rate is 0.
func send(c net.Conn, limit *atomic.Int64) {
	buffer := make([]byte, 64<<10)
	next := time.Now()
	for {
		if _, err := c.Write(buffer); err != nil {
			return
		}
		if n := limit.Load(); n > 0 {
			next = next.Add(time.Duration(len(buffer)) * time.Second / time.Duration(n))
			time.Sleep(time.Until(next))
		} else {
			next = time.Now()
		}
	}
}

// pacer paces a socket as a daemon that will be killed.
func pacer(path string, args []string) error {
	j, err := journal.Open(path, map[string]journal.Undo{Mechanism: Undo})
	if err != nil {
		return err
	}
	rate, err := parseRate(args[len(args)-1])
	if err != nil {
		return err
	}
	t, err := parseTarget(strings.Join(args[:len(args)-1], " "))
	if err != nil {
		return err
	}
	p := Open(j)
	if err := p.Set(t.Socket, rate, "a test"); err != nil {
		return err
	}
	fmt.Println("paced")
	for n := uint64(0); rate%2 == 1; n++ {
		err := p.Set(t.Socket, rate+n%5, "a test")
		if n%3 == 0 {
			err = errors.Join(err, p.Lift(t.Socket))
		}
		if err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is another process.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// start starts this program in a role and waits for its first line. If command is given, such as nsenter, it
// starts the program by that command.
func start(t testing.TB, role string, command ...string) *child {
	t.Helper()
	argv := append(command, "/proc/self/exe")
	if len(command) > 0 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		argv[len(argv)-1] = self
	}
	c := &child{cmd: exec.Command(argv[0], argv[1:]...)}
	c.cmd.Env = append(os.Environ(), childRole+"="+role)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	c.lines = bufio.NewScanner(out)
	c.answer(t)
	return c
}

func (c *child) answer(t testing.TB) {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("%v ended early: %v", c.cmd.Args, c.lines.Err())
	}
}

// tell sends the child a line and waits for its answer.
func (c *child) tell(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		t.Fatal(err)
	}
	c.answer(t)
}

// kill ends the child with SIGKILL and waits for its end.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// stream is a connection on which a child sends and this process receives.
type stream struct {
	*child
	socket Socket // the child's end
	got    *net.TCPConn
}

// listen listens on loopback.
func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect starts a child that is connected to l.
func connect(t testing.TB, l net.Listener, command ...string) *stream {
	t.Helper()
	s := &stream{child: start(t, "send "+l.Addr().String(), command...)}
	s.accept(t, l)
	var err error
	if s.socket, err = Find(s.cmd.Process.Pid, port(s.got.RemoteAddr()), port(s.got.LocalAddr())); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stream) accept(t testing.TB, l net.Listener) {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s.got = c.(*net.TCPConn)
}

func port(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// pacing returns the socket's highest pacing rate and its smoothed round trip time.
func (s *stream) pacing(t testing.TB) (rate uint64, rtt time.Duration) {
	t.Helper()
	d, err := duplicate(s.socket, unknownNumber)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if rate, err = d.rate(); err != nil {
		t.Fatal(err)
	}
	info, err := unix.GetsockoptTCPInfo(d.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	return rate, time.Duration(info.Rtt) * time.Microsecond
}

// opened returns a journal and a pacer. The test's end undoes what they have done.
func opened(t testing.TB) (*journal.Journal, *Pacer) {
	t.Helper()
	j, err := journal.Open(t.TempDir()+"/journal", map[string]journal.Undo{Mechanism: Undo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j, Open(j)
}
