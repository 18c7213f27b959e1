package identity

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/node/monitor/owner"
	"penstock/node/mounts"
)

// world is a made-up machine: a process file system and a NodeManager's directory.
type world struct {
	t     testing.TB
	proc  string
	local string
	rows  []string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, proc: filepath.Join(dir, "proc"), local: filepath.Join(dir, "nm")}
	w.mkdir(w.proc, "net")
	w.mkdir(w.local, "usercache")
	w.mkdir(w.local, "nmPrivate")
	w.write(heading+"\n", w.proc, "net/tcp")
	// The real machine may have been booted after the start of the world's processes.
	real := uptime
	uptime = func() (time.Duration, error) {
		up, err := real()
		return up + 24*time.Hour, err
	}
	t.Cleanup(func() { uptime = real })
	return w
}

func (w *world) mkdir(path ...string) string {
	w.t.Helper()
	dir := filepath.Join(path...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

func (w *world) write(text string, path ...string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(path...), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) link(target string, path ...string) {
	w.t.Helper()
	name := filepath.Join(path...)
	_ = os.Remove(name)
	if err := os.Symlink(target, name); err != nil {
		w.t.Fatal(err)
	}
}

// me is the user that the test runs as, which also owns the directories.
var me = uint32(os.Getuid())

// process is one of the made-up processes. Zero fields mean an ordinary process: a child of init
// with its own session, of this user, that began now.
type process struct {
	pid, parent, session int
	age                  time.Duration
	began                time.Time // if set, it replaces age
	uid                  uint32
	name                 string
	cgroup, environ      string
	command              []string
	cwd                  string
	exe                  string // none if empty
	sockets              []int
	// Its pid namespace, if it has its own, and its numbers there.
	space                  string
	innerPID, innerSession int
}

func (w *world) start(p process) {
	w.t.Helper()
	if p.parent == 0 {
		p.parent = 1
	}
	if p.session == 0 {
		p.session = p.pid
	}
	if p.name == "" {
		p.name = "java"
	}
	if p.cwd == "" {
		p.cwd = "/"
	}
	if p.cgroup == "" {
		p.cgroup = "0::/\n"
	}
	boot, err := booted()
	if err != nil {
		w.t.Fatal(err)
	}
	began := time.Since(boot) - p.age
	if !p.began.IsZero() {
		began = p.began.Sub(boot)
	}
	dir := w.mkdir(w.proc, strconv.Itoa(p.pid))
	w.write(fmt.Sprintf("%d (%s) S %d %d %d 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 %d 1 1\n",
		p.pid, p.name, p.parent, p.session, p.session, began/ticks), dir, "stat")
	inner, innerSession := "", ""
	if p.space != "" {
		inner, innerSession = fmt.Sprintf("\t%d", p.innerPID), fmt.Sprintf("\t%d", p.innerSession)
	} else {
		p.space = "pid:[1]"
	}
	w.write(fmt.Sprintf("Name:\t%s\nUmask:\t0022\nUid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\nNSpid:\t%d%s\nNSsid:\t%d%s\n",
		p.name, p.uid, p.uid, p.uid, p.uid, p.pid, inner, p.session, innerSession), dir, "status")
	w.mkdir(dir, "ns")
	w.link(p.space, dir, "ns/pid")
	w.write(p.cgroup, dir, "cgroup")
	w.write(p.environ, dir, "environ")
	w.write(strings.Join(p.command, "\x00")+"\x00", dir, "cmdline")
	w.link(p.cwd, dir, "cwd")
	if p.exe != "" {
		w.link(p.exe, dir, "exe")
	}
	fds := w.mkdir(dir, "fd")
	w.link("/dev/null", fds, "0")
	for i, inode := range p.sockets {
		w.link(fmt.Sprintf("socket:[%d]", inode), fds, strconv.Itoa(i+3))
	}
}

func (w *world) end(pid int) {
	if err := os.RemoveAll(filepath.Join(w.proc, strconv.Itoa(pid))); err != nil {
		w.t.Fatal(err)
	}
}

// connect adds the client's end of a connection to the tables.
func (w *world) connect(client, server string, uid uint32, inode int) {
	c, s := netip.MustParseAddrPort(client), netip.MustParseAddrPort(server)
	w.rows = append(w.rows, fmt.Sprintf("%4d: %s %s 01 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0 20 4 30 10 -1",
		len(w.rows), hexAddress(c, false), hexAddress(s, false), uid, inode))
	w.write(heading+"\n"+strings.Join(w.rows, "\n")+"\n", w.proc, "net/tcp")
}

func (w *world) dirOf(user, container string) string {
	return filepath.Join(w.local, "usercache", user, "appcache", owner.ApplicationOf(container), container)
}

// container creates the files that a NodeManager creates for a container, and the container's
// first process.
func (w *world) container(user, container string, session int) {
	w.mkdir(w.dirOf(user, container))
	dir := w.mkdir(w.local, "nmPrivate", owner.ApplicationOf(container), container)
	w.start(process{pid: session, uid: me, name: "bash", cwd: w.dirOf(user, container)})
	w.write(strconv.Itoa(session)+"\n", dir, container+".pid")
}

func (w *world) settings() Settings {
	return Settings{Mode: Verify, Proc: w.proc, LocalDirs: []string{w.local}, Budget: time.Minute}
}

func (w *world) inspector(users Users) *inspector {
	r := newRecords(proc(w.proc), &mounts.Calls{})
	r.setDirs([]string{w.local}, nil)
	return &inspector{proc: proc(w.proc), cgroup: "hadoop-yarn", records: r, users: users}
}

func (w *world) peer(pid int) Peer {
	w.t.Helper()
	p, err := w.inspector(nil).inspect(context.Background(), pid, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// table is the ResourceManager's table of users.
type table map[string]string

func (u table) User(application string) (string, bool) {
	user, ok := u[application]
	return user, ok
}
