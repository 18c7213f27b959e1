package hostile

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"penstock/e2e/internal/fixture"
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
	select {
	case <-n.Exited():
	case <-time.After(patience):
		t.Fatal("the daemon does not end while a disk hangs")
	}
	took := time.Since(begin)
	t.Logf("the daemon ended %v after SIGTERM", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("the daemon ended %v after SIGTERM; systemd would have killed it", took)
	}
}
