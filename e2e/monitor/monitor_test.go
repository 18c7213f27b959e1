// Package monitor compares the figures of the daemon's monitor with the log of a modelled disk, which has
// each request. It needs no Hadoop and no daemon.
package monitor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/ledger"
	"penstock/node/monitor/blockio"
	"penstock/node/monitor/owner"
	"penstock/node/monitor/processes"
)

const (
	mib       = 1 << 20
	fileBytes = 64 * mib
	request   = 256 << 10
	requests  = 48
	rate      = 4_000_000 // rate of the disk in bytes per second; with a slow disk, a late answer of its server matters little
	container = "container_1700000000000_0001_01_000002"
	app       = "application_1700000000000_0001"
	blkio     = "/sys/fs/cgroup/blkio"
	patience  = time.Minute
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	if len(os.Args) == 3 && os.Args[1] == childCommand {
		if err := work(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, childCommand+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childCommand makes this test binary the program that the monitor watches. For each line of its input, one
// thread reads or writes the file, with one request at a time. It answers with the duration of each request,
// as measured by the thread, in nanoseconds.
const childCommand = "one-request-at-a-time"

// work does the work of the child. Its thread has a real-time priority, because Linux 6.18 may count the waits
// of a thread with the usual scheduling policy wrongly while CPUs are busy (see package processes).
func work(path string, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0); err != nil {
		return fmt.Errorf("a real-time priority: %w", err)
	}
	direct, err := os.OpenFile(path, os.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer direct.Close()
	cached, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer cached.Close()
	buffer := aligned(request)
	places := rand.New(rand.NewPCG(1, 2)).Perm(fileBytes / request)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		one := map[string]func([]byte, int64) (int, error){"read": direct.ReadAt, "write": direct.WriteAt, "write cached": cached.WriteAt}[lines.Text()]
		if one == nil {
			return fmt.Errorf("no such work: %q", lines.Text())
		}
		took := make([]time.Duration, requests)
		for i := range took {
			begin := time.Now()
			if _, err := one(buffer, int64(places[i])*request); err != nil {
				return err
			}
			took[i] = time.Since(begin)
		}
		if err := unix.Fdatasync(int(cached.Fd())); err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(took); err != nil {
			return err
		}
	}
	return nil
}

// aligned returns memory for direct I/O.
func aligned(bytes int) []byte {
	const page = 4096
	b := make([]byte, bytes+page)
	at := page - int(uintptr(unsafe.Pointer(&b[0]))%page)
	return b[at : at+bytes : at+bytes]
}

// bench is a disk with a file, a program in the cgroup of a YARN container, and the monitor.
type bench struct {
	t       *testing.T
	disk    *disk.Disk
	number  uint32 // of the disk
	in      io.Writer
	answers chan string
	pid     int
	cgroup  string

	processes *processes.Watch
	devices   *blockio.Watch
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if err := disk.Available(); err != nil {
		t.Fatalf("this test needs a modelled disk: %v", err)
	}
	dir := t.TempDir()
	l, err := ledger.Open(dir)
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, l.Close()) })
	// The kernel counts only the waits of processes that start after this.
	_, err = ledger.SetSysctl(t.Context(), l, "kernel/task_delayacct", "1")
	fixture.Must(t, err)
	d, err := disk.Start(t.Context(), disk.Options{Name: "truth", RunDir: dir, Size: 256 * mib, Scheduler: "none"})
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, d.Stop()) })
	path := filepath.Join(d.Mount(), "file")
	fixture.Must(t, os.WriteFile(path, make([]byte, fileBytes), 0o644))
	fixture.Must(t, errors.Join(d.Sync(), d.Forget()))
	fixture.Must(t, d.SetModel(disk.HDD(rate)))

	b := &bench{t: t, disk: d, answers: make(chan string)}
	b.start(l, path)
	b.number, err = blockio.Number("/sys", filepath.Base(d.Device()))
	fixture.Must(t, err)
	b.devices, err = blockio.Open(b.number)
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, b.devices.Close()) })
	b.processes, err = processes.New("hadoop-yarn")
	fixture.Must(t, err)
	t.Cleanup(b.processes.Close)
	return b
}

