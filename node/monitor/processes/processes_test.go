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

	parents map[int]int
}

func newProcTree(t *testing.T) (*procTree, *Watch) {
	t.Helper()
	p := &procTree{t, t.TempDir(), map[int]delays{}, map[int]int{}}
	fs, err := procfs.NewFS(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{proc: fs, hierarchy: "hadoop-yarn", delayacct: filepath.Join(p.dir, "acct"), processes: map[int]*process{}, groups: map[Group]*group{},
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
	fields[0], fields[1], fields[2], fields[3], fields[21] = strconv.Itoa(pid), "(java)", "S", strconv.Itoa(p.parents[pid]), strconv.FormatUint(start, 10)
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

func sumOf(t *testing.T, sums []Sum, match func(Sum) bool) Sum {
	t.Helper()
	i := slices.IndexFunc(sums, match)
	if i < 0 {
		t.Fatalf("no such sum: %+v", sums)
	}
	return sums[i]
}

func ofYARN(s Sum) bool { return s.Owner.ID == container }
func ofUnit(s Sum) bool { return s.Owner.Kind == owner.Unit }

const (
	yarn   = "/hadoop-yarn/" + container
	docker = "/docker/4b1d5c3a7e9f00112233445566778899aabbccddeeff00112233445566778899"
	second = time.Second
)

func TestSums(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	p.run(9, 1, yarn, 5000, 0, delays{second, second}) // older than the first look
	if got := look(t, w, now, nil)[0]; got.Read != 0 || got.RunDelay != 0 || got.Processes != 1 {
		t.Errorf("before the first look: %+v", got)
	}
	p.run(10, 2, yarn, 100, 50, delays{2 * second, second})
	p.run(11, 3, yarn, 10, 5, delays{second, 0})
	p.run(12, 4, docker, 7, 0, delays{})
	p.run(13, 5, "/", 1000, 0, delays{}) // of the NodeManager's unit, by the unified hierarchy
	sums := look(t, w, now.Add(5*second), nil)
	want := Sum{Group{app, owner.Of(yarn)}, 3, 110, 55, second, 3 * second, 0, 0, Window{110, 55, second, 3 * second, 0}}
	if got := sumOf(t, sums, ofYARN); got != want || len(sums) != 3 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := sumOf(t, sums, func(s Sum) bool { return s.Owner.Kind == owner.Docker }); got.Flow != "" || got.Read != 7 {
		t.Errorf("%+v", got)
	}
	if got := sumOf(t, sums, ofUnit); got.Owner.ID != "hadoop-nodemanager.service" || got.Read != 1000 {
		t.Errorf("%+v", got)
	}

	// A process ends, and its figures stay in the sum; another one gets the pid of the next. A third
	// is a zombie, of which the kernel has no waits.
	p.end(11)
	p.run(9, 1, yarn, 5000, 0, delays{})
	p.run(10, 9, yarn, 3, 0, delays{})
	want = Sum{want.Group, 2, 113, 55, second, 3 * second, 0, 0, Window{Read: 3}}
	if got := sumOf(t, look(t, w, now.Add(10*second), nil), ofYARN); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	p.end(9)
	p.end(10)
	want.Processes, want.Window = 0, Window{}
	if got := sumOf(t, look(t, w, now.Add(15*second), nil), ofYARN); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if sums = look(t, w, now.Add(10*second+forgetAfter), nil); len(sums) != 3 {
		t.Errorf("forgotten too early: %+v", sums)
	}
	if sums = look(t, w, now.Add(11*second+forgetAfter), nil); len(sums) != 2 {
		t.Errorf("not forgotten: %+v", sums)
	}
}

// TestImpossibleWaits: the kernel may count the time since the boot as a wait.
func TestImpossibleWaits(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	p.run(9, 1, yarn, 0, 0, delays{0, 44 * time.Hour}) // before the first look: for nobody
	look(t, w, now, nil)
	waits := func(at time.Duration) time.Duration {
		return sumOf(t, look(t, w, now.Add(at), nil), ofYARN).BlockDelay
	}
	most := possibleWait(5*second, 1)
	p.run(9, 1, yarn, 0, 0, delays{0, 44*time.Hour + most}) // the most that is possible
	if got := waits(5 * second); got != most || w.Snapshot(0).Implausible {
		t.Errorf("%v of %v", got, most)
	}
	p.run(9, 1, yarn, 0, 0, delays{0, 88 * time.Hour})
	if got := waits(10 * second); got != 2*most || !w.Snapshot(0).Implausible {
		t.Errorf("%v, want %v", got, 2*most)
	}
	p.run(9, 1, yarn, 0, 0, delays{0, 88*time.Hour + second}) // right again
	p.run(10, 2, yarn, 0, 0, delays{0, 9 * time.Hour})        // began since the last look
	if got := waits(15 * second); got != 3*most+second {
		t.Errorf("%v, want %v", got, 3*most+second)
	}
	if one, many := possibleWait(second, 0), possibleWait(second, 7); one < second || many != 7*one {
		t.Errorf("%v, %v", one, many)
	}
}

// TestChildrenCountOnce: the kernel adds the bytes of a child that has ended to its parent, which
// belongs to another owner here.
func TestChildrenCountOnce(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	p.run(100, 1, "/", 50, 0, delays{}) // the NodeManager
	look(t, w, now, nil)
	p.parents[200], p.parents[201] = 100, 200
	p.run(200, 2, yarn, 1, 0, delays{})         // a container's shell
	p.run(201, 3, yarn, 1_000_000, 0, delays{}) // and its JVM
	look(t, w, now.Add(5*second), nil)
	p.end(201)
	p.run(200, 2, yarn, 1_000_002, 0, delays{}) // 1 byte of its own is new
	if got := sumOf(t, look(t, w, now.Add(10*second), nil), ofYARN); got.Read != 1_000_002 || got.Window.Read != 1 {
		t.Errorf("after the JVM: %+v", got)
	}
	p.end(200)
	p.run(100, 1, "/", 50+1_000_002+20, 0, delays{})
	sums := look(t, w, now.Add(15*second), nil)
	if got := sumOf(t, sums, ofYARN); got.Read != 1_000_002 {
		t.Errorf("after the container: %+v", got)
	}
	if got := sumOf(t, sums, ofUnit); got.Read != 20 || got.Window.Read != 20 {
		t.Errorf("the NodeManager: %+v, want 20 bytes", got)
	}
}

// TestCPUTimeAndMemory: the CPU time of a child that has ended, which its parent inherits, counts
// once; memory is that of the processes that run now.
func TestCPUTimeAndMemory(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	use := func(pid, user, system, children, pages int, cgroup string) {
		p.run(pid, uint64(pid), cgroup, 0, 0, delays{})
		text, err := os.ReadFile(filepath.Join(p.dir, strconv.Itoa(pid), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text))
		for i, v := range map[int]int{13: user, 14: system, 15: children, 23: pages} {
			fields[i] = strconv.Itoa(v)
		}
		p.write(pid, "stat", strings.Join(fields, " ")+"\n")
	}
	use(100, 500, 0, 0, 10, "/") // 5 s before the first look count for nobody
	look(t, w, now, nil)
	p.parents[200] = 100
	use(200, 100, 50, 0, 1000, yarn)
	sums := look(t, w, now.Add(5*second), nil)
	if got := sumOf(t, sums, ofYARN); got.CPU != 1500*time.Millisecond || got.Window.CPU != got.CPU || got.Memory != 1000*int64(os.Getpagesize()) {
		t.Errorf("%+v", got)
	}
	// The container ends after 0.2 s more, which is then its parent's.
	p.end(200)
	use(100, 510, 0, 170, 10, "/")
	sums = look(t, w, now.Add(10*second), nil)
	if got := sumOf(t, sums, ofYARN); got.CPU != 1500*time.Millisecond || got.Memory != 0 {
		t.Errorf("ended: %+v", got)
	}
	if got := sumOf(t, sums, ofUnit); got.CPU != 300*time.Millisecond {
		t.Errorf("the parent: %+v, want 0.1 s of its own and 0.2 s that nobody had seen", got)
	}
}

// TestProcessesWithAnAgent: an application's process may have no cgroup of its own, and its
// application may become known late. Its bytes count once, however often its agent connects.
func TestProcessesWithAnAgent(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	look(t, w, now, nil)
	p.run(10, 7, "/", 100, 0, delays{})
	member := map[int]Member{10: {app, container, 7}}
	if got := sumOf(t, look(t, w, now.Add(second), member), ofYARN); got.Flow != app || got.Read != 100 {
		t.Fatalf("%+v", got)
	}
	total := int64(100)
	for i := range 6 { // the agent disconnects and connects again
		total += 10
		p.run(10, 7, "/", total, 0, delays{})
		var now2 = now.Add(time.Duration(2+i) * second)
		members := member
		if i%2 == 0 {
			members = nil
		}
		all := int64(0)
		for _, s := range look(t, w, now2, members) {
			all += s.Read
			if s.Window.Read > 10 {
				t.Errorf("a window of %d bytes", s.Window.Read)
			}
		}
		if all != total {
			t.Errorf("%d bytes, the process has %d", all, total)
		}
	}
	// Another process has the pid of the member.
	p.run(10, 8, "/", 5, 0, delays{})
	if got := sumOf(t, look(t, w, now.Add(20*second), member), ofUnit); got.Processes != 1 {
		t.Errorf("%+v", got)
	}
}

// TestDescendantsOfAnAgent: what an application's process starts belongs to the application, however deep, unless it is in a
// container of its own. When its parent ends first, what it has done stays.
func TestDescendantsOfAnAgent(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	look(t, w, now, nil)
	p.parents = map[int]int{11: 10, 12: 11, 13: 10, 15: 14}
	p.run(10, 7, "/", 100, 0, delays{})     // a Spark executor
	p.run(11, 8, "/", 20, 0, delays{})      // Python's daemon
	p.run(12, 9, "/", 3, 0, delays{})       // its worker
	p.run(13, 9, docker, 1000, 0, delays{}) // a container that the executor has started
	p.run(14, 9, "/", 5000, 0, delays{})
	p.run(15, 9, "/", 5000, 0, delays{}) // a child of somebody else
	member := map[int]Member{10: {app, container, 7}}
	sums := look(t, w, now.Add(second), member)
	if got := sumOf(t, sums, ofYARN); got.Flow != app || got.Read != 123 || got.Processes != 3 {
		t.Errorf("%+v", got)
	}
	if got := sumOf(t, sums, func(s Sum) bool { return s.Owner.Kind == owner.Docker }); got.Flow != "" || got.Read != 1000 {
		t.Errorf("%+v", got)
	}
	p.end(10)
	p.parents[11] = 1
	p.run(11, 8, "/", 30, 0, delays{})
	p.run(12, 9, "/", 3, 0, delays{})
	sums = look(t, w, now.Add(2*second), nil)
	if got := sumOf(t, sums, ofYARN); got.Read < 123 || got.Processes != 0 {
		t.Errorf("without the executor: %+v", got)
	}
}

// TestWhoseCgroupCounts: only a cgroup of the NodeManager names an application.
func TestWhoseCgroupCounts(t *testing.T) {
	p, w := newProcTree(t)
	const other = "application_1700000000000_0099"
	p.run(10, 1, "/elsewhere/"+container, 0, 0, delays{})
	p.run(11, 1, "/user.slice/hadoop-yarn/"+container, 0, 0, delays{})
	p.run(12, 1, docker+"/hadoop-yarn/"+container, 0, 0, delays{})
	p.run(13, 1, yarn, 0, 0, delays{})
	for pid := 10; pid <= 13; pid++ {
		g, _, _, err := w.groupOf(proc(t, p, pid), Member{Flow: other, Start: 1}, false)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: app, false: other}[pid == 13]; g.Flow != want {
			t.Errorf("process %d: flow %s, want %s", pid, g.Flow, want)
		}
		if g, _, _, _ = w.groupOf(proc(t, p, pid), Member{}, false); (g.Flow == app) != (pid == 13) {
			t.Errorf("process %d without an agent: %+v", pid, g)
		}
	}
}

func proc(t *testing.T, p *procTree, pid int) procfs.Proc {
	t.Helper()
	fs, err := procfs.NewFS(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	process, err := fs.Proc(pid)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// TestACgroupThatComesLate: a new process is looked at twice, since it is moved to its container
// when it begins, and then once a minute.
func TestACgroupThatComesLate(t *testing.T) {
	p, w := newProcTree(t)
	now := time.Unix(1e9, 0)
	look(t, w, now, nil)
	p.run(10, 1, "/", 1, 0, delays{}) // still in the NodeManager's unit
	look(t, w, now.Add(second), nil)
	p.run(10, 1, yarn, 5, 0, delays{})
	if got := sumOf(t, look(t, w, now.Add(2*second), nil), ofYARN); got.Read != 4 || got.Processes != 1 {
		t.Errorf("moved at once: %+v", got)
	}
	p.run(10, 1, docker, 6, 0, delays{})
	if sums := look(t, w, now.Add(2*second+othersPeriod-1), nil); slices.ContainsFunc(sums, func(s Sum) bool { return s.Owner.Kind == owner.Docker }) {
		t.Errorf("looked too early: %+v", sums)
	}
	if sums := look(t, w, now.Add(2*second+othersPeriod), nil); !slices.ContainsFunc(sums, func(s Sum) bool { return s.Owner.Kind == owner.Docker }) {
		t.Errorf("not found: %+v", sums)
	}
}

func TestMissingRights(t *testing.T) {
	p, w := newProcTree(t)
	look(t, w, time.Now(), nil)
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
	for pid := range MaxGroups {
		w.processes[pid] = &process{owned: true, group: Group{Flow: strconv.Itoa(pid)}}
	}
	now := time.Now()
	if sums, full := w.addUp(now); len(sums) != MaxGroups || full {
		t.Errorf("%d of %d, full: %v", len(sums), MaxGroups, full)
	}
	w.processes[MaxGroups] = &process{owned: true, group: Group{Flow: "one more"}}
	if sums, full := w.addUp(now); len(sums) != MaxGroups || !full {
		t.Errorf("%d of %d, full: %v", len(sums), MaxGroups+1, full)
	}
	// A group without processes makes room.
	delete(w.processes, 0)
	w.addUp(now)
	sums, full := w.addUp(now)
	if full || !slices.ContainsFunc(sums, func(s Sum) bool { return s.Flow == "one more" }) {
		t.Errorf("%d of %d, full: %v", len(sums), MaxGroups, full)
	}
}

// TestUsersCannotFillTheGroups: however many cgroups users make, they are one group.
func TestUsersCannotFillTheGroups(t *testing.T) {
	p, w := newProcTree(t)
	for pid := 10; pid < 40; pid++ {
		p.run(pid, 1, "/", 0, 0, delays{})
		p.write(pid, "cgroup", "0::/user.slice/user-1000.slice/user@1000.service/run-"+strconv.Itoa(pid)+".scope\n")
	}
	if sums := look(t, w, time.Now(), nil); len(sums) != 1 || sums[0].Processes != 30 {
		t.Errorf("%+v", sums)
	}
}

// TestThisMachine: the kernel's figures of a process that reads and waits for a CPU.
func TestThisMachine(t *testing.T) {
	w, err := New("hadoop-yarn")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if os.Geteuid() != 0 {
		t.Log(w.Look(time.Now(), nil)) // the kernel has no figures of others for this user
		return
	}
	if err := w.Look(time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "file")
	// Two loops take turns on one CPU.
	cmd := exec.Command("taskset", "-c", "0", "sh", "-c", "head -c 1048576 /dev/zero >"+name+"; sync "+name+
		"; while :; do :; done & k=$!; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; kill $k; read x")
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
	start, err := StartOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	members := map[int]Member{cmd.Process.Pid: {app, container, start}}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := w.Look(time.Now(), members); err != nil {
			t.Fatal(err)
		}
		sums := w.Snapshot(MaxGroups).Sums
		if i := slices.IndexFunc(sums, func(s Sum) bool { return s.Flow == app }); i >= 0 && sums[i].RunDelay > 0 && sums[i].Written >= 1<<20 {
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

// message is an answer of the kernel with its header.
func message(kind uint16, serial uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, serial)
	return append(binary.NativeEndian.AppendUint32(b, 0), body...)
}

func errorMessage(serial uint32, errno unix.Errno) []byte {
	return message(unix.NLMSG_ERROR, serial, binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))))
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(message(30, 7, answer(delays{1, 2})), uint32(7))
	f.Add(errorMessage(7, unix.ESRCH), uint32(7))
	f.Add(errorMessage(7, 0)[:18], uint32(7))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, serial uint32) {
		d, ours, err := parseAnswer(b, serial)
		if d.run < 0 || d.block < 0 || !ours && (err != nil || d != delays{}) {
			t.Errorf("%+v, %v, %v", d, ours, err)
		}
	})
}

