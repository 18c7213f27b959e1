package hostile

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/ports"
	"penstock/wire"
)

// TestOneDeviceHangs: one of two disks does not answer. Its streams are let through, and the other
// disk stays governed.
func TestOneDeviceHangs(t *testing.T) {
	n := startNode(t, options{stuck: "1s"})
	hung := cold(t, filepath.Join(dataDir(0), "blk_3"), 8*mib, 0)
	setModel(t, 1, usual)
	r := readOn(t, n, 1)
	watch(t, n)
	free := int64(0)
	r.keepsItsRate(t, func() func() {
		setModel(t, 0, crawl)
		a, err := connect(n.socket, server(0))
		fixture.Must(t, err)
		t.Cleanup(a.close)
		begin := time.Now()
		fixture.Must(t, a.tell(wire.Open{Stream: 1, Direction: wire.Read, Flow: attacker, Path: hung, To: 8 * mib}))
		mark, opened := a.await(1, 0, patience)
		t.Logf("the stream on the disk that hangs was let through after %v", time.Since(begin).Round(time.Millisecond))
		if opened || mark != wire.Unlimited {
			t.Errorf("its mark is %d, want unlimited", mark)
		}
		free = r.free.Load()
		return func() {}
	})
	if n.metric(t, "device_stuck") != 1 {
		t.Error("the number of stuck disks is not 1")
	}
	// The end of a file is read without a mark: at most as much as is staged ahead of a reader.
	if got, all := r.free.Load()-free, r.bytes.Load(); got > all/2 {
		t.Errorf("the neighbour read %d of %d bytes through open gates: its disk is not governed", got, all)
	}
	fixture.Must(t, shared.Disks[0].SetModel(disk.Model{}))
	fixture.EventuallyWithin(t, "the disk is well again", patience, func() bool { return n.metric(t, "device_stuck") == 0 })
}

// slowFile is a file whose reads wait while held is locked.
type slowFile struct {
	fs.Inode
	held sync.RWMutex
}

const slowBytes = 64 * mib

func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.held.RLock()
	defer f.held.RUnlock()
	out.Size, out.Blocks, out.Mode = slowBytes, slowBytes/512, fuse.S_IFREG|0o600
	return 0
}

func (f *slowFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, 0
}

func (f *slowFile) Read(_ context.Context, _ fs.FileHandle, to []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	clear(to)
	return fuse.ReadResultData(to), 0
}

// mountSlow mounts a directory with one slowFile.
func mountSlow(t *testing.T) (dir string, f *slowFile) {
	t.Helper()
	f = &slowFile{}
	root := &fs.Inode{}
	dir = mountFUSE(t, "slow", root, func(ctx context.Context) {
		root.AddChild("blk_4", root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: fuse.S_IFREG}), false)
	})
	return dir, f
}

// mountFUSE mounts a file system in a new directory for the length of the test.
func mountFUSE(t *testing.T, name string, root fs.InodeEmbedder, add func(context.Context)) (dir string) {
	t.Helper()
	dir = filepath.Join(shared.Dir, name)
	id, err := shared.Book.Remove(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	fixture.Must(t, err)
	mount, err := shared.Book.Mount(dir)
	fixture.Must(t, err)
	none := time.Duration(0)
	server, err := fs.Mount(dir, root, &fs.Options{
		AttrTimeout: &none, OnAdd: add,
		MountOptions: fuse.MountOptions{FsName: "penstock-" + name, DirectMountStrict: true, DisableXAttrs: true},
	})
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, server.Unmount())
		fixture.Check(t, shared.Book.Undo(mount, id))
	})
	return dir
}

