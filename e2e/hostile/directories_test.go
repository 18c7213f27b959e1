package hostile

import (
	"context"
	"fmt"
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
	"penstock/lab/stand"
	"penstock/wire"
)

// slowFolder is a directory that cannot be opened while held is locked.
type slowFolder struct {
	fs.Inode
	held sync.RWMutex
}

func (f *slowFolder) Opendir(context.Context) syscall.Errno {
	f.held.RLock()
	defer f.held.RUnlock()
	return 0
}

func (f *slowFolder) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.held.RLock()
	defer f.held.RUnlock()
	out.Mode = fuse.S_IFDIR | 0o755
	return 0
}

// An agent waits for its WELCOME for this long.
const welcomeMax = time.Second

// TestADirectoryThatHangs: one of a DataNode's directories is on a disk that hangs. The DataNode's other directory is
// governed at once, and this one when its disk answers. However many agents connect meanwhile, they are served, and
// the daemon ends on SIGTERM.
func TestADirectoryThatHangs(t *testing.T) {
	folder := &slowFolder{}
	dir := mountFUSE(t, "hangs", folder, nil)
	n := startNode(t, options{dir: dir})
	both := server(1)
	both.Directories = append(both.Directories, dir)
	folder.held.Lock()
	release := sync.OnceFunc(folder.held.Unlock)
	defer release()
	join := func(governed int) *agent {
		t.Helper()
		begin := time.Now()
		a, err := connect(n.socket, both)
		fixture.Must(t, err)
		t.Cleanup(a.close)
		took := time.Since(begin)
		if took > welcomeMax {
			t.Errorf("an agent waited for %v, and would have given up", took)
		}
		for i, d := range a.welcome.Devices {
			if (d != 0) != (i < governed) {
				t.Fatalf("devices %d: want the first %d governed", a.welcome.Devices, governed)
			}
		}
		return a
	}
	var agents []*agent
	for range 20 {
		agents = append(agents, join(1))
	}
	block := cold(t, dataDir(1)+"/blk_12", 4*mib, 0)
	fixture.Must(t, agents[0].tell(wire.Open{Stream: 1, Direction: wire.Read, Flow: neighbour, Path: block, To: 4 * mib}))
	if mark, opened := agents[0].await(1, 0, patience); opened || mark == 0 {
		t.Errorf("the other directory is not governed: mark %d", mark)
	}
	page, err := n.Get(t.Context(), "/status")
	fixture.Must(t, err)
	if !strings.Contains(string(page), `"cause": "hangs"`) {
		t.Error("the status names no directory that hangs")
	}

	release()
	begin := time.Now()
	fixture.EventuallyWithin(t, "the agents are disconnected, to register the directory", patience, func() bool {
		for _, a := range agents {
			a.mu.Lock()
			ended := a.ended
			a.mu.Unlock()
			if !ended {
				return false
			}
		}
		return true
	})
	t.Logf("all agents were disconnected %v after the disk answered", time.Since(begin).Round(time.Millisecond))
	join(2)

	folder.held.Lock()
	defer folder.held.Unlock()
	join(1)
	begin = time.Now()
	fixture.Must(t, n.Signal(syscall.SIGTERM))
	// The kernel keeps the thread that waits for the disk until the disk answers. All that belongs to the daemon has ended.
	fixture.EventuallyWithin(t, "the daemon ends while a disk hangs", patience, func() bool {
		select {
		case <-n.Exited():
			return true
		default:
		}
		state, err := n.State()
		return err == nil && state == "Z"
	})
	took := time.Since(begin)
	t.Logf("the daemon ended %v after SIGTERM", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("the daemon ended %v after SIGTERM; systemd would have killed it", took)
	}
}

// TestADataNodeInAContainer: a DataNode has mounts of its own. Its directory is found through its mounts, and not at the
// same path of the machine.
func TestADataNodeInAContainer(t *testing.T) {
	inside := filepath.Join(shared.Dir, "inside")
	fixture.Must(t, os.Mkdir(inside, 0o755))
	t.Cleanup(func() { os.Remove(inside) })
	n := startNode(t, options{dir: inside})
	block := cold(t, filepath.Join(dataDir(0), "blk_13"), 4*mib, 0)
	a := run(t, plan{Attack: "container", Socket: n.socket, Bind: dataDir(0), Dir: inside, Path: filepath.Join(inside, "blk_13")})
	onDisk := fmt.Sprintf("device=%q", stand.KernelName(shared.Disks[0]))
	fixture.EventuallyWithin(t, "the block is staged and charged", patience, func() bool {
		return n.metric(t, "flow_bytes_total", fmt.Sprintf("flow=%q", neighbour), onDisk) >= mib
	})
	if got := resident(t, block); got < mib {
		t.Errorf("only %d bytes of the block are in memory", got)
	}
	if entries, err := os.ReadDir(inside); err != nil || len(entries) > 0 {
		t.Fatalf("the machine sees %v at the same path (%v): this test has shown nothing", entries, err)
	}
	if c := a.end(t); c["device"] == 0 {
		t.Error("the directory is not governed")
	}
}
