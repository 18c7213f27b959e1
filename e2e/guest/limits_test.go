package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"penstock/lab/guest"
	"penstock/lab/poll"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
	"penstock/node/control/journal"
)

// workVariable makes this program a process that does one thing: see runIfWorker.
const workVariable = "PENSTOCK_TEST_WORK"

var undo = map[string]journal.Undo{cgroup.Mechanism: cgroup.Undo, freezer.Mechanism: freezer.Undo}

func nobody() []int { return nil }

// runIfWorker does the work of a child process of the tests in the guest.
func runIfWorker() {
	words := strings.Fields(os.Getenv(workVariable))
	if len(words) == 0 {
		return
	}
	var err error
	switch words[0] {
	case "read":
		err = read(words[1], words[2])
	case "write":
		err = write(words[1])
	case "count":
		count()
	case "limit":
		err = limitAndWait(words[1], words[2])
	case "freeze":
		err = freezeAndWait(words[1], words[2])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// read reads a device again and again, with O_DIRECT.
func read(device, offset string) error {
	file, err := os.OpenFile(device, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var from int64
	if _, err := fmt.Sscan(offset, &from); err != nil {
		return err
	}
	block, err := unix.Mmap(-1, 0, 256<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for at := from; ; at += int64(len(block)) {
		if at >= from+diskSize/16 {
			at = from
		}
		if _, err := file.ReadAt(block, at); err != nil {
			return err
		}
	}
}

const written = 12 * mib

// write writes a file through the page cache and waits until it is on the disk.
func write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, mib)
	for range written / mib {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	return errors.Join(file.Sync(), file.Close())
}

// machine has what a test in the guest changes.
type machine struct {
	*testing.T
	controller *cgroup.Controller
	journal    *journal.Journal
	device     cgroup.Device
}

func start(t *testing.T) *machine {
	m := &machine{T: t, device: deviceOf(t, "/dev/vda")}
	m.must(cgroup.Available())
	var err error
	m.controller, err = cgroup.Open(nobody)
	m.must(err)
	if m.controller.Version() != cgroup.V2 {
		t.Fatalf("the guest has cgroup %s", m.controller.Version())
	}
	m.journal, err = journal.Open(filepath.Join(t.TempDir(), "journal"), undo)
	m.must(err)
	t.Cleanup(func() {
		if err := m.journal.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func deviceOf(t *testing.T, path string) cgroup.Device {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return cgroup.Device{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
}

// group makes a cgroup, and the cgroups above it.
func (m *machine) group(path string) cgroup.Group {
	m.Helper()
	m.must(os.MkdirAll(guest.Cgroups+path, 0o755))
	m.Cleanup(func() {
		for at := path; at != "/"; at = filepath.Dir(at) {
			os.Remove(guest.Cgroups + at)
		}
	})
	g, err := m.controller.At(path)
	m.must(err)
	return g
}

func (m *machine) value(path string) string {
	m.Helper()
	b, err := os.ReadFile(guest.Cgroups + path)
	m.must(err)
	return strings.TrimSpace(string(b))
}

func (m *machine) expect(path, want string) {
	m.Helper()
	if got := m.value(path); got != want {
		m.Errorf("%s is %q, not %q", path, got, want)
	}
}

// work starts this program as a worker in a cgroup.
func (m *machine) work(g cgroup.Group, words ...string) *exec.Cmd {
	m.Helper()
	cmd := exec.Command("/init")
	cmd.Env = []string{workVariable + "=" + strings.Join(words, " ")}
	cmd.Stderr = os.Stderr
	if g.Path != "" {
		dir, err := os.Open(guest.Cgroups + g.Path)
		m.must(err)
		defer dir.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		m.must(cmd.Start())
		m.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	return cmd
}

// bytesRead returns the bytes that processes have read.
func (m *machine) bytesRead(of ...*exec.Cmd) (total int64) {
	m.Helper()
	for _, cmd := range of {
		p, err := procfs.NewProc(cmd.Process.Pid)
		m.must(err)
		counts, err := p.IO()
		m.must(err)
		total += int64(counts.RChar)
	}
	return total
}

// takes waits until the processes have read that many bytes, and returns how long it took.
func (m *machine) takes(bytes int64, of ...*exec.Cmd) time.Duration {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 3*time.Minute)
	defer cancel()
	began, from := time.Now(), m.bytesRead(of...)
	m.must(poll.Until(ctx, 20*time.Millisecond, func() (bool, error) { return m.bytesRead(of...) >= from+bytes, nil }))
	return time.Since(began)
}

func limitHoldsDirectReads(t *testing.T) {
	m := start(t)
	g := m.group("/direct/app")
	m.must(m.controller.Limit(m.journal, g, m.device, cgroup.Limits{ReadBytes: 2 * mib}, "a test"))
	m.expect("/direct/app/io.max", fmt.Sprintf("%s rbps=%d wbps=max riops=max wiops=max", m.device, 2*mib))
	r := m.work(g, "read", "/dev/vda", "0")
	m.takes(mib, r)
	held := m.takes(6*mib, r)
	if held < 2400*time.Millisecond {
		t.Errorf("6 MiB took %v under a limit of 2 MiB/s", held)
	}
	m.must(m.controller.Lift(m.journal, g))
	if _, err := os.Stat(guest.Cgroups + "/direct/app/io.max"); err == nil {
		t.Error("the controller is still on")
	}
	m.takes(mib, r)
	free := m.takes(6*mib, r)
	if free > held/2 {
		t.Errorf("6 MiB took %v without a limit, and %v under one of 2 MiB/s", free, held)
	}
	t.Logf("reads: %.1f MiB/s under a limit of 2 MiB/s, %.1f without", 6/held.Seconds(), 6/free.Seconds())
}

// The kernel charges the writeback of a page to the cgroup that made it dirty.
func limitHoldsBufferedWrites(t *testing.T) {
	m := start(t)
	m.must(unix.Mount("/dev/vda", "/mnt", "ext4", 0, ""))
	t.Cleanup(func() {
		if err := unix.Unmount("/mnt", 0); err != nil {
			t.Error(err)
		}
	})
	g := m.group("/buffered")
	took := func(name string) time.Duration {
		t.Helper()
		began := time.Now()
		m.must(m.work(g, "write", "/mnt/"+name).Wait())
		return time.Since(began)
	}
	if err := m.controller.HoldsBufferedWrites(g); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("without the controller of memory: %v", err)
	}
	m.must(os.WriteFile(guest.Cgroups+"/cgroup.subtree_control", []byte("+memory"), 0))
	t.Cleanup(func() { os.WriteFile(guest.Cgroups+"/cgroup.subtree_control", []byte("-memory"), 0) })
	m.must(m.controller.HoldsBufferedWrites(g))
	free := took("free")
	m.must(m.controller.Limit(m.journal, g, m.device, cgroup.Limits{WriteBytes: 2 * mib}, "a test"))
	held := took("held")
	if held < 4*time.Second {
		t.Errorf("%d MiB were written in %v under a limit of 2 MiB/s", written/mib, held)
	}
	if free > held/2 {
		t.Errorf("the write took %v without a limit, and %v under one of 2 MiB/s", free, held)
	}
	t.Logf("buffered writes and fsync: %.1f MiB/s under a limit of 2 MiB/s, %.1f without", written/mib/held.Seconds(), written/mib/free.Seconds())
}

// The controller is turned on in the cgroups above a held cgroup, and turned off with the last one. It stays
// on where somebody else uses it or had turned it on before. Where the kernel refuses it, Limit returns an
// error.
func controllerIsTurnedOnAndOff(t *testing.T) {
	m := start(t)
	const top, middle = "/cgroup.subtree_control", "/tree/cgroup.subtree_control"
	limits := cgroup.Limits{ReadBytes: mib, WriteOps: 7}
	one, two := m.group("/tree/one"), m.group("/tree/two")
	m.expect(top, "")
	m.must(m.controller.Limit(m.journal, one, m.device, limits, "a test"))
	m.must(m.controller.Limit(m.journal, two, m.device, limits, "a test"))
	m.expect(top, "io")
	m.expect(middle, "io")
	if n := len(m.journal.Changes()); n != 6 {
		t.Errorf("%d changes in the journal, not 6: %v", n, m.journal.Changes())
	}
	m.must(m.controller.Lift(m.journal, one))
	m.expect(middle, "io")
	m.expect("/tree/one/io.max", "")
	m.must(m.controller.Lift(m.journal, two))
	m.expect(middle, "")
	m.expect(top, "")

	// Somebody else sets a limit beside ours.
	m.must(m.controller.Limit(m.journal, one, m.device, limits, "a test"))
	m.must(os.WriteFile(guest.Cgroups+"/tree/two/io.max", fmt.Appendf(nil, "%s rbps=12345", m.device), 0))
	m.must(m.controller.Lift(m.journal, one))
	m.expect("/tree/one/io.max", "")
	m.expect("/tree/two/io.max", fmt.Sprintf("%s rbps=12345 wbps=max riops=max wiops=max", m.device))
	m.expect(middle, "io")
	m.expect(top, "io")
	// Now the controller is on before the change, and stays on. Somebody else has changed one of the four
	// values, and that value stays.
	m.must(m.controller.Limit(m.journal, one, m.device, limits, "a test"))
	m.must(os.WriteFile(guest.Cgroups+"/tree/one/io.max", fmt.Appendf(nil, "%s wiops=99", m.device), 0))
	m.must(os.WriteFile(guest.Cgroups+"/tree/two/io.max", fmt.Appendf(nil, "%s rbps=max", m.device), 0))
	m.must(m.controller.Lift(m.journal, one))
	m.expect("/tree/one/io.max", fmt.Sprintf("%s rbps=max wbps=max riops=max wiops=99", m.device))
	m.expect(middle, "io")
	for _, file := range []string{middle, top} {
		m.must(os.WriteFile(guest.Cgroups+file, []byte("-io"), 0))
	}

	// A cgroup with processes of its own cannot give its children the controller.
	m.work(mustAt(m, "/tree"), "read", "/dev/vda", "0")
	if err := m.controller.Limit(m.journal, one, m.device, limits, "a test"); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "/tree has processes") {
		t.Errorf("below a cgroup with processes: %v", err)
	}
	m.expect(top, "")
	if left := m.journal.Changes(); len(left) != 0 {
		t.Errorf("in the journal: %v", left)
	}
	if root := mustAt(m, "/"); !errors.Is(m.controller.Limit(m.journal, root, m.device, limits, "a test"), cgroup.ErrProtected) {
		t.Error("the root cgroup was limited")
	}
}

// A threaded cgroup does not list its processes, so it is refused. The cgroup above lists them.
func threadedCgroupsAreRefused(t *testing.T) {
	m := start(t)
	g := m.group("/threads/one")
	above := mustAt(m, "/threads")
	r := m.work(above, "read", "/dev/vda", "0")
	m.takes(mib, r)
	m.must(os.WriteFile(guest.Cgroups+"/threads/one/cgroup.type", []byte("threaded"), 0))
	m.must(os.WriteFile(guest.Cgroups+"/threads/one/cgroup.threads", fmt.Append(nil, r.Process.Pid), 0))
	refuse := func(g cgroup.Group, pids ...int) error {
		t.Helper()
		f, err := g.Open()
		m.must(err)
		defer f.Close()
		return f.Refuse(pids)
	}
	if err := refuse(g); err == nil || !strings.Contains(err.Error(), "threaded") {
		t.Errorf("a threaded cgroup: %v", err)
	}
	m.must(refuse(above))
	if err := refuse(above, r.Process.Pid); !errors.Is(err, cgroup.ErrProtected) {
		t.Errorf("a cgroup whose process has a thread below: %v", err)
	}
}

func mustAt(m *machine, path string) cgroup.Group {
	m.Helper()
	g, err := m.controller.At(path)
	m.must(err)
	return g
}

// limitAndWait does what a daemon does that limits a cgroup, and waits to be killed.
func limitAndWait(path, group string) error {
	j, err := journal.Open(path, undo)
	if err != nil {
		return err
	}
	c, err := cgroup.Open(nobody)
	if err != nil {
		return err
	}
	g, err := c.At(group)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat("/dev/vda", &st); err != nil {
		return err
	}
	d := cgroup.Device{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	if err := c.Limit(j, g, d, cgroup.Limits{ReadBytes: mib, WriteBytes: 2 * mib}, "a test"); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed
	return err
}

// daemon starts this program as a daemon with the given work, and waits until the daemon is ready.
func (m *machine) daemon(words ...string) *exec.Cmd {
	m.Helper()
	cmd := m.work(cgroup.Group{}, words...)
	_, err := cmd.StdinPipe()
	m.must(err)
	out, err := cmd.StdoutPipe()
	m.must(err)
	m.must(cmd.Start())
	m.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		m.Fatalf("the daemon: %q, %v", line, err)
	}
	return cmd
}

func crashIsPutBack(t *testing.T) {
	m := start(t)
	m.group("/crash/app")
	// Somebody else's limit must come back.
	for _, f := range []string{"/cgroup.subtree_control", "/crash/cgroup.subtree_control"} {
		m.must(os.WriteFile(guest.Cgroups+f, []byte("+io"), 0))
	}
	before := fmt.Sprintf("%s rbps=max wbps=7654321 riops=33 wiops=max", m.device)
	m.must(os.WriteFile(guest.Cgroups+"/crash/app/io.max", []byte(before), 0))
	path := filepath.Join(t.TempDir(), "journal")
	daemon := m.daemon("limit", path, "/crash/app")
	during := fmt.Sprintf("%s rbps=%d wbps=%d riops=33 wiops=max", m.device, mib, 2*mib)
	m.must(daemon.Process.Kill())
	daemon.Wait()
	m.expect("/crash/app/io.max", during)
	j, err := journal.Open(path, undo)
	m.must(err)
	m.expect("/crash/app/io.max", before)
	m.must(j.Close())
	for _, f := range []string{"/crash/cgroup.subtree_control", "/cgroup.subtree_control"} {
		m.expect(f, "io")
		m.must(os.WriteFile(guest.Cgroups+f, []byte("-io"), 0))
	}
}

func (m *machine) setting(path, value string) {
	m.Helper()
	m.must(os.WriteFile(path, []byte(value), 0))
}

const schedulerFile = "/sys/block/vda/queue/scheduler"

func weightsWithoutEffectAreRefused(t *testing.T) {
	m := start(t)
	g := m.group("/weight")
	weight := func(w int) error { return m.controller.Weight(m.journal, g, m.device, w, "a test") }
	for _, scheduler := range []string{"none", "mq-deadline"} {
		m.setting(schedulerFile, scheduler)
		if err := weight(400); !errors.Is(err, cgroup.ErrNoEffect) || !strings.Contains(err.Error(), "io.cost.qos") {
			t.Errorf("a weight under %s: %v", scheduler, err)
		}
	}
	qos := guest.Cgroups + "/io.cost.qos"
	m.setting(qos, m.device.String()+" enable=1")
	m.must(weight(cgroup.WeightMaxIO))
	m.expect("/weight/io.weight", fmt.Sprintf("default 100\n%s %d", m.device, cgroup.WeightMaxIO))
	if weight(cgroup.WeightMaxIO+1) == nil {
		t.Error("a weight that is too large was taken")
	}
	m.must(weight(200))
	m.must(m.controller.Lift(m.journal, g))
	m.expect("/cgroup.subtree_control", "")
	m.setting(qos, m.device.String()+" enable=0")
	if err := weight(400); !errors.Is(err, cgroup.ErrNoEffect) {
		t.Errorf("a weight after the cost model was turned off: %v", err)
	}
	m.setting(schedulerFile, "bfq")
	m.must(weight(400))
	m.expect("/weight/io.bfq.weight", fmt.Sprintf("default 100\n%s 400", m.device))
	m.must(m.controller.Lift(m.journal, g))
	m.setting(schedulerFile, "none")
}

func weightsOrderReaders(t *testing.T) {
	m := start(t)
	m.setting(schedulerFile, "bfq")
	// Otherwise bfq serves requests of the other cgroup in between, and the ratio does not show the weights.
	m.setting("/sys/block/vda/queue/iosched/strict_guarantees", "1")
	t.Cleanup(func() { m.setting(schedulerFile, "none") })
	light, heavy := m.group("/light"), m.group("/heavy")
	m.must(m.controller.Weight(m.journal, light, m.device, 100, "a test"))
	m.must(m.controller.Weight(m.journal, heavy, m.device, 400, "a test"))
	const readers = 4
	var slow, quick []*exec.Cmd
	for i := range readers {
		slow = append(slow, m.work(light, "read", "/dev/vda", fmt.Sprint(i*diskSize/2/readers)))
		quick = append(quick, m.work(heavy, "read", "/dev/vda", fmt.Sprint((i+readers)*diskSize/2/readers)))
	}
	m.takes(8*mib, quick...)
	const window = 32 * mib
	from := m.bytesRead(slow...)
	took := m.takes(window, quick...)
	got := m.bytesRead(slow...) - from
	t.Logf("weights 400:100, for %v: %.1f to 1", took, float64(window)/float64(max(got, 1)))
	if got*3 > window*2 {
		t.Errorf("with weights 400:100 the lighter readers got %d KiB of the heavier ones' %d", got>>10, window>>10)
	}
}
