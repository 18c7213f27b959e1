package hostile

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
)

// plan describes an attacker's process.
type plan struct {
	Attack  string // its name among attacks
	User    int
	Socket  string
	Dir     string
	Path    string
	Number  int // meaning depends on the attack
	Streams int
	Base    int
	Seed    uint64
	// Bind, if not empty, is a directory of the machine that the process sees at Dir, in mounts of its own.
	Bind string
}

// attacks are the programs of attackers. Each calls ready when it has begun, continues until stop
// is closed, and returns its counts.
var attacks = map[string]func(p plan, ready func(), stop <-chan struct{}) (counts, error){
	"connections": holdConnections,
	"progress":    floodProgress,
	"files":       openFiles,
	"others":      openOthers,
	"flood":       floodConnects,
	"sessions":    holdSessions,
	"container":   readInContainer,
}

type counts map[string]int64

const attackVariable = "PENSTOCK_HOSTILE_PLAN"

// courtesy is the attackers' nice value. The tests judge how much work the daemon does for them.
// Their own use of the CPUs is not judged, since any process may use them.
const courtesy = 10

// attackIfChild runs an attack and exits, if this process was started as an attacker.
func attackIfChild() {
	text := os.Getenv(attackVariable)
	if text == "" {
		return
	}
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil && p.Bind != "" {
		err = syscall.Mount(p.Bind, p.Dir, "", syscall.MS_BIND, "")
	}
	if err == nil {
		// The binary may be in a folder that the user cannot read, so the process changes its user
		// itself.
		err = errors.Join(syscall.Setpriority(syscall.PRIO_PROCESS, 0, courtesy), syscall.Setgroups(nil), syscall.Setgid(p.User), syscall.Setuid(p.User))
	}
	stop := make(chan struct{})
	go func() { // stdin is closed at the end of the tests at the latest
		io.Copy(io.Discard, os.Stdin)
		close(stop)
		time.Sleep(20 * time.Second)
		os.Exit(1)
	}()
	var c counts
	if err == nil {
		c, err = attacks[p.Attack](p, func() { fmt.Println("ready") }, stop)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, p.Attack+":", err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(c)
	os.Exit(0)
}

// process is an attacker's process.
type process struct {
	what  string
	stdin io.Closer
	out   *bufio.Reader
	exit  <-chan struct{}
	cmd   *exec.Cmd
	once  sync.Once
	c     counts
}

// run starts an attacker's process and returns when the attack has begun. The process ends with the
// test.
func run(t *testing.T, p plan) *process {
	t.Helper()
	a := begin(t, p)
	a.awaitReady(t)
	return a
}

// begin starts an attacker's process and does not wait.
func begin(t *testing.T, p plan) *process {
	t.Helper()
	text, err := json.Marshal(p)
	fixture.Must(t, err)
	self, err := os.Executable()
	fixture.Must(t, err)
	a := &process{what: p.Attack, cmd: exec.Command(self)}
	a.cmd.Env = append(os.Environ(), attackVariable+"="+string(text))
	a.cmd.Stderr = os.Stderr
	if p.Bind != "" {
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// A pipe of our own, because another goroutine waits for the process, and its last output is
	// read after that.
	read, write, err := os.Pipe()
	fixture.Must(t, err)
	a.cmd.Stdout, a.out = write, bufio.NewReader(read)
	a.exit, err = shared.Book.Spawn(a.cmd)
	write.Close()
	fixture.Must(t, err)
	t.Cleanup(func() {
		a.end(t)
		read.Close()
	})
	return a
}

func (a *process) awaitReady(t *testing.T) {
	t.Helper()
	if line, err := a.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%s has not begun: %q, %v", a.what, line, err)
	}
}

// end ends the attack and returns its counts.
func (a *process) end(t *testing.T) counts {
	t.Helper()
	a.once.Do(func() {
		a.stdin.Close()
		select {
		case <-a.exit:
		case <-time.After(patience):
			a.cmd.Process.Kill()
			<-a.exit
		}
		if err := json.NewDecoder(a.out).Decode(&a.c); err != nil {
			t.Errorf("%s has not ended as it should: %v", a.what, err)
		}
	})
	return a.c
}
