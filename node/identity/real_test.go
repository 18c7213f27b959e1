package identity

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/node/monitor/owner"
)

// These tests run on the real process file system, with real connections of child processes. The
// children run this test's binary, with their role in the environment.
const role = "IDENTITY_TEST_ROLE"

func TestMain(m *testing.M) {
	if what := os.Getenv(role); what != "" {
		if err := child(what); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(what string) error {
	verb, rest, _ := strings.Cut(what, " ")
	again := func(session bool, env ...string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), append(env, role+"="+rest)...)
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
		return cmd
	}
	switch verb {
	case "dial": // and print the local address; wait until the parent closes the input
		c, err := net.Dial("tcp", rest)
		if err != nil {
			return err
		}
		fmt.Println(os.Getpid(), c.LocalAddr())
	case "hold": // descriptor 3, which was passed
		fmt.Println(os.Getpid(), rest)
	case "exec": // with another container's environment
		return syscall.Exec("/proc/self/exe", []string{"java"}, []string{"CONTAINER_ID=" + contB, role + "=" + rest})
	case "lead": // a container: its leader, which stays alive
		if err := again(false).Start(); err != nil {
			return err
		}
	case "fork": // and end
		return again(false, "CONTAINER_ID="+contB).Start()
	case "flee": // into a session of its own, and end
		return again(true).Start()
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// peerChild is a child with a connection.
type peerChild struct {
	pid    int // of the process that has the connection
	client string
	leader int // the process that was started
}

// startPeer starts a child in its own session.
func startPeer(t testing.TB, what string, file *os.File, env ...string) peerChild {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	return startCommand(t, cmd, what, nil, env...)
}

// startCommand starts a child in its own session; if user is given, as that user.
func startCommand(t testing.TB, cmd *exec.Cmd, what string, user *syscall.Credential, env ...string) peerChild {
	t.Helper()
	cmd.Env = append(env, role+"="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user}
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
		in.Close() // the end of its input, and of its children's
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	timer := time.AfterFunc(time.Minute, func() { out.Close() })
	defer timer.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child: %q, %v", line, err)
	}
	p := peerChild{leader: cmd.Process.Pid}
	if _, err := fmt.Sscan(line, &p.pid, &p.client); err != nil {
		t.Fatalf("the child: %q", line)
	}
	return p
}

// server accepts connections and keeps them.
func server(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	return l.Addr().String()
}

// nodeManager creates a NodeManager's directories, and its record of a container.
func nodeManager(t testing.TB, container string, session int) (local string) {
	t.Helper()
	local = t.TempDir()
	dir := filepath.Join(local, "nmPrivate", owner.ApplicationOf(container), container)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, container+".pid"), []byte(strconv.Itoa(session)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return local
}

func realChecker(t testing.TB, dirs ...string) *Checker {
	c := newChecker(t, Settings{Mode: Verify, LocalDirs: dirs, Budget: time.Minute})
	// There may be a real NodeManager on this machine, with other directories.
	c.records.managers.class = "none"
	return c
}

func TestRealEnvironment(t *testing.T) {
	addr := server(t)
	honest := startPeer(t, "dial "+addr, nil, "CONTAINER_ID="+contA)
	forger := startPeer(t, "exec dial "+addr, nil, "CONTAINER_ID="+contA)
	plain := startPeer(t, "dial "+addr, nil)
	c := realChecker(t)
	for _, x := range []struct {
		name   string
		who    peerChild
		flow   string
		state  State
		is     string
		strict string
	}{
		{"honest", honest, appA, Unknown, "", Unattributed},
		{"borrows", honest, appB, Refuted, appA, Unattributed},
		{"hides", honest, "clients", Unknown, "", Unattributed},
		{"forger", forger, appB, Unknown, "", Unattributed}, // its own changes confirm nothing
		{"its true one", forger, appA, Refuted, appB, Unattributed},
		{"no container", plain, appA, Refuted, "clients", Unattributed},
		{"no container", plain, "clients", Confirmed, "clients", "clients"},
	} {
		v := ask(t, c, Claim{Flow: x.flow, Client: x.who.client, Server: addr})
		if v.State != x.state || v.Flow != x.is || Strict.Flow(x.flow, v) != x.strict {
			t.Errorf("%s, %s: %+v", x.name, x.flow, v)
		}
	}
}

func TestRealSession(t *testing.T) {
	addr := server(t)
	for _, x := range []struct {
		name, what string
		inside     bool
	}{
		{"a task", "dial ", true},
		{"with a borrowed environment", "exec dial ", true},
		{"an orphan", "fork dial ", true},
		{"an orphan's orphan", "fork fork exec dial ", true},
		{"that has fled its session", "flee dial ", false},
	} {
		who := startPeer(t, "lead "+x.what+addr, nil, "CONTAINER_ID="+contA)
		if !x.inside {
			waitForOrphan(t, who.pid, who.leader)
		}
		c := realChecker(t, nodeManager(t, contA, who.leader))
		for flow, state := range map[string]State{appA: Confirmed, appB: Refuted, "clients": Corrected, "replication": Refuted} {
			if !x.inside {
				state = map[string]State{appA: Refuted, appB: Refuted, "clients": Confirmed, "replication": Refuted}[flow]
			}
			if v := ask(t, c, Claim{Flow: flow, Client: who.client, Server: addr}); v.State != state {
				t.Errorf("%s, %s: %+v", x.name, flow, v)
			}
		}
	}
}

// waitForOrphan waits until the process's parent is not in the leader's session.
func waitForOrphan(t *testing.T, pid, leader int) {
	t.Helper()
	for range 6000 {
		l, err := proc("/proc").life(pid)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := proc("/proc").life(l.parent); err != nil || p.session != leader {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("its parent does not end")
}

// A connection that is passed on also belongs to the process that received it.
func TestRealSocketPassedOn(t *testing.T) {
	addr := server(t)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	who := startPeer(t, "hold "+conn.LocalAddr().String(), f)
	c := realChecker(t, nodeManager(t, contA, who.leader))
	for flow, state := range map[string]State{appA: Confirmed, appB: Refuted, "clients": Corrected} {
		if v := ask(t, c, Claim{Flow: flow, Client: who.client, Server: addr}); v.State != state {
			t.Errorf("%s: %+v", flow, v)
		}
	}
}

// The process that connects to the agents' socket is known without its own statement.
func TestRealProcess(t *testing.T) {
	who := startPeer(t, "dial "+server(t), nil)
	c := realChecker(t, nodeManager(t, contA, who.leader))
	for flow, state := range map[string]State{appA: Confirmed, appB: Refuted} {
		if v := c.Process(int32(who.pid), me, flow); v.State != state {
			t.Errorf("%s: %+v", flow, v)
		}
	}
	if v := c.Process(int32(os.Getpid()), me, appA); v.State != Refuted {
		t.Errorf("this test: %+v", v)
	}
}

// The benchmark makes single lookups among this machine's own processes: of a peer that was seen
// before, and of a shell, for which all processes of its user are examined.
func BenchmarkLookup(b *testing.B) {
	addr := server(b)
	who := startPeer(b, "dial "+addr, nil)
	local := nodeManager(b, contA, who.leader)
	for name, dirs := range map[string][]string{"task": {local}, "shell": nil} {
		b.Run(name, func(b *testing.B) {
			c := realChecker(b, dirs...)
			claim := Claim{Flow: "clients", Client: who.client, Server: addr}
			for b.Loop() {
				if v, _, _ := c.find(context.Background(), claim); v.State == Unknown {
					b.Fatalf("%+v", v)
				}
			}
		})
	}
	b.Run("kept", func(b *testing.B) {
		c := realChecker(b, local)
		claim := Claim{Flow: appA, Client: who.client, Server: addr}
		ask(b, c, claim)
		for b.Loop() {
			if _, ok := c.Check(claim, nil); !ok {
				b.Fatal("not kept")
			}
		}
	})
}
