package processes

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"penstock/node/monitor/owner"
)

// procTree is a /proc for a test.
type procTree struct {
	t      *testing.T
	dir    string
	delays map[int]delays
}

func newProcTree(t *testing.T) (*procTree, *Watch) {
	t.Helper()
	p := &procTree{t, t.TempDir(), map[int]delays{}}
	fs, err := procfs.NewFS(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{proc: fs, delayacct: filepath.Join(p.dir, "acct"), processes: map[int]*process{}, groups: map[Group]*group{},
		of: func(pid int) (delays, error) { return p.delays[pid], nil }}
	return p, w
}

func (p *procTree) write(pid int, name, text string) {
	p.t.Helper()
	dir := filepath.Join(p.dir, strconv.Itoa(pid))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// run adds a process, or changes it.
func (p *procTree) run(pid int, start uint64, cgroup string, read, written int64, d delays) {
	p.t.Helper()
	fields := make([]string, 52)
	for i := range fields {
		fields[i] = "0"
	}
	fields[0], fields[1], fields[2], fields[21] = strconv.Itoa(pid), "(java)", "S", strconv.FormatUint(start, 10)
	p.write(pid, "stat", strings.Join(fields, " ")+"\n")
	p.write(pid, "cgroup", "4:memory:/\n3:blkio:"+cgroup+"\n0::/system.slice/hadoop-nodemanager.service\n")
	p.write(pid, "io", "rchar: 9\nwchar: 9\nsyscr: 0\nsyscw: 0\nread_bytes: "+strconv.FormatInt(read, 10)+"\nwrite_bytes: "+strconv.FormatInt(written, 10)+"\ncancelled_write_bytes: 0\n")
	p.delays[pid] = d
}

func (p *procTree) end(pid int) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, strconv.Itoa(pid))); err != nil {
		p.t.Fatal(err)
	}
}

const (
	container = "container_1700000000000_0001_01_000002"
	app       = "application_1700000000000_0001"
)

func look(t *testing.T, w *Watch, now time.Time, members map[int]Member) []Sum {
	t.Helper()
	if err := w.Look(now, members); err != nil {
		t.Fatal(err)
	}
	return w.Snapshot(100).Sums
}

func TestSums(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	const yarn, docker = "/hadoop-yarn/" + container, "/docker/" + "4b1d5c3a7e9f00112233445566778899aabbccddeeff00112233445566778899"
	p.run(10, 1, yarn, 100, 50, delays{2 * time.Second, time.Second})
	p.run(11, 2, yarn, 10, 5, delays{time.Second, 0})
	p.run(12, 3, docker, 7, 0, delays{})
	p.run(13, 4, "/", 1000, 0, delays{}) // of the NodeManager's unit, by the unified hierarchy
	sums := look(t, w, now, nil)
	if len(sums) != 3 {
		t.Fatalf("%+v", sums)
	}
	ofYARN := Sum{Group{app, owner.Of(yarn)}, 2, 110, 55, time.Second, 3 * time.Second, Window{}}
	if sums[0].Owner.ID != "hadoop-nodemanager.service" || sums[1] != ofYARN || sums[2].Owner.Kind != owner.Docker || sums[2].Flow != "" {
		t.Errorf("%+v", sums)
	}

	// A process ends: its figures stay in the sum. Another process gets the pid.
	p.end(11)
	p.run(10, 9, yarn, 3, 0, delays{})
	sums = look(t, w, now.Add(5*time.Second), nil)
	ofYARN.Processes, ofYARN.Read, ofYARN.Window = 1, 113, Window{Read: 3}
	if sums[1] != ofYARN {
		t.Errorf("%+v, want %+v", sums[1], ofYARN)
	}
	p.end(10)
	ofYARN.Processes, ofYARN.Window = 0, Window{}
	if sums = look(t, w, now.Add(10*time.Second), nil); sums[1] != ofYARN {
		t.Errorf("%+v, want %+v", sums[1], ofYARN)
	}
	if sums = look(t, w, now.Add(5*time.Second+forgetAfter), nil); len(sums) != 3 {
		t.Errorf("forgotten too early: %+v", sums)
	}
	if sums = look(t, w, now.Add(6*time.Second+forgetAfter), nil); len(sums) != 2 {
		t.Errorf("not forgotten: %+v", sums)
	}
}

// TestProcessesWithAnAgent: an application's process may have no cgroup of its own; its application
// may become known late.
func TestProcessesWithAnAgent(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	p.write(10, "cgroup", "0::/\n")
	p.run(10, 1, "/", 100, 0, delays{})
	p.write(10, "cgroup", "0::/\n")
	if sums := look(t, w, now, nil); len(sums) != 0 {
		t.Errorf("a process of nobody: %+v", sums)
	}
	member := map[int]Member{10: {app, container}}
	sums := look(t, w, now.Add(time.Second), member)
	if len(sums) != 1 || sums[0].Flow != app || sums[0].Owner.ID != container || sums[0].Read != 100 {
		t.Fatalf("%+v", sums)
	}
	// The agent has disconnected.
	if sums = look(t, w, now.Add(2*time.Second), nil); len(sums) != 1 || sums[0].Processes != 0 || sums[0].Read != 100 {
		t.Errorf("%+v", sums)
	}
}