func TestParseAnswer(t *testing.T) {
	want := delays{3, 4}
	good := message(30, 7, answer(want))
	if d, ours, err := parseAnswer(good, 7); d != want || !ours || err != nil {
		t.Errorf("%+v, %v, %v", d, ours, err)
	}
	if _, ours, _ := parseAnswer(good, 8); ours {
		t.Error("an answer to another query")
	}
	for name, bad := range map[string][]byte{"short": good[:len(good)-1], "no figures": message(30, 7, nil), "no error": errorMessage(7, 0), "no number": message(unix.NLMSG_ERROR, 7, nil)} {
		if _, ours, err := parseAnswer(bad, 7); !ours || err == nil {
			t.Errorf("%s: %v, %v", name, ours, err)
		}
	}
	if _, _, err := parseAnswer(errorMessage(7, unix.ESRCH), 7); !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}

// TestOneSocket: an ended process is an error of its own, and the socket then serves the next query.
func TestOneSocket(t *testing.T) {
	s, err := openTaskstats()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if os.Geteuid() != 0 {
		if _, err := s.of(os.Getpid()); !errors.Is(err, unix.EPERM) {
			t.Error(err)
		}
		return
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.of(ended.Process.Pid); !gone(err) {
			t.Errorf("an ended process: %v", err)
		}
		if d, err := s.of(os.Getpid()); err != nil || d.run <= 0 {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

func TestParseDelays(t *testing.T) {
	want := delays{3 * time.Second, 5 * time.Millisecond}
	if got, ok := parseDelays(answer(want)); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
}

// BenchmarkDelays asks the kernel for the delays of one process.
func BenchmarkDelays(b *testing.B) {
	s, err := openTaskstats()
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.of(os.Getpid()); err != nil {
			b.Fatal(err)
		}
	}
}

// The application of a container of Kubernetes or Mesos is what their orchestrators report, unless an agent or YARN says
// otherwise.
func TestContainersOfOrchestrators(t *testing.T) {
	const pod = "/kubepods/pod3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"
	p, w := newProcTree(t)
	w.ApplicationOf(func(o owner.Owner) string {
		if o.Pod == "" && o.Kind != owner.Mesos {
			t.Errorf("asked for %+v", o)
		}
		return "kubernetes:a/b"
	})
	p.run(10, 1, pod, 0, 0, delays{})
	p.run(11, 1, "/mesos/3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f", 0, 0, delays{})
	p.run(12, 1, "/user.slice"+pod, 0, 0, delays{})
	p.run(13, 1, "/system.slice/x.service", 0, 0, delays{})
	for pid, want := range map[int]string{10: "kubernetes:a/b", 11: "kubernetes:a/b", 12: "", 13: ""} {
		if g, _, _, err := w.groupOf(proc(t, p, pid), Member{}, false); err != nil || g.Flow != want {
			t.Errorf("process %d: %+v, %v", pid, g, err)
		}
	}
	if g, _, _, err := w.groupOf(proc(t, p, 10), Member{Flow: app, Start: 1}, false); err != nil || g.Flow != app {
		t.Errorf("with an agent: %+v, %v", g, err)
	}
	look(t, w, time.Now(), nil)
	if all := w.Containers(); len(all) != 2 || all[pod].Pod == "" || all["/mesos/3f2a91c4-0d5e-4c1b-9e77-8a6b5c4d3e2f"].Kind != owner.Mesos {
		t.Errorf("%+v", all)
	}
	p.end(10)
	look(t, w, time.Now().Add(time.Second), nil)
	if all := w.Containers(); len(all) != 1 {
		t.Errorf("after the end of a pod: %+v", all)
	}
}
