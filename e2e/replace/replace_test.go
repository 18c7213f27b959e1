// Package replace tests that a daemon takes the place of one that was killed while a disk
// hangs. Such a process cannot end before the disk answers, and until then the kernel
// accepts connections for it; all disks of the node would be ungoverned meanwhile.
package replace

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/stand"
	"penstock/testbed/disk"
	"penstock/testbed/ledger"
	"penstock/testbed/ports"
	"penstock/wire"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	stand.Recover()
	os.Exit(m.Run())
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// bed is a disk and the settings of the daemons.
type bed struct {
	t       *testing.T
	book    *ledger.Ledger
	binary  string
	config  string
	socket  string
	address string // of the status
	data    string
}

// start starts a daemon; exited is closed at its end.
func (b *bed) start() (cmd *exec.Cmd, exited <-chan struct{}) {
	b.t.Helper()
	cmd = exec.Command(b.binary, "node", "--config", b.config)
	log, err := os.OpenFile(b.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if exited, err = b.book.Spawn(cmd); err != nil {
		b.t.Fatal(err)
	}
	return cmd, exited
}

func (b *bed) log() string { return b.config + ".log" }

func (b *bed) logged() string {
	text, err := os.ReadFile(b.log())
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// agent connects as a DataNode; it fails where no welcome comes.
func (b *bed) agent() (net.Conn, error) {
	c, err := net.Dial("unix", b.socket)
	if err != nil {
		return nil, err
	}
	hello, err := wire.Append(nil, wire.Hello{PID: uint32(os.Getpid()), Role: wire.RoleDataNode, Agent: "test", Directories: []string{b.data}})
	if err == nil {
		err = c.SetDeadline(time.Now().Add(time.Second))
	}
	if err == nil {
		_, err = c.Write(hello)
	}
	if err == nil {
		_, err = wire.NewReader(c).Next()
	}
	if err != nil {
		c.Close()
	}
	return c, err
}

// waitsForDisk reports whether a thread of the process waits for a disk.
func waitsForDisk(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range stats {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), ") D ") {
			return true
		}
	}
	return false
}

func (b *bed) ready() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.address+"/-/ready", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestADaemonThatCannotEndIsReplaced(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { book.Close() })
	d, err := disk.Start(t.Context(), disk.Options{Name: "hangs", RunDir: dir, Size: 256 << 20})
	if err != nil {
		t.Fatalf("this test needs a modelled disk: %v", err)
	}
	t.Cleanup(func() {
		d.SetModel(disk.Model{})
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	address, err := ports.Address()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, book: book, binary: filepath.Join(root, "bin", "penstock"), config: filepath.Join(dir, "node.yaml"),
		socket: filepath.Join(dir, "s"), address: address, data: filepath.Join(d.Mount(), "data")}
	if _, err := os.Stat(b.binary); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	text := fmt.Sprintf("socket: %s\nlisten: %s\nmode: enforce\ndata_dirs: [%s]\nidentity: {mode: trust}\nforeign: totals\n", b.socket, b.address, b.data)
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.data, 0o755); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(b.data, "blk_1")
	const size = 16 << 20

	old, oldExited := b.start()
	eventually(t, "the first daemon", b.ready)
	c, err := b.agent()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := d.SetModel(disk.Model{BytesPerSecond: 4096}); err != nil { // a quantum takes minutes
		t.Fatal(err)
	}
	// What is written stays in the page cache until the daemon drains it, and that wait is
	// not one that a signal ends.
	if err := os.WriteFile(block, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	frames, err := wire.Append(nil, wire.Open{Stream: 1, Direction: wire.Write, Flow: "clients", Path: block})
	if err == nil {
		frames, err = wire.Append(frames, wire.Progress{Stream: 1, Position: size})
	}
	if err == nil {
		_, err = c.Write(frames)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon to wait for the disk", func() bool { return waitsForDisk(old.Process.Pid) })
	if err := old.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // what can end ends
	if late, err := net.Dial("unix", b.socket); err != nil {
		t.Fatalf("the dying daemon does not accept, which this test is about: %v", err)
	} else {
		late.Close()
	}

	began := time.Now()
	second, secondExited := b.start()
	eventually(t, "the second daemon to govern", func() bool {
		select {
		case <-secondExited:
			t.Fatalf("the second daemon has ended:\n%s", b.logged())
		default:
		}
		c, err := b.agent()
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	t.Logf("replaced %v after its start", time.Since(began).Round(10*time.Millisecond))
	select {
	case <-oldExited:
		t.Error("the first daemon has ended already: the disk did not hang")
	default:
	}
	if n := strings.Count(b.logged(), "an address is in use"); n != 1 {
		t.Errorf("the status port is said to be in use %d times:\n%s", n, b.logged())
	}

	if err := d.SetModel(disk.Model{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-oldExited:
	case <-time.After(patience):
		t.Fatal("the first daemon does not end")
	}
	eventually(t, "the second daemon's status", b.ready)
	if err := second.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-secondExited:
	case <-time.After(patience):
		t.Error("the second daemon does not end")
	}
}
