package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/config"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/wire"
)

// Hostile peers that send valid frames. They are unprivileged: the tests register them as a user
// that owns nothing here.

const attacker = 64001

// register registers a peer of that user, as its connection would.
func (r *running) register(uid uint32, h wire.Hello) ipc.Registration {
	r.t.Helper()
	reg, err := r.daemon.Register(ipc.Peer{PID: int32(os.Getpid()), UID: uid, Owner: ipc.Owner{UID: uid, Container: "c"}, Hello: h})
	if err != nil {
		r.t.Fatal(err)
	}
	return reg
}

// let is a Marker for streams that do not wait.
type let struct{}

func (let) Mark(uint32, int64) {}

// file creates a file that only the test's own user may read.
func (r *running) file(path string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// Another user's file is never opened, neither as a block nor as a meta file.
func TestOnlyTheOwnersFiles(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\n")
	me := uint32(os.Geteuid())
	local := filepath.Join(filepath.Dir(r.dir), "local")
	finalized := r.dir + "/current/finalized"
	for _, path := range []string{local + "/blk_1", local + "/blk_1_1001.meta", finalized + "/blk_-7", finalized + "/blk_-7_1001.meta",
		finalized + "/blk_8_1001.meta", r.dir + "/current/blk_-7_1001.meta"} {
		r.file(path)
	}
	for _, c := range []struct {
		uid        uint32
		role       wire.Role
		kind       wire.Kind
		path, meta string
		good       bool
	}{
		{me, wire.RoleTask, wire.Intermediate, local + "/blk_1", "", true},
		{me, wire.RoleTask, wire.Persistent, local + "/blk_1", "", true},
		{me, wire.RoleTask, wire.Persistent, local + "/blk_1", local + "/blk_1_1001.meta", false},
		{me, wire.RoleTask, wire.Intermediate, local + "/blk_1", local + "/blk_1_1001.meta", false},
		{me, wire.RoleExecutor, wire.Persistent, local + "/blk_1", local + "/blk_1_1001.meta", false},
		{me, wire.RoleNodeManager, wire.Persistent, local + "/blk_1", local + "/blk_1_1001.meta", false},
		{attacker, wire.RoleTask, wire.Intermediate, local + "/blk_1", "", false},
		{attacker, wire.RoleTask, wire.Persistent, local + "/blk_1", "", false},
		{me, wire.RoleWorker, wire.Intermediate, local + "/blk_1", "", true},
		{me, wire.RoleWorker, wire.Persistent, local + "/blk_1", local + "/blk_1_1001.meta", false},
		{attacker, wire.RoleExecutor, wire.Intermediate, local + "/blk_1", "", false},
		{attacker, wire.RoleWorker, wire.Intermediate, local + "/blk_1", "", false},

		// A DataNode may open the meta file of the block, and no other meta file.
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", "", true},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7_1001.meta", true},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/../finalized/blk_-7_1001.meta", true},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7_1002.meta", true}, // the file is missing
		{me, wire.RoleDataNode, wire.Intermediate, finalized + "/blk_-7", finalized + "/blk_-7_1001.meta", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_8_1001.meta", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", r.dir + "/current/blk_-7_1001.meta", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7_1001", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7_x.meta", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7_-1.meta", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7.meta", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7", false},
		{me, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", "/etc/shadow", false},
		{me, wire.RoleDataNode, wire.Persistent, r.dir + "/current/x", r.dir + "/current/x_1.meta", false},
		{attacker, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", "", false},
		{attacker, wire.RoleDataNode, wire.Persistent, finalized + "/blk_-7", finalized + "/blk_-7_1001.meta", false},
	} {
		dir := local
		if c.role == wire.RoleDataNode {
			dir = r.dir
		}
		h := wire.Hello{Role: c.role, Directories: []string{dir}}
		if !ipc.Serves(c.role) {
			h.Flow = app
		}
		reg := r.register(c.uid, h)
		m := openOf(1, wire.Read, c.kind, c.path, 8192)
		m.Meta = c.meta
		stream, err := reg.Open(m, let{})
		if (err == nil) != c.good || err != nil && !errors.Is(err, os.ErrPermission) {
			t.Errorf("%v: %v", c, err)
		}
		if err == nil {
			if there := strings.HasSuffix(c.meta, "1001.meta"); (stream.(*device.Stream).Meta != nil) != there {
				t.Errorf("%v: with its meta file: %v", c, !there)
			}
			stream.Close(-1)
		}
		reg.Close()
	}
}

// A task may not name a meta file through the socket either: its stream passes ungoverned and is
// counted.
func TestATasksMetaFileIsCounted(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\n")
	local := filepath.Join(filepath.Dir(r.dir), "local")
	r.file(local + "/blk_1")
	r.file(local + "/blk_1_1.meta")
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{local}})
	m := openOf(1, wire.Read, wire.Persistent, local+"/blk_1", 8192)
	m.Meta = local + "/blk_1_1.meta"
	task.send(m)
	task.until("it to be let through", func() bool { return task.marks[1] == device.Open })
	if got := task.metric("penstock_agent_open_errors_total"); got != "1" {
		t.Errorf("%s open errors", got)
	}
}

