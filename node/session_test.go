package node

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/node/device"
	"penstock/wire"
)

// Whole sessions of valid frames in any order, with any sizes, against a real daemon on real
// files. Whatever a peer sends, the daemon continues, serves the next peer, uses a bounded number
// of descriptors and bytes, opens no file without permission, and releases everything that it has
// opened.

// sessionFixture is a daemon for sessions, with its files.
type sessionFixture struct {
	*running
	dirs  []string // possible directories of a hello
	paths []string // possible paths of an open
	outer []string // of these, files that the daemon may open for no peer
	files int      // descriptors before the first session
}

const (
	sessionFiles  = 64        // bound on the descriptors of tasks
	sessionMemory = 128 << 20 // of the heap
)

func newSessionFixture(t testing.TB) *sessionFixture {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\ndevice: {lazy_age: 300ms, quantum: 64KiB, backlog: 256KiB}\n", func(d *Daemon) {
		n := 0 // each session comes from another process, because the rate of connections of one process is limited
		d.server.Container = func(int32) string { n++; return strconv.Itoa(n) }
		d.taskFiles.Bound, d.taskFiles.Container = sessionFiles, sessionFiles
	})
	root := filepath.Dir(r.dir)
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	local, data := root+"/local", root+"/data"
	b := &sessionFixture{running: r, dirs: []string{local, local + "/a", local + "/none/yet", local + "/../local", data, "/etc", "/", root}}
	for _, dir := range []string{local, data} {
		for i, size := range []int{0, 1, 4096, 300_000, 5 << 20} {
			name := fmt.Sprintf("%s/a/blk_%d", dir, i)
			for path, n := range map[string]int{name: size, name + "_7.meta": size / 128} {
				r.file(path)
				if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
					t.Fatal(err)
				}
				b.paths = append(b.paths, path)
			}
		}
	}
	b.outer = []string{root + "/outside", "/etc/hostname"}
	r.file(b.outer[0])
	if err := os.Symlink(b.outer[0], local+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, local+"/up"); err != nil {
		t.Fatal(err)
	}
	b.paths = append(b.paths, b.outer...)
	b.paths = append(b.paths, local+"/link", local+"/up/outside", local+"/a/../../outside", local, local+"/gone", "/dev/zero", "x")
	b.settle()
	b.files = len(b.descriptors())
	return b
}

// descriptors returns the descriptors of the process, which belong to the test and the daemon.
func (b *sessionFixture) descriptors() (names []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// settle waits until nothing of a session is left.
func (b *sessionFixture) settle() {
	for deadline := time.Now().Add(20 * time.Second); b.daemon.taskFiles.Held() > 0 || b.daemon.serverFiles.Held() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d descriptors of tasks and %d of servers are not given back:\n%s", b.daemon.taskFiles.Held(), b.daemon.serverFiles.Held(),
				strings.Join(b.descriptors(), "\n"))
		}
	}
}

// positions are interesting positions in a file.
var positions = rapid.OneOf(
	rapid.SampledFrom([]int64{0, 1, 4095, 4096, 64 << 10, 256 << 10, 5 << 20, 1 << 40, maxPosition, maxPosition + 1, 1 << 62, math.MaxInt64}),
	rapid.Int64Range(0, 6<<20))

