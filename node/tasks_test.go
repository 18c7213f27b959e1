package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/node/config"
	"penstock/node/device"
	"penstock/wire"
)

const app = "application_1700000000000_0001"

func openOf(stream uint32, direction wire.Direction, kind wire.Kind, path string, to int64) wire.Open {
	return wire.Open{Stream: stream, Direction: direction, Kind: kind, Flow: app, Path: path, To: to}
}

func (r *running) flowMetric(name, labels string) string {
	r.t.Helper()
	return r.metric(fmt.Sprintf("penstock_flow_%s{device=%q%s,flow=%q}", name, r.deviceName(), labels, app))
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A task names a directory that is created later, writes a spill there, deletes it, and writes a
// file that stays.
func TestATaskIsServed(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\ndevice: {lazy_age: 300ms}\n")
	local := filepath.Join(filepath.Dir(r.dir), "local")
	if err := os.Mkdir(local, 0o755); err != nil {
		t.Fatal(err)
	}
	work := local + "/usercache/u/appcache/" + app
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{work}})
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	spill, merged := work+"/spill0.out", work+"/file.out"
	for i, path := range []string{spill, merged} {
		stream := uint32(i + 1)
		task.put(path, strings.Repeat("x", size))
		task.send(openOf(stream, wire.Write, wire.Intermediate, path, 0))
		task.until("a lease", func() bool { return task.marks[stream] >= size })
		if i == 0 {
			if err := os.Remove(spill); err != nil {
				t.Fatal(err)
			}
		}
		task.send(wire.Close{Stream: stream, Position: size})
	}
	task.until("the file to be drained at its age", func() bool {
		return task.metric(fmt.Sprintf(`penstock_flow_bytes_total{device=%q,direction="write",flow=%q,kind="intermediate"}`, task.deviceName(), app)) == "1.048576e+06"
	})
	if got := task.flowMetric("lazy_dropped_files_total", ""); got != "1" {
		t.Errorf("%s files dropped", got)
	}
	// The kernel may have written a part before, if others have made many pages dirty.
	dropped, kernel := task.flowMetric("lazy_dropped_bytes_total", ""), task.flowMetric("unscheduled_bytes_total", "")
	if d, k := number(t, dropped), number(t, kernel); d+k < size || d > size {
		t.Errorf("%s bytes dropped, %s written by the kernel", dropped, kernel)
	}
	// The task reads that file again.
	task.send(openOf(3, wire.Read, wire.Intermediate, merged, size))
	task.until("the file to be staged", func() bool { return task.marks[3] == device.Open })

	// Files that are not below its directory, are reached by a link, are missing, or belong to
	// another user.
	outside := local + "/usercache/u/other"
	task.put(outside, "x")
	if err := os.Symlink(local, work+"/link"); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{outside, work + "/../../other", work + "/link/usercache/u/other", work, "/etc/passwd"} {
		task.send(openOf(uint32(10+i), wire.Read, wire.Intermediate, path, 1))
	}
	task.send(openOf(20, wire.Write, wire.Intermediate, work+"/gone", 0))
	other := openOf(21, wire.Read, wire.Intermediate, merged, 1)
	other.Flow = "application_1700000000000_0002"
	task.send(other)
	task.until("them to be let through", func() bool {
		n := 0
		for _, mark := range task.marks {
			if mark == device.Open {
				n++
			}
		}
		return n == 8
	})
	for name, want := range map[string]string{"open_errors": "5", "gone_files": "1", "other_flows": "1"} {
		if got := task.metric("penstock_agent_" + name + "_total"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestATaskWithoutADirectoryIsRefused(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\n")
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{r.dir, filepath.Dir(r.dir) + "/locality"}})
	if m, err := task.frames.Next(); err == nil {
		t.Errorf("a task of data directories got %v", m)
	}
	// A NodeManager may still send.
	manager := r.another(wire.Hello{Role: wire.RoleNodeManager, Directories: []string{r.dir}})
	manager.send(openOf(1, wire.Write, wire.Network, "/anything", 10))
	manager.until("a mark", func() bool { return manager.marks[1] == device.Open })
}