// TestOneLoopStandsStill: a data directory whose file system does not answer stops the loop of its
// device. Heartbeats continue and name the device, and the other devices stay governed.
func TestOneLoopStandsStill(t *testing.T) {
	dir, f := mountSlow(t)
	n := startNode(t, options{dir: dir})
	setModel(t, 1, usual)
	r := readOn(t, n, 1)
	h := server(1)
	h.Directories = append(h.Directories, dir)
	a, err := connect(n.socket, h)
	fixture.Must(t, err)
	t.Cleanup(a.close)
	if d := a.welcome.Devices; len(d) != 2 || d[0] == 0 || d[1] == 0 || d[0] == d[1] {
		t.Fatalf("devices %d", d)
	}
	turns := func(i int) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.alive&(1<<a.welcome.Devices[i]) != 0
	}
	fixture.EventuallyWithin(t, "both loops run", patience, func() bool { return turns(0) && turns(1) })
	fixture.Must(t, a.tell(wire.Open{Stream: 1, Direction: wire.Write, Flow: attacker, Path: dir + "/blk_4"}))
	if mark, _ := a.await(1, 0, patience); mark == 0 || mark == wire.Unlimited {
		t.Fatalf("the stream is not governed: mark %d", mark)
	}
	release := sync.OnceFunc(f.held.Unlock)
	defer release()
	r.keepsItsRate(t, func() func() {
		f.held.Lock()
		begin := time.Now()
		fixture.Must(t, a.tell(wire.Progress{Stream: 1, Position: slowBytes}))
		fixture.EventuallyWithin(t, "heartbeats report that the loop is stalled", patience, func() bool { return !turns(1) })
		t.Logf("heartbeats reported it after %v", time.Since(begin).Round(time.Millisecond))
		return func() {}
	})
	if turns(1) || !turns(0) {
		t.Error("heartbeats report the wrong devices")
	}
	a.mu.Lock()
	gap := a.gap
	a.mu.Unlock()
	if gap > gapMax {
		t.Errorf("%v without a heartbeat", gap)
	}
	page, err := n.Get(t.Context(), "/status")
	if err != nil || !strings.Contains(string(page), `"silent"`) {
		t.Errorf("the status page: %v", err)
	}
	release()
	fixture.EventuallyWithin(t, "both loops run again", patience, func() bool { return turns(0) && turns(1) })
}

// TestAKilledDaemonIsReplaced: a daemon that is killed while its disk hangs cannot end before the
// disk answers. A new daemon does not wait for that.
func TestAKilledDaemonIsReplaced(t *testing.T) {
	address, err := ports.Address()
	fixture.Must(t, err)
	old := startNode(t, options{listen: address})
	path := cold(t, filepath.Join(dataDir(0), "blk_10"), mib, 0)
	setModel(t, 0, crawl)
	a, err := connect(old.socket, server(0))
	fixture.Must(t, err)
	t.Cleanup(a.close)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	fixture.Must(t, err)
	defer f.Close()
	const written = 4 * mib
	if _, err := f.Write(make([]byte, written)); err != nil {
		t.Fatal(err)
	}
	fixture.Must(t, a.tell(wire.Open{Stream: 1, Direction: wire.Write, Flow: attacker, Path: path}, wire.Progress{Stream: 1, Position: written}))
	fixture.EventuallyWithin(t, "the disk has a quantum", patience, func() bool {
		return old.metric(t, "device_outstanding") > 0 && old.metric(t, "device_kernel_in_flight") > 0
	})
	fixture.Must(t, old.Signal(syscall.SIGKILL))
	time.Sleep(settling)
	if !old.Alive() {
		t.Fatal("the killed daemon has ended: this test has shown nothing")
	}
	begin := time.Now()
	n, err := tryNode(t, t.Name()+"-new", options{listen: address})
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, n.Stop())
	})
	took := time.Since(begin)
	t.Logf("a new daemon was ready after %v", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("a new daemon was ready after %v", took)
	}
	b, err := connect(n.socket, server(1))
	fixture.Must(t, err)
	t.Cleanup(b.close)
	block := cold(t, filepath.Join(dataDir(1), "blk_11"), 4*mib, 0)
	fixture.Must(t, b.tell(wire.Open{Stream: 1, Direction: wire.Read, Flow: neighbour, Path: block, To: 4 * mib}))
	if mark, opened := b.await(1, 0, patience); opened || mark == 0 {
		t.Errorf("the new daemon governs nothing: mark %d", mark)
	}
	if old.Alive() {
		t.Logf("the killed daemon has not ended yet")
	}
	fixture.Must(t, shared.Disks[0].SetModel(disk.Model{}))
	select {
	case <-old.Exited():
	case <-time.After(patience):
		t.Fatal("the killed daemon does not end although its disk answers")
	}
	n.Address = address
	begin = time.Now()
	fixture.EventuallyWithin(t, "the new daemon has the status port", patience, func() bool {
		page, err := n.Get(t.Context(), "/status")
		var doc struct{ PID int }
		return err == nil && json.Unmarshal(page, &doc) == nil && doc.PID == n.PID()
	})
	t.Logf("the new daemon had the status port %v after the old one had ended", time.Since(begin).Round(time.Millisecond))
}