// Beyond the bound on open files, a stream is not governed; this is counted, and logged once.
// Closing a file makes room for another one. Servers have a bound of their own.
func TestOpenFilesAreBounded(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\ndevice: {lazy_age: 300ms}\n")
	local := filepath.Join(filepath.Dir(r.dir), "local")
	r.file(local + "/f")
	block := r.dir + "/blk_1"
	r.file(block)
	const bound = 40
	r.daemon.taskFiles.Bound, r.daemon.taskFiles.Container = bound, bound/2
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{local, local + "/", local}})
	const streams = 100
	for i := range uint32(streams) {
		task.send(openOf(i, wire.Write, wire.Intermediate, local+"/f", 0))
	}
	task.until("all marks", func() bool { return len(task.marks) == streams })
	over := fmt.Sprint(streams - (bound/2 - 1)) // a directory counts once, however often it is named
	if got := task.metric("penstock_agent_over_bound_total"); got != over || task.metric("penstock_agent_open_errors_total") != over {
		t.Errorf("%s streams beyond the bound, want %s", got, over)
	}
	if got := task.metric(`penstock_agent_files{role="task"}`); got != fmt.Sprint(bound/2) {
		t.Errorf("%s files", got)
	}
	r.send(openOf(1, wire.Write, wire.Persistent, block, 0))
	r.until("a lease for the DataNode", func() bool { return r.marks[1] > 0 && r.marks[1] != device.Open })
	task.conn.Close()
	r.until("the descriptors to be given back", func() bool { return r.metric(`penstock_agent_files{role="task"}`) == "0" })
	if got := r.metric(`penstock_agent_files{role="server"}`); got != "2" { // directory and block
		t.Errorf("%s files of servers", got)
	}
	if doc := r.status(); doc.SocketCounts.LogSuppressed == 0 || doc.SocketCounts.OverBound == 0 {
		t.Errorf("counts: %+v", doc.SocketCounts)
	}
}

// Many directories, and repeated ones, use no more than their bound.
func TestDirectoriesAreBounded(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\n")
	local := filepath.Join(filepath.Dir(r.dir), "local")
	var dirs []string
	for i := range wire.MaxDirectories {
		dirs = append(dirs, fmt.Sprintf("%s/d%d", local, i))
	}
	if err := os.Mkdir(local, 0o755); err != nil {
		t.Fatal(err)
	}
	r.daemon.taskFiles.Container = maxTaskDirs / 2
	reg := r.register(attacker, wire.Hello{Role: wire.RoleTask, Flow: app, Directories: dirs})
	if got := r.daemon.taskFiles.Held(); got != maxTaskDirs/2 {
		t.Errorf("%d descriptors", got)
	}
	reg.Close()
	_, err := r.daemon.Register(ipc.Peer{UID: attacker, Owner: ipc.Owner{UID: attacker}, Hello: wire.Hello{
		Role: wire.RoleTask, Flow: app, Directories: []string{"/etc", "/nowhere"}}})
	if err == nil || r.daemon.taskFiles.Held() != 0 {
		t.Errorf("registered: %v; %d descriptors left", err, r.daemon.taskFiles.Held())
	}
}

// The status port is in use, for example by a daemon that was killed and cannot end: the new daemon
// governs without the port, and listens there once it is free.
func TestTheStatusPortIsInUse(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	root := t.TempDir()
	file := filepath.Join(root, "node.yaml")
	text := fmt.Sprintf("socket: s\nlisten: %s\nidentity: {mode: trust}\n", held.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := config.LoadNode(file)
	if err != nil {
		t.Fatal(err)
	}
	var logs syncBuffer
	d, err := New(settings, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	wait := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			select {
			case err := <-done:
				t.Fatalf("waiting for %s: the daemon ended: %v\n%s", what, err, logs.String())
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %s\n%s", what, logs.String())
			}
		}
	}
	wait("an agent's welcome", func() bool {
		c, err := net.Dial("unix", filepath.Join(root, "s"))
		if err != nil {
			return false
		}
		defer c.Close()
		b, err := wire.Append(nil, wire.Hello{Role: wire.RoleNodeManager, Agent: "x"})
		if err == nil {
			_, err = c.Write(b)
		}
		if err != nil {
			return false
		}
		m, err := wire.NewReader(c).Next()
		_, welcome := m.(wire.Welcome)
		return err == nil && welcome
	})
	if n := strings.Count(logs.String(), "an address is in use"); n != 1 {
		t.Errorf("said %d times:\n%s", n, logs.String())
	}
	held.Close()
	wait("the status", func() bool {
		resp, err := http.Get("http://" + held.Addr().String() + "/-/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Clients that keep connections to the status port open do not use up the descriptors.
func TestStatusConnectionsAreBounded(t *testing.T) {
	r := start(t, "enforce")
	address := strings.TrimPrefix(r.url, "http://")
	var ended atomic.Int32
	var all sync.WaitGroup
	for range 2 * maxWebConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				ended.Add(1)
			}
		})
	}
	all.Wait()
	if n := ended.Load(); n < maxWebConnections {
		t.Errorf("%d of %d connections were hung up on", n, 2*maxWebConnections)
	}
}