// TestACgroupThatComesLate: without an owner, a process is looked at once a minute.
func TestACgroupThatComesLate(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	p.run(10, 1, "/", 1, 0, delays{})
	p.write(10, "cgroup", "0::/\n")
	look(t, w, now, nil)
	p.write(10, "cgroup", "0::/hadoop-yarn/"+container+"\n")
	if sums := look(t, w, now.Add(othersPeriod-1), nil); len(sums) != 0 {
		t.Errorf("looked too early: %+v", sums)
	}
	if sums := look(t, w, now.Add(othersPeriod), nil); len(sums) != 1 {
		t.Errorf("not found: %+v", sums)
	}
}

func TestMissingRights(t *testing.T) {
	p, w := newProcTree(t)
	p.run(10, 1, "/hadoop-yarn/"+container, 5, 0, delays{})
	w.of = func(int) (delays, error) { return delays{}, unix.EPERM }
	if err := w.Look(time.Now(), nil); !errors.Is(err, unix.EPERM) {
		t.Errorf("%v", err)
	}
	if s := w.Snapshot(1); len(s.Sums) != 1 || s.Sums[0].Read != 5 || s.Accounting {
		t.Errorf("%+v", s)
	}
	w.of = nil
	p.end(10)
	for i, text := range []string{"0\n", "1\n"} {
		if err := os.WriteFile(w.delayacct, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		look(t, w, time.Now(), nil)
		if on := w.Snapshot(0).Accounting; on != (i == 1) {
			t.Errorf("accounting %q: %v", text, on)
		}
	}
}

func TestBounds(t *testing.T) {
	w := &Watch{groups: map[Group]*group{}, processes: map[int]*process{}}
	for pid := range maxGroups {
		w.processes[pid] = &process{owned: true, group: Group{Flow: strconv.Itoa(pid)}}
	}
	if sums, full := w.addUp(time.Now()); len(sums) != maxGroups || full {
		t.Errorf("%d of %d, full: %v", len(sums), maxGroups, full)
	}
	w.processes[maxGroups] = &process{owned: true, group: Group{Flow: "one more"}}
	if sums, full := w.addUp(time.Now()); len(sums) != maxGroups || !full {
		t.Errorf("%d of %d, full: %v", len(sums), maxGroups+1, full)
	}
}

// TestThisMachine: the kernel's figures of a process that reads and waits for a CPU.
func TestThisMachine(t *testing.T) {
	w, err := New()
	if err != nil {
		t.Log(err) // without root
		return
	}
	name := filepath.Join(t.TempDir(), "file")
	cmd := exec.Command("sh", "-c", "head -c 1048576 /dev/zero >"+name+"; sync "+name+"; read x")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	members := map[int]Member{cmd.Process.Pid: {app, container}}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := w.Look(time.Now(), members); err != nil {
			t.Fatal(err)
		}
		sums := w.Snapshot(maxGroups).Sums
		if i := slices.IndexFunc(sums, func(s Sum) bool { return s.Flow == app }); i >= 0 && sums[i].RunDelay > 0 && sums[i].Processes == 1 {
			t.Logf("%+v", sums[i])
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not found in 20 s: %+v", sums)
		}
	}
}

// answer is the kernel's answer about a process.
func answer(d delays) []byte {
	var s unix.Taskstats
	s.Cpu_delay_total, s.Blkio_delay_total = uint64(d.run), uint64(d.block)
	stats := unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s))
	attr := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value)))
		return append(binary.NativeEndian.AppendUint16(b, kind), value...)
	}
	inner := append(attr(unix.TASKSTATS_TYPE_TGID, []byte{1, 0, 0, 0}), attr(unix.TASKSTATS_TYPE_STATS, stats)...)
	return append(make([]byte, nl.SizeofGenlmsg), attr(unix.TASKSTATS_TYPE_AGGR_TGID, inner)...)
}

func FuzzParseDelays(f *testing.F) {
	f.Add(answer(delays{1, 2}))
	f.Add([]byte{1, 2, 3, 4, 4, 0, 5, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := parseDelays(b); ok && (d.run < 0 || d.block < 0) {
			t.Errorf("%+v", d)
		}
	})
}

func TestParseDelays(t *testing.T) {
	want := delays{3 * time.Second, 5 * time.Millisecond}
	if got, ok := parseDelays(answer(want)); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
}
