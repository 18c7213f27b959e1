package ipc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/wire"
)

// A child process of these tests, in one of the states in which a daemon may be found.
const (
	childOf    = "PENSTOCK_TEST_SOCKET"
	childState = "PENSTOCK_TEST_STATE"
)

// starvedFiles is the limit on descriptors in the state "starved".
const starvedFiles = 48

func init() { runtime.LockOSThread() } // the first thread is main's: child ends it

func TestMain(m *testing.M) {
	if path := os.Getenv(childOf); path != "" {
		child(path, os.Getenv(childState))
	}
	runtime.UnlockOSThread()
	os.Exit(m.Run())
}

// child listens and accepts nothing, and never returns. In the state "ending" it looks like a
// killed process with a thread that the kernel cannot end yet: its first thread is a zombie, and
// its socket is still open.
//
// In the state "starved" it serves, with few descriptors.
//
// In the state "agent" it is an agent that connects to the loopback port that path is.
func child(path, state string) {
	if state == "agent" {
		if err := agentByLoopback(path); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if state == "starved" {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: starvedFiles, Max: starvedFiles}); err != nil {
			panic(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		panic(err)
	}
	go func() {
		runtime.LockOSThread()
		fmt.Println("listening")
		io.Copy(io.Discard, os.Stdin) // returns when the test ends
		os.Exit(0)
	}()
	switch state {
	case "ending":
		syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	case "starved":
		s := &Server{Opener: &daemon{alive: 1}, Allow: func(uint32, wire.Role) bool { return true }, Log: slog.New(slog.DiscardHandler)}
		panic(s.Serve(context.Background(), l))
	}
	runtime.KeepAlive(l)
	select {}
}

// startChild starts a child and returns its process.
func startChild(t *testing.T, path, state string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childOf+"="+path, childState+"="+state)
	in, err := cmd.StdinPipe()
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
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return cmd.Process
}

func listen(t *testing.T, path string) (*net.UnixListener, error) {
	t.Helper()
	l, err := Listen(path, 0o600, -1)
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return l, err
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	l.SetUnlinkOnClose(false)
	l.Close() // as after kill -9: the file stays
	if _, err := listen(t, path); err != nil {
		t.Fatalf("a dead daemon's socket was not replaced: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t, file); err == nil {
		t.Error("a plain file was replaced")
	}
	if _, err := listen(t, filepath.Join(t.TempDir(), "s", "s", "s")); err == nil {
		t.Error("a socket in no folder")
	}
}

// A living daemon answers at once, however busy it is, and is not replaced.
func TestALivingDaemonIsNotReplaced(t *testing.T) {
	for name, s := range map[string]*Server{
		"idle":          {},
		"at its bounds": {Bounds: Bounds{Connections: 0, Greetings: 1}},
		"lets nobody":   {Allow: func(uint32, wire.Role) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			s.Opener = &daemon{}
			if s.Allow == nil {
				s.Allow = func(uint32, wire.Role) bool { return true }
			}
			path := serveAs(t, s)
			dial(t, path)
			began := time.Now()
			_, err := listen(t, path)
			if err == nil || !strings.Contains(err.Error(), "another daemon answers there (process "+strconv.Itoa(os.Getpid())+")") {
				t.Errorf("listens, %v", err)
			}
			if took := time.Since(began); took > answersAll {
				t.Errorf("it took %v", took)
			}
			if s.Stats.BadFrames.Load() != 0 {
				t.Error("the question is a bad frame")
			}
		})
	}
}

// A process that is ending, and for which the kernel still accepts connections, is replaced.
func TestADyingDaemonIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	p := startChild(t, path, "ending")
	eventually(t, "the first thread's end", func() bool { _, ending := listener{"/proc"}.state(int32(p.Pid)); return ending })
	if c, err := net.Dial("unix", path); err != nil {
		t.Fatalf("it does not accept: %v", err)
	} else {
		c.Close()
	}
	began := time.Now()
	l, err := listen(t, path)
	if err != nil {
		t.Fatalf("not replaced: %v", err)
	}
	if took := time.Since(began); took > answersAll {
		t.Errorf("it took %v", took)
	}
	c := dial(t, path)
	if _, err := l.AcceptUnix(); err != nil {
		t.Errorf("the new socket is not at its place: %v", err)
	}
	c.Close()
}

// A stopped process could continue: it is not replaced before it is killed.
func TestAStoppedDaemonIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	p := startChild(t, path, "living")
	if err := p.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := listen(t, path)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d listens there and does not answer (T): continue it or kill it", p.Pid)) {
		t.Errorf("listens, %v", err)
	}
	// It is not replaced even if more connections wait than its queue holds.
	for {
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		t.Cleanup(func() { c.Close() })
	}
	if _, err := listen(t, path); err == nil || !strings.Contains(err.Error(), "more connections wait there than are accepted") {
		t.Errorf("with a full queue: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t, path); err != nil {
		t.Errorf("after its death: %v", err)
	}
}

