package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func (w *world) holder(inode uint64, uid uint32, claimed int) (int32, error) {
	w.t.Helper()
	c := New(w.settings())
	defer c.Close()
	return c.Holder(context.Background(), inode, uid, claimed)
}

func TestTheHolderIsTheClaimedProcess(t *testing.T) {
	w := newWorld(t)
	other := me + 1
	w.start(process{pid: 100, uid: me, sockets: []int{7, 8}})
	w.start(process{pid: 101, uid: me, sockets: []int{9}})
	w.start(process{pid: 102, uid: other, sockets: []int{7}})
	// Of three processes with the number 100 in pid namespaces of their own, one has the socket.
	w.start(process{pid: 200, uid: me, space: "pid:[2]", innerPID: 100, sockets: []int{20}})
	w.start(process{pid: 201, uid: me, space: "pid:[3]", innerPID: 100, sockets: []int{21}})
	w.start(process{pid: 202, uid: other, space: "pid:[4]", innerPID: 100, sockets: []int{22}})
	w.start(process{pid: 203, uid: me, space: "pid:[5]", innerPID: 55, sockets: []int{23}})
	for _, c := range []struct {
		inode   uint64
		uid     uint32
		claimed int
		want    int32 // 0: ErrNoHolder
	}{
		{8, me, 100, 100},
		{20, me, 100, 200},
		{21, me, 100, 201},
		{9, me, 100, 0},    // another process has it: the number is wrong
		{7, other, 100, 0}, // the socket's user is not the process's
		{7, other, 102, 102},
		{22, me, 100, 0},
		{23, me, 100, 0},
		{7, me, 999, 0}, // no such process
		{7, me, 0, 0},
		{7, me, -5, 0},
		{0, me, 100, 0}, // a socket of no process
	} {
		pid, err := w.holder(c.inode, c.uid, c.claimed)
		if pid != c.want || (err == nil) != (c.want != 0) || err != nil && !errors.Is(err, ErrNoHolder) {
			t.Errorf("%+v: %d, %v", c, pid, err)
		}
	}
}

func TestTheSearchForAHolderIsBounded(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 100, uid: me, sockets: []int{10, 11, 12}})
	p := proc(w.proc)
	// Of the 4 descriptors, as many are examined as are asked for. The folder's order is not that of /proc.
	for first := 1; first <= 5; first++ {
		n := 0
		for inode := range 3 {
			if fd, err := p.holdsAmong(context.Background(), 100, uint64(10+inode), first, 0); err != nil {
				t.Fatal(err)
			} else if fd >= 0 {
				n++
			}
		}
		if n < min(first-1, 3) || n > min(first, 3) {
			t.Errorf("among the first %d descriptors, %d sockets are found", first, n)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := New(w.settings())
	defer c.Close()
	if _, err := c.Holder(ctx, 10, me, 100); !errors.Is(err, errTime) {
		t.Errorf("a search without time: %v", err)
	}

	// Namesakes: one more than are examined. The highest numbers come first.
	for i := range maxNamesakes + 1 {
		w.start(process{pid: 1000 + i, uid: me, space: fmt.Sprintf("pid:[%d]", 10+i), innerPID: 7, sockets: []int{5000 + i}})
	}
	if pid, err := w.holder(5001, me, 7); pid != 1001 || err != nil {
		t.Errorf("the last namesake that is examined: %d, %v", pid, err)
	}
	if pid, err := w.holder(5000, me, 7); !errors.Is(err, ErrNoHolder) {
		t.Errorf("the first namesake that is not: %d, %v", pid, err)
	}
}

// TestAHolderWithAReusedNumber: the process that has the socket is another one after its descriptors were
// read.
func TestAHolderWithAReusedNumber(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 100, uid: me, sockets: []int{7}})
	stat := filepath.Join(w.proc, "100", "stat")
	text, err := os.ReadFile(stat)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(stat)
	if err := unix.Mkfifo(stat, 0o600); err != nil {
		t.Fatal(err)
	}
	// Two reads of stat: of the process that began at some time, and of one that began later.
	go func() {
		for _, s := range []string{string(text), strings.TrimSuffix(string(text), " 1 1\n") + "9 1 1\n"} {
			f, err := os.OpenFile(stat, os.O_WRONLY, 0)
			if err != nil {
				return
			}
			f.WriteString(s)
			f.Close()
			for { // until the reader has closed it
				f, err := os.OpenFile(stat, os.O_WRONLY|unix.O_NONBLOCK, 0)
				if err != nil {
					break
				}
				f.Close()
			}
		}
	}()
	if pid, err := w.holder(7, me, 100); !errors.Is(err, ErrNoHolder) {
		t.Errorf("%d, %v", pid, err)
	}
}

// TestHoldersOnThisMachine: real processes, of this user and of another one, in this pid namespace and in
// another one.
func TestHoldersOnThisMachine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := New(Settings{Mode: Trust})
	defer c.Close()
	for _, p := range []struct {
		name string
		uid  uint32
		attr *syscall.SysProcAttr
	}{
		{"this user's", 0, &syscall.SysProcAttr{}},
		{"another user's", 12345, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}},
		{"in a namespace", 0, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}},
	} {
		if os.Getuid() != 0 && p.name != "this user's" {
			continue // only root can start such a process
		}
		if p.uid == 0 {
			p.uid = me
		}
		pid, says, conn := dialAs(t, l, p.attr)
		inode := uint64(0)
		names, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, n := range names {
			link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, n.Name()))
			if i := socketInode([]byte(link)); i != 0 {
				inode = i
			}
		}
		if inode == 0 {
			t.Fatalf("%s process %d has no socket", p.name, pid)
		}
		if got, err := c.Holder(context.Background(), inode, p.uid, says); err != nil || int(got) != pid {
			t.Errorf("%s process %d, which calls itself %d: found %d, %v", p.name, pid, says, got, err)
		}
		if got, err := c.Holder(context.Background(), inode, p.uid+1, says); !errors.Is(err, ErrNoHolder) {
			t.Errorf("%s process for another user: found %d, %v", p.name, got, err)
		}
		if got, err := c.Holder(context.Background(), inode, p.uid, os.Getpid()); !errors.Is(err, ErrNoHolder) {
			t.Errorf("%s process, which calls itself as this one: found %d, %v", p.name, got, err)
		}
		conn.Close()
	}
}

// dialAs starts a process that connects to l. It returns its pid, and the one that the process sees.
func dialAs(t *testing.T, l net.Listener, attr *syscall.SysProcAttr) (pid, says int, conn net.Conn) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // also for a user who may not enter the folder of the binary
	cmd.Env = []string{role + "=dial " + l.Addr().String()}
	cmd.SysProcAttr = attr
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
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if conn, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	var local string
	if _, err := fmt.Fscan(out, &says, &local); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, says, conn
}