// If a rate is set, a NodeManager sends at that rate; no file is examined.
func TestSendingIsGoverned(t *testing.T) {
	r := startWith(t, "enforce", "network: {rate: 1MiB}\n")
	manager := r.another(wire.Hello{Role: wire.RoleNodeManager})
	begin := time.Now()
	const size = 1 << 20
	manager.send(openOf(1, wire.Write, wire.Network, "/no/such/file.out", size))
	for pos := int64(0); pos < size; {
		manager.until("leave to send", func() bool { return manager.marks[1] > pos })
		pos = min(size, manager.marks[1])
		manager.send(wire.Progress{Stream: 1, Position: pos})
	}
	manager.send(wire.Close{Stream: 1, Position: size})
	if took := time.Since(begin); took < 700*time.Millisecond { // all but the first quantum
		t.Errorf("1 MiB at 1 MiB/s took %v", took)
	}
	sent := fmt.Sprintf(`penstock_flow_bytes_total{device="network",direction="write",flow=%q,kind="network"}`, app)
	manager.until("it to be accounted for", func() bool { return manager.metric(sent) == "1.048576e+06" })
	if got := r.daemon.Stride(wire.RoleNodeManager); got != 64<<10 {
		t.Errorf("who sends reports every %d bytes", got)
	}
	if got := r.daemon.Stride(wire.RoleDataNode); got != 512<<10 {
		t.Errorf("a DataNode reports every %d bytes", got)
	}
	if doc := r.status(); len(doc.Silent) != 0 {
		t.Errorf("silent: %v", doc.Silent)
	}
}

// A standalone Spark's Worker has fewer rights than a NodeManager: it may open no stream of kind network, and its directories
// hold no records of containers. Every user may be allowed to write there.
func TestAWorkerIsNoNodeManager(t *testing.T) {
	r := launch(t, "enforce", "identity: {mode: verify}\n")
	for role, isManager := range map[wire.Role]bool{wire.RoleNodeManager: true, wire.RoleWorker: false} {
		local := filepath.Join(t.TempDir(), "local")
		reg := r.register(uint32(os.Geteuid()), wire.Hello{Role: role, Directories: []string{local}})
		if stream, err := reg.Open(openOf(1, wire.Write, wire.Network, "/anything", 10), let{}); (err == nil) != isManager {
			t.Errorf("role %d sends: %v", role, err)
		} else if err == nil {
			stream.Close(-1)
		}
		r.daemon.dirsMu.Lock()
		if r.daemon.localDirs[local] != isManager {
			t.Errorf("role %d: the directory has records: %v", role, !isManager)
		}
		r.daemon.dirsMu.Unlock()
	}
}

func TestLocalDirectories(t *testing.T) {
	root := t.TempDir()
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	local, link := root+"/local", root+"/link"
	for _, dir := range []string{local, local + "/nested", root + "/localer"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(local, link); err != nil {
		t.Fatal(err)
	}
	me := uint32(os.Getuid())
	st, err := os.Stat("/")
	if err != nil {
		t.Fatal(err)
	}
	rootOwner := st.Sys().(*syscall.Stat_t).Uid
	const nobody = 65534
	for _, c := range []struct {
		listed []string
		path   string
		uid    uint32
		want   string // the opened directory; "": none
	}{
		{[]string{local}, local, nobody, local},
		{[]string{local}, local + "/a/b/c", nobody, local},
		{[]string{local}, local + "/a/../../localer", nobody, ""},
		{[]string{local}, root + "/localer", nobody, ""},
		{[]string{local}, root, nobody, ""},
		{[]string{local}, "local", nobody, ""},
		{[]string{local, local + "/nested"}, local + "/nested/a", nobody, local + "/nested"},
		{[]string{link}, local + "/a", nobody, local},
		{[]string{link}, link + "/a", nobody, link},
		{[]string{root + "/missing"}, root + "/missing/a", nobody, ""},
		{nil, local, me, local},
		{nil, local + "/a/b", me, local},
		{nil, local + "/a/b", nobody, ""},
		{nil, "/etc", rootOwner + 1, ""},
	} {
		d := &Daemon{settings: &config.Node{LocalDirs: c.listed}}
		dir, within, err := d.localDir(directoryOwner{role: wire.RoleTask, uid: c.uid}, c.path)
		got := ""
		if err == nil {
			got = dir.Path
			dir.Close()
			if within != filepath.Clean(c.path) {
				t.Errorf("%s: within %s", c.path, within)
			}
		}
		if got != c.want {
			t.Errorf("%s of user %d, listed %v: %q, want %q (%v)", c.path, c.uid, c.listed, got, c.want, err)
		}
	}
}