// If several daemons start at once, over a dead daemon's socket, one of them listens.
func TestOneOfManyListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := listen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	var all sync.WaitGroup
	got := make(chan error, 8)
	for range cap(got) {
		all.Go(func() {
			l, err := Listen(path, 0o600, -1)
			got <- err
			if err != nil {
				return
			}
			t.Cleanup(func() { l.Close() })
			for { // this daemon answers
				c, err := l.AcceptUnix()
				if err != nil {
					return
				}
				c.Close()
			}
		})
	}
	listening := 0
	for range cap(got) {
		if err := <-got; err == nil {
			listening++
		} else if !strings.Contains(err.Error(), "another daemon answers there") {
			t.Error(err)
		}
	}
	if listening != 1 {
		t.Errorf("%d daemons listen", listening)
	}
}

// The kernel's reports about processes that are ending, as documented.
func TestProcessesThatEnd(t *testing.T) {
	const (
		living   = "Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000001\nSigBlk:\t0000000000000100\n"
		killedBy = "Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"
	)
	for name, c := range map[string]struct {
		stat, status, thread string
		ending               bool
	}{
		"sleeping":             {"7 (penstock) S 1 7 7 0 -1 4194560 1", living, living, false},
		"in D":                 {"7 (penstock) D 1 7 7 0 -1 4194560 1", living, living, false},
		"stopped":              {"7 (penstock) T 1 7 7 0 -1 4194560 1", living, living, false},
		"killed, in D":         {"7 (penstock) D 1 7 7 0 -1 4194560 1", killedBy, killedBy, true},
		"a thread of it in D":  {"7 (penstock) S 1 7 7 0 -1 4194560 1", living, killedBy, true},
		"exiting":              {"7 (penstock) D 1 7 7 0 -1 4194564 1", living, living, true},
		"a zombie":             {"7 (penstock) Z 1 7 7 0 -1 4194560 1", living, living, true},
		"dead":                 {"7 (penstock) X 1 7 7 0 -1 4194560 1", living, living, true},
		"a name like a zombie": {"7 (x) Z 1 (y) S 1 7 7 0 -1 4194560 1", living, living, false},
		"cut off":              {"7 (penstock) Z", living, living, false},
	} {
		proc := t.TempDir()
		for file, text := range map[string]string{"7/stat": c.stat, "7/status": c.status, "7/task/8/status": c.thread} {
			name := filepath.Join(proc, file)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if state, ending := (listener{proc}).state(7); ending != c.ending {
			t.Errorf("%s: state %s, ending %v", name, state, ending)
		}
	}
	if _, ending := (listener{t.TempDir()}).state(7); !ending {
		t.Error("a process that is gone has not ended")
	}
	if _, ending := (listener{"/proc"}).state(0); ending {
		t.Error("a process that cannot be seen has ended")
	}
}

// Without descriptors, connections still get an answer, and the server continues once it has
// descriptors again. Its bounds would prevent the shortage; here they are those of a larger
// process.
func TestWithoutDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	startChild(t, path, "starved")
	var held []net.Conn
	for range 2 * starvedFiles {
		c := dial(t, path)
		held = append(held, c)
		if _, err := c.Write(frames(t, task)); err != nil {
			continue // it was closed
		}
	}
	if answered, _, err := (listener{"/proc"}).ask(path); err != nil || !answered {
		t.Errorf("answered %v, %v", answered, err)
	}
	began := time.Now()
	ended(t, held[len(held)-1])
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the last one had its answer after %v", took)
	}
	for _, c := range held {
		c.Close()
	}
	eventually(t, "a welcome", func() bool {
		c := dial(t, path)
		defer c.Close()
		if _, err := c.Write(frames(t, task)); err != nil {
			return false
		}
		_, err := wire.NewReader(c).Next()
		return err == nil
	})
}

// TestTheSocketsFolderIsMade: only the last folder of its path is created.
func TestTheSocketsFolderIsMade(t *testing.T) {
	dir := t.TempDir()
	old := syscall.Umask(0o077)
	l, err := Listen(filepath.Join(dir, "run", "agent.sock"), 0o660, -1)
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if st, err := os.Stat(filepath.Join(dir, "run")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	_, err = Listen(filepath.Join(dir, "no", "run", "agent.sock"), 0o660, -1)
	if err == nil || !strings.Contains(err.Error(), "there is no folder "+dir+"/no to make "+dir+"/no/run in") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "no")); err == nil {
		t.Error("a folder above the socket's was made")
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Listen(filepath.Join(dir, "file", "agent.sock"), 0o660, -1); err == nil || !strings.Contains(err.Error(), "a part of this path is a file") {
		t.Error(err)
	}
}
