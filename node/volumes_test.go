package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/node/mounts"
	"penstock/node/mounts/mountstest"
	"penstock/node/status"
	"penstock/wire"
)

// soon is the longest duration of a step that waits for no disk, also on a busy machine.
const soon = 10 * time.Second

// disconnected waits until the daemon ends the connection.
func (r *running) disconnected(why string) {
	r.t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	for {
		if _, err := r.frames.Next(); os.IsTimeout(err) {
			r.t.Fatal("the agent is not disconnected: " + why)
		} else if err != nil {
			return
		}
	}
}

// welcomed connects a DataNode's agent and returns it and the devices of its directories.
func (r *running) welcomed(dirs ...string) (*running, []uint8) {
	r.t.Helper()
	begin := time.Now()
	agent := r.another(wire.Hello{Role: wire.RoleDataNode, Directories: dirs})
	devices := next[wire.Welcome](agent).Devices
	if waited := time.Since(begin); waited > soon {
		r.t.Errorf("welcomed after %v", waited)
	}
	return agent, devices
}

// governs reports whether a file in the directory has a lease.
func (r *running) governs(stream uint32, dir string) bool {
	r.t.Helper()
	block := filepath.Join(dir, "blk_1")
	r.put(block, "")
	r.send(wire.Open{Stream: stream, Direction: wire.Write, Flow: "a", Path: block})
	r.until("a mark", func() bool { return r.marks[stream] > 0 })
	return r.marks[stream] != device.Open
}

// listed adds directories to those of the settings.
func listed(dirs ...string) func(*Daemon) {
	return func(d *Daemon) { d.settings.DataDirs = append(d.settings.DataDirs, dirs...) }
}

// A disk that hangs keeps only its own directory ungoverned. When it answers, its agent registers it.
func TestADiskThatHangs(t *testing.T) {
	other := mountstest.OtherDisk(t)
	r := startWith(t, "enforce", "", listed(other))
	answer := mountstest.Hang(t, &r.daemon.calls, other)
	agent, devices := r.welcomed(r.dir, other)
	if !bytes.Equal(devices, []uint8{1, 0}) {
		t.Fatalf("devices %v", devices)
	}
	if !agent.governs(1, r.dir) {
		t.Error("the other disk is not governed")
	}
	var reasons []status.Ungoverned
	for _, a := range r.status().Agents {
		reasons = append(reasons, a.Ungoverned...)
	}
	if len(reasons) == 0 || reasons[0].Directory != other || reasons[0].Cause != status.Hangs {
		t.Errorf("%+v", reasons)
	}
	// An agent with no other directory is welcome, too: it is governed as soon as the disk answers.
	alone, devices := r.welcomed(other)
	if !bytes.Equal(devices, []uint8{0}) {
		t.Errorf("devices %v", devices)
	}
	answer()
	agent.disconnected("its disk answers")
	alone.disconnected("its disk answers")
	agent, devices = r.welcomed(r.dir, other)
	if !bytes.Equal(devices, []uint8{1, 2}) || !agent.governs(1, other) {
		t.Errorf("devices %v", devices)
	}
}

// A task can name a directory that leads to another file system, which hangs. Servers on the disk of the name are governed
// meanwhile.
func TestADirectoryOfATaskThatHangs(t *testing.T) {
	r := startWith(t, "enforce", "")
	mountstest.Hang(t, &r.daemon.taskCalls, r.dir)
	find := func(role wire.Role) error {
		_, err := r.daemon.findDirectory(directoryOwner{role: role, uid: uint32(os.Getuid())}, r.dir, soon)
		return err
	}
	if err := find(wire.RoleTask); !errors.Is(err, mounts.ErrHangs) {
		t.Errorf("a task's: %v", err)
	}
	if err := find(wire.RoleDataNode); err != nil {
		t.Errorf("a DataNode's: %v", err)
	}
}

// A file system that is mounted later is governed without a restart, and so is another one that is mounted in the place of
// one that was unmounted.
func TestDirectoriesThatComeAndGo(t *testing.T) {
	r := startWith(t, "enforce", "", func(d *Daemon) { listed(filepath.Dir(d.settings.DataDirs[0]) + "/late")(d) })
	late := filepath.Dir(r.dir) + "/late"
	agent, devices := r.welcomed(r.dir, late)
	if !bytes.Equal(devices, []uint8{1, 0}) {
		t.Fatalf("devices %v", devices)
	}
	mkdir := func() {
		t.Helper()
		if err := os.Mkdir(late, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mkdir()
	agent.disconnected("the directory exists")
	agent, devices = r.welcomed(r.dir, late)
	if !bytes.Equal(devices, []uint8{1, 1}) || !agent.governs(1, late) {
		t.Fatalf("devices %v", devices)
	}
	if err := os.Rename(late, late+".away"); err != nil {
		t.Fatal(err)
	}
	mkdir()
	if agent.governs(2, late) {
		t.Error("a file of another directory is governed as one of the former directory")
	}
	agent.disconnected("another directory is there")
	if agent, _ = r.welcomed(r.dir, late); !agent.governs(1, late) {
		t.Error("the other directory is not governed")
	}
}

// The daemon holds no descriptor of a directory, so its file system can be unmounted.
func TestDirectoriesAreNotHeldOpen(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/data]\n")
	r.welcomed(r.dir)
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{r.dir}})
	next[wire.Welcome](task)
	manager := r.another(wire.Hello{Role: wire.RoleNodeManager, Directories: []string{r.dir}})
	next[wire.Welcome](manager)
	spill := filepath.Join(r.dir, "spill")
	r.put(spill, "")
	task.send(openOf(1, wire.Read, wire.Intermediate, spill, 0))
	task.until("a mark", func() bool { return task.marks[1] > 0 })
	task.send(wire.Close{Stream: 1})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var held []string
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(name, r.dir) {
				held = append(held, name)
			}
		}
		if len(held) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("open: %v", held)
		}
	}
}

// Without its own mounts, a peer's directories are the daemon's. A DataNode in a container has the directories that it sees,
// and must own them, also if the settings list them.
func TestWhoseDirectories(t *testing.T) {
	r := start(t, "enforce")
	const stranger = 65534
	pid := os.Getpid()
	if err := os.Chown(r.dir, stranger, -1); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		owner directoryOwner
		dir   string
		found bool
	}{
		"a DataNode, listed":                       {directoryOwner{wire.RoleDataNode, 1, 0}, r.dir, true},
		"in a container, listed, of another user":  {directoryOwner{wire.RoleDataNode, 1, pid}, r.dir, false},
		"in a container, listed, its own":          {directoryOwner{wire.RoleDataNode, stranger, pid}, r.dir, true},
		"in a container, not listed":               {directoryOwner{wire.RoleDataNode, 0, pid}, "/etc", false},
		"in a container that has ended":            {directoryOwner{wire.RoleDataNode, stranger, 1 << 30}, r.dir, false},
		"a task in a container that sees the same": {directoryOwner{wire.RoleTask, stranger, pid}, r.dir + "/a/b", true},
		"a task's, where another user's would be":  {directoryOwner{wire.RoleTask, 1, pid}, r.dir + "/a/b", false},
	} {
		dir, err := r.daemon.findDirectory(c.owner, c.dir, time.Minute)
		if (err == nil) != c.found {
			t.Errorf("%s: %+v, %v", name, dir, err)
		}
	}
	if o := directoryOwnerOf(ipc.Peer{PID: int32(pid)}); o.pid != 0 {
		t.Errorf("this process is in a container: %+v", o)
	}
}