// start starts the program in its cgroup.
func (b *bench) start(l *ledger.Ledger, path string) {
	b.t.Helper()
	dir := filepath.Join(blkio, fmt.Sprintf("penstock-e2e-%d", os.Getpid()))
	for _, name := range []string{"", "hadoop-yarn", container} {
		dir = filepath.Join(dir, name)
		_, err := l.Cgroup(dir)
		fixture.Must(b.t, errors.Join(err, os.Mkdir(dir, 0o755)))
	}
	b.cgroup = strings.TrimPrefix(dir, blkio)
	cmd := exec.Command(os.Args[0], childCommand, path)
	in, err := cmd.StdinPipe()
	fixture.Must(b.t, err)
	out, err := cmd.StdoutPipe()
	fixture.Must(b.t, err)
	cmd.Stderr = os.Stderr
	exited, err := l.Spawn(cmd)
	fixture.Must(b.t, err)
	b.t.Cleanup(func() {
		in.Close()
		select {
		case <-exited:
		case <-time.After(patience):
			b.t.Errorf("the program (%d) does not end", cmd.Process.Pid)
		}
	})
	b.in, b.pid = in, cmd.Process.Pid
	fixture.Must(b.t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(b.pid)), 0))
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			b.answers <- lines.Text()
		}
		close(b.answers)
	}()
}

// do orders the program to work. It returns the disk's log of that time, and the durations of the requests as
// the program measured them, the shortest first.
func (b *bench) do(what string) (log []disk.Record, took []time.Duration) {
	b.t.Helper()
	begin := disk.Monotonic()
	fmt.Fprintln(b.in, what)
	select {
	case answer := <-b.answers:
		if err := json.Unmarshal([]byte(answer), &took); err != nil {
			b.t.Fatalf("%s: the program says %q", what, answer)
		}
		slices.Sort(took)
	case <-time.After(patience):
		b.t.Fatalf("%s takes more than %v", what, patience)
	}
	end := disk.Monotonic()
	fixture.Must(b.t, b.disk.SyncLog())
	_, all, err := disk.ReadLog(b.disk.LogPath())
	fixture.Must(b.t, err)
	for _, r := range all {
		if r.Submitted >= begin && r.Submitted < end {
			log = append(log, r)
		}
	}
	return log, took
}

// look returns the monitor's figures of the container.
func (b *bench) look() (sum processes.Sum, user [2]int64, latency blockio.Latency) {
	b.t.Helper()
	fixture.Must(b.t, b.processes.Look(time.Now(), nil))
	s := b.processes.Snapshot(math.MaxInt)
	if !s.Accounting {
		b.t.Error("the monitor does not see that waits are counted")
	}
	i := slices.IndexFunc(s.Sums, func(s processes.Sum) bool { return s.Flow == app })
	if i < 0 {
		b.t.Fatalf("the container is not among %+v", s.Sums)
	}
	table, err := b.devices.Read()
	fixture.Must(b.t, err)
	for _, u := range table.Users {
		if int(u.PID) == b.pid && u.Device == b.number {
			if u.Cgroup != b.cgroup {
				b.t.Errorf("the program's cgroup is %q, want %q", u.Cgroup, b.cgroup)
			}
			user[0], user[1] = user[0]+u.Bytes[0], user[1]+u.Bytes[1]
		}
	}
	all, err := b.devices.Latencies()
	fixture.Must(b.t, err)
	for _, l := range all {
		if l.Device == b.number && l.Group.Owner == owner.Of(b.cgroup) {
			latency = l
		}
	}
	return s.Sums[i], user, latency
}

// truth has the figures of the disk's log about the requests of one direction.
type truth struct {
	requests  int64
	bytes     int64
	waited    time.Duration // with a request at the disk
	latencies []time.Duration
}