// frame draws a message of an agent after its hello.
func (b *sessionFixture) frame(t *rapid.T, flow string) wire.Message {
	stream := rapid.Uint32Range(0, 9).Draw(t, "stream")
	switch rapid.IntRange(0, 9).Draw(t, "frame") {
	case 0, 1, 2:
		m := wire.Open{
			Stream: stream, Direction: rapid.SampledFrom([]wire.Direction{wire.Read, wire.Write}).Draw(t, "direction"),
			Kind: rapid.SampledFrom([]wire.Kind{wire.Persistent, wire.Intermediate, wire.Network}).Draw(t, "kind"),
			Flow: rapid.SampledFrom([]string{app, app, app, "clients", "application_1700000000000_0002"}).Draw(t, "flow"),
			Path: rapid.SampledFrom(b.paths).Draw(t, "path"),
			Meta: rapid.SampledFrom(append([]string{"", "", ""}, b.paths...)).Draw(t, "meta"),
			From: positions.Draw(t, "from"), To: positions.Draw(t, "to"),
		}
		if m.To < m.From {
			m.From, m.To = m.To, m.From
		}
		m.Passing = m.Direction == wire.Read && rapid.Bool().Draw(t, "passing")
		return m
	case 3:
		return wire.Close{Stream: stream, Position: positions.Draw(t, "position"), Failed: rapid.Bool().Draw(t, "failed")}
	case 4:
		if rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
			return wire.Mark{Stream: stream}
		}
	}
	return wire.Progress{Stream: stream, Position: positions.Draw(t, "position")}
}

func (b *sessionFixture) session(t *rapid.T) {
	h := wire.Hello{PID: uint32(os.Getpid()), Agent: "test", Flow: app,
		Role:        rapid.SampledFrom([]wire.Role{wire.RoleDataNode, wire.RoleTask, wire.RoleNodeManager, wire.RoleExecutor, wire.RoleWorker}).Draw(t, "role"),
		Directories: rapid.SliceOfN(rapid.SampledFrom(b.dirs), 0, 12).Draw(t, "directories"),
	}
	out, err := wire.Append(nil, h)
	for range rapid.IntRange(0, 120).Draw(t, "frames") {
		if err == nil {
			out, err = wire.Append(out, b.frame(t, h.Flow))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 4).Draw(t, "garbage") == 0 {
		out = append(out, rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "bytes")...)
	}
	reads := rapid.Bool().Draw(t, "reads")
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(b.dir), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(out); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the daemon neither reads nor hangs up")
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err == nil && reads {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the daemon does not hang up")
		}
	}
	b.check(t)
}

// check compares the process's resources with their bounds.
func (b *sessionFixture) check(t *rapid.T) {
	open := b.descriptors()
	for _, name := range open {
		for _, outer := range b.outer {
			if name == outer {
				t.Fatalf("%s is open", name)
			}
		}
	}
	const others = 64 // sockets, pipes, files of servers, and files that are just being closed
	if n := len(open); n > b.files+sessionFiles+others {
		t.Fatalf("%d descriptors, %d at the beginning:\n%s", n, b.files, strings.Join(open, "\n"))
	}
	if n := b.daemon.taskFiles.Held(); n > sessionFiles {
		t.Fatalf("%d files of tasks", n)
	}
	// On a busy machine a loop may be late, but it must respond.
	for deadline := time.Now().Add(10 * time.Second); len(b.daemon.stalled()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the loops are stalled: %v", b.daemon.stalled())
		}
	}
}

// end checks that the next peer is served, and that everything is released.
func (b *sessionFixture) end() {
	b.settle()
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > sessionMemory {
		b.t.Errorf("%d bytes of heap", mem.HeapAlloc)
	}
	path := b.dir + "/last"
	b.put(path, strings.Repeat("x", 1<<20))
	next := b.another(wire.Hello{Role: wire.RoleDataNode, Directories: []string{b.dir}})
	next.send(openOf(1, wire.Read, wire.Persistent, path, 1<<20))
	next.until("the next reader to be served", func() bool { return next.marks[1] == device.Open })
}

func TestSessions(t *testing.T) {
	b := newSessionFixture(t)
	rapid.Check(t, b.session)
	b.end()
}

func FuzzSession(f *testing.F) {
	b := newSessionFixture(f)
	for seed := range byte(4) { // long enough for a session
		long := make([]byte, 16<<10)
		rand.NewChaCha8([32]byte{seed}).Read(long)
		f.Add(long)
	}
	f.Fuzz(rapid.MakeFuzz(b.session))
	b.end()
}