func truthOf(log []disk.Record, op disk.Op) (t truth) {
	end := int64(0)
	slices.SortFunc(log, func(a, b disk.Record) int { return int(a.Submitted - b.Submitted) })
	for _, r := range log {
		if r.Op != op {
			continue
		}
		t.requests, t.bytes = t.requests+1, t.bytes+r.Length
		t.waited += time.Duration(max(0, r.Ended-max(end, r.Submitted)))
		end = max(end, r.Ended)
		t.latencies = append(t.latencies, time.Duration(r.Ended-r.Submitted))
	}
	slices.Sort(t.latencies)
	return t
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// within compares a figure of the monitor with that of the disk, and logs both.
func within(t *testing.T, what string, says, truth, part float64) {
	t.Helper()
	off := says/truth - 1
	t.Logf("%s: the monitor says %.6g, the disk %.6g (%+.2f %%)", what, says, truth, 100*off)
	if !(math.Abs(off) <= part) {
		t.Errorf("%s: the monitor says %.6g, the disk %.6g: off by %+.2f %%, want at most %.0f %%", what, says, truth, 100*off, 100*part)
	}
}

// between checks a time of the monitor. It must lie between the disk's time and the program's, with a
// tolerance of part. These two times differ, because on a busy machine the disk's server answers late, and
// only the program can measure how late.
func between(t *testing.T, what string, says, disk, program time.Duration, part float64) {
	t.Helper()
	t.Logf("%s: the monitor says %v, the disk %v (%+.2f %%), the program %v", what, says, disk, 100*(float64(says)/float64(disk)-1), program)
	if low, high := (1-part)*float64(disk), (1+part)*float64(disk); float64(says) < low || float64(says) > max(high, float64(program)) {
		t.Errorf("%s: the monitor says %v, the disk %v, the program %v", what, says, disk, program)
	}
}

// TestReads: a thread that reads without the page cache, with one request at a time, waits for nothing but
// the disk. Its waits, bytes and latencies must be those of the disk's log.
func TestReads(t *testing.T) {
	b := newBench(t)
	before, moved, _ := b.look()
	log, took := b.do("read")
	want, all := truthOf(log, disk.Read), time.Duration(0)
	for _, d := range took {
		all += d
	}
	after, user, latency := b.look()

	within(t, "bytes read, by the process's account", float64(after.Read-before.Read), float64(want.bytes), 0.02)
	within(t, "bytes read, by BPF", float64(user[0]-moved[0]), float64(want.bytes), 0.02)
	between(t, "waits for the disk", after.BlockDelay-before.BlockDelay, want.waited, all, 0.05)
	// The kernel drops a run of a BPF program that interrupts another one.
	h := latency.Total[0]
	within(t, "requests", float64(h.Requests()), float64(want.requests), 0.05)
	between(t, "sum of latencies", h.Time, want.waited, all, 0.05)
	for _, q := range []float64{0.5, 0.95} {
		// The bounds of a bucket differ by a quarter at most.
		const wide = 0.3
		between(t, fmt.Sprintf("latency at %v", q), h.Quantile(q), quantile(want.latencies, q), time.Duration((1+wide)*float64(quantile(took, q))), wide)
	}
	if w := after.Window; w.BlockDelay != after.BlockDelay-before.BlockDelay || w.Read != after.Read-before.Read {
		t.Errorf("the window is %+v", w)
	}
}

// TestWrites compares the bytes that were written without the page cache, and through it until they were on the
// disk. The log also has the writes of the file system's journal.
func TestWrites(t *testing.T) {
	b := newBench(t)
	last, moved, _ := b.look()
	for _, what := range []string{"write", "write cached"} {
		log, _ := b.do(what)
		want := truthOf(log, disk.Write)
		now, user, latency := b.look()
		within(t, what+": bytes, by the process's account", float64(now.Written-last.Written), float64(want.bytes), 0.02)
		within(t, what+": bytes, by BPF", float64(user[1]-moved[1]), float64(want.bytes), 0.02)
		if latency.Total[1].Requests() == 0 {
			t.Errorf("%s: no latencies of writes", what)
		}
		last, moved = now, user
	}
}
