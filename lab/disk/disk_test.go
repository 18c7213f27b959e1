package disk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"penstock/lab/ledger"
	"penstock/node/blockfile"

	"golang.org/x/sys/unix"
)

// parentVariable makes this test binary a run that waits to be killed.
const parentVariable = "PENSTOCK_TEST_DISK_PARENT"

func TestMain(m *testing.M) {
	ServeIfChild()
	if dir := os.Getenv(parentVariable); dir != "" {
		if err := parent(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// parent starts everything that a run may start, prints a line, and waits.
func parent(dir string) error {
	d, err := Start(context.Background(), Options{Name: "victim", RunDir: dir, Size: 32 * mib, Model: slowModel})
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "600")
	if _, err := d.ledger.StartProcess(child); err != nil {
		return err
	}
	if _, err := ledger.SetSysctl(context.Background(), d.ledger, testParameter, "43201"); err != nil {
		return err
	}
	// Dirty pages that take half a minute to write at the disk's rate.
	if err := os.WriteFile(filepath.Join(d.Mount(), "dirty"), make([]byte, 16*mib), 0o644); err != nil {
		return err
	}
	fmt.Println(d.Device(), d.server.Process.Pid, child.Process.Pid)
	select {}
}

var slowModel = Model{BytesPerSecond: mib / 2, SeekMin: 2 * time.Millisecond, SeekMax: 10 * time.Millisecond}

// testParameter is a parameter that has no effect within a few seconds.
const testParameter = "vm/dirtytime_expire_seconds"

// modelled starts a disk that is removed at the end of the test. If a modelled disk is impossible,
// it checks the plain folder and returns false.
func modelled(t testing.TB, o Options) (*Disk, bool) {
	t.Helper()
	if o.RunDir == "" {
		o.RunDir = t.TempDir()
	}
	d, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if reason := Available(); reason != nil {
		checkFolder(t, d)
		return d, false
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d, true
}

func checkFolder(t testing.TB, d *Disk) {
	t.Helper()
	if d.Modelled() || d.Reason() == nil {
		t.Error("a plain folder says that it is a modelled disk")
	}
	if err := os.WriteFile(filepath.Join(d.Mount(), "file"), []byte("x"), 0o644); err != nil {
		t.Error(err)
	}
	if err := d.SetModel(Model{}); !errors.Is(err, ErrNotModelled) {
		t.Errorf("setting a folder's rate: %v, want ErrNotModelled", err)
	}
	if _, _, err := d.Counters(); !errors.Is(err, ErrNotModelled) {
		t.Errorf("a folder's counters: %v, want ErrNotModelled", err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// The plain folder, which replaces a disk without root, is checked everywhere.
func TestPlainFolder(t *testing.T) {
	d, err := folder(Options{Name: "a", RunDir: t.TempDir(), Size: 16 * mib}, errors.New("no root"))
	if err != nil {
		t.Fatal(err)
	}
	checkFolder(t, d)
}

func TestBadOptions(t *testing.T) {
	good := Options{Name: "a", RunDir: t.TempDir(), Size: 16 * mib}
	for name, spoil := range map[string]func(*Options){
		"name":          func(o *Options) { o.Name = "../a" },
		"run folder":    func(o *Options) { o.RunDir = "" },
		"size":          func(o *Options) { o.Size = 16*mib + 1 },
		"rate":          func(o *Options) { o.Model.BytesPerSecond = -1 },
		"seeks":         func(o *Options) { o.Model.SeekMin = 1 },
		"queue depth":   func(o *Options) { o.QueueDepth = 129 },
		"file system":   func(o *Options) { o.FileSystem = "btrfs" },
		"small request": func(o *Options) { o.RequestKB = 63 },
		"large request": func(o *Options) { o.RequestKB = 1025 },
		"log bound":     func(o *Options) { o.LogBytesMax = 100 },
		"one partition": func(o *Options) { o.Size, o.Partitions = 1024*mib, 1 },
		"partitions":    func(o *Options) { o.Size, o.Partitions = 1024*mib, maxPartitions+1 },
		"small parts":   func(o *Options) { o.Size, o.Partitions = 32*mib, 2 },
	} {
		bad := good
		spoil(&bad)
		if _, err := Open(t.Context(), bad); err == nil {
			t.Errorf("a bad %s is accepted", name)
		}
	}
}

// aligned returns memory that direct I/O accepts.
func aligned(bytes int) []byte {
	raw := make([]byte, bytes+sectorBytes)
	skip := sectorBytes - int(uintptr(unsafe.Pointer(&raw[0]))%sectorBytes)
	return raw[skip : skip+bytes]
}

func openDirect(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestDiskKeepsItsRateAndLogsEveryRequest(t *testing.T) {
	model := Model{BytesPerSecond: 64 * mib, SeekMin: time.Millisecond, SeekMax: 5 * time.Millisecond}
	d, ok := modelled(t, Options{Name: "a", Size: 256 * mib, Model: model})
	if !ok {
		return
	}
	const blocks = 32
	readBefore, writeBefore, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	from := Monotonic()
	file := openDirect(t, filepath.Join(d.Mount(), "file"))
	begin := time.Now()
	block := aligned(mib)
	for i := range blocks {
		block[0] = byte(i)
		if _, err := file.WriteAt(block, int64(i)*mib); err != nil {
			t.Fatal(err)
		}
	}
	for i := range blocks {
		if _, err := file.ReadAt(block, int64(i)*mib); err != nil || block[0] != byte(i) {
			t.Fatalf("block %d reads %d: %v", i, block[0], err)
		}
	}
	// The disk is never faster than the model. How much slower it is depends on the machine.
	ideal := model.transfer(Read, 2*blocks*mib)
	if took := time.Since(begin); took < ideal || took > 10*ideal {
		t.Errorf("64 MiB took %v, want a little over %v", took, ideal)
	}
	readAfter, writeAfter, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SyncLog(); err != nil {
		t.Fatal(err)
	}
	_, records, err := ReadLog(d.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	logged := map[Op]int64{}
	var service, lastEnd int64
	for _, r := range records {
		if r.Op == Discard || r.Submitted < from {
			continue
		}
		logged[r.Op] += r.Length
		service += r.Service
		if start := r.Ended - r.Service; start < lastEnd {
			t.Errorf("a request began at %d, the one before it ended at %d", start, lastEnd)
		}
		lastEnd = r.Ended
		if r.Service < int64(model.transfer(r.Op, r.Length)) {
			t.Errorf("%d bytes in %d ns", r.Length, r.Service)
		}
	}
	if got := readAfter - readBefore; got < blocks*mib || logged[Read] != got {
		t.Errorf("read by the kernel's count %d, by the log %d, want the same and at least %d", got, logged[Read], blocks*mib)
	}
	if got := writeAfter - writeBefore; got < blocks*mib || logged[Write] != got {
		t.Errorf("written by the kernel's count %d, by the log %d, want the same and at least %d", got, logged[Write], blocks*mib)
	}
	if service < int64(ideal) {
		t.Errorf("service %v of 64 MiB, want at least %v", time.Duration(service), ideal)
	}
}

// TestPartitions: each partition has a file system of its own, requests are logged at their offsets
// on the disk, and the daemon resolves both to the one disk.
func TestPartitions(t *testing.T) {
	d, ok := modelled(t, Options{Name: "parts", Size: 65 * mib, Partitions: 2})
	mounts := d.Mounts()
	if len(mounts) != 2 || mounts[0] == mounts[1] || d.Mount() != mounts[0] {
		t.Fatalf("mounted at %v and %s", mounts, d.Mount())
	}
	if !ok {
		return
	}
	for _, mount := range mounts {
		if err := os.WriteFile(filepath.Join(mount, "file"), make([]byte, mib), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.Sync(), d.Forget(), d.SyncLog()); err != nil {
		t.Fatal(err)
	}
	_, records, err := ReadLog(d.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for i, mount := range mounts {
		from, to := d.Partition(i)
		written := int64(0)
		for _, r := range records {
			if r.Op == Write && from <= r.Offset && r.Offset+r.Length <= to {
				written += r.Length
			}
		}
		if written < mib {
			t.Errorf("partition %d: %d bytes were written there, want at least %d", i, written, mib)
		}
		dir, err := blockfile.OpenDir(mount, "/sys")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if name := filepath.Base(d.Device()); dir.Device.Name != name || !slices.Equal(dir.Device.Disks, []string{name}) {
			t.Errorf("partition %d is governed as %+v, want %s", i, dir.Device, name)
		}
	}
}

func TestModelIsTurnedOffWhileRequestsWait(t *testing.T) {
	d, ok := modelled(t, Options{Name: "a", Size: 64 * mib, Model: slowModel})
	if !ok {
		return
	}
	var writers sync.WaitGroup
	for i := range 8 {
		file := openDirect(t, filepath.Join(d.Mount(), fmt.Sprint("file", i)))
		writers.Go(func() {
			if _, err := file.WriteAt(aligned(4*mib), 0); err != nil {
				t.Error(err)
			}
		})
	}
	begin := time.Now()
	// Once the first block is written, the others wait for a minute, according to the model.
	for {
		_, written, err := d.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if written > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := d.SetModel(Model{}); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("took %v with the model off", took)
	}
	if m, err := d.Model(); err != nil || !m.Off() {
		t.Errorf("the model in force is %+v (%v)", m, err)
	}
	if err := d.SetModel(Model{BytesPerSecond: 1}); err == nil {
		t.Error("a rate of 1 byte per second is accepted")
	}
}

func TestSchedulersAndQueue(t *testing.T) {
	d, ok := modelled(t, Options{Name: "a", Size: 32 * mib, Scheduler: "none", QueueDepth: 4, Model: Model{
		BytesPerSecond: 64 * mib, SeekMin: time.Millisecond, SeekMax: 5 * time.Millisecond,
	}})
	if !ok {
		return
	}
	file := openDirect(t, filepath.Join(d.Mount(), "file"))
	if err := file.Truncate(16 * mib); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(aligned(16*mib), 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mq-deadline", "none"} {
		if err := d.SetScheduler(name); err != nil {
			t.Fatal(err)
		}
		from := Monotonic()
		var readers sync.WaitGroup
		for i := range 16 {
			readers.Go(func() {
				for j := range 4 {
					if _, err := file.ReadAt(aligned(4096), int64((i*7+j*5)%64)*64<<10); err != nil {
						t.Error(err)
					}
				}
			})
		}
		readers.Wait()
		if got := deepest(t, d, from); got < 2 || got > 4 {
			t.Errorf("%s: up to %d requests at the disk at a time, want up to the queue depth of 4", name, got)
		}
	}
	if err := d.SetScheduler("best"); err == nil || !strings.Contains(err.Error(), "mq-deadline") {
		t.Errorf("an unknown scheduler: %v, want the list of known ones", err)
	}
}

// deepest returns the largest number of requests, among those submitted since then, that were at
// the disk at the same time.
func deepest(t *testing.T, d *Disk, since int64) int {
	t.Helper()
	if err := d.SyncLog(); err != nil {
		t.Fatal(err)
	}
	_, records, err := ReadLog(d.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	deepest := 0
	for _, r := range records {
		at := 0
		for _, other := range records {
			if other.Submitted >= since && other.Submitted <= r.Submitted && r.Submitted < other.Ended {
				at++
			}
		}
		deepest = max(deepest, at)
	}
	return deepest
}

func TestDisksOfOneNameStartTogether(t *testing.T) {
	var starting sync.WaitGroup
	for range 4 {
		dir := t.TempDir()
		starting.Go(func() {
			d, err := Open(t.Context(), Options{Name: "a", RunDir: dir, Size: 32 * mib, Model: Model{}})
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(os.WriteFile(filepath.Join(d.Mount(), "file"), make([]byte, mib), 0o644), d.Stop()); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
}

func TestStopPutsEverythingBack(t *testing.T) {
	dir := t.TempDir()
	d, ok := modelled(t, Options{Name: "a", RunDir: dir, Size: 32 * mib, Model: slowModel, Scheduler: "bfq"})
	if !ok {
		return
	}
	device := d.Device()
	// Dirty pages that would take half a minute at the disk's rate.
	if err := os.WriteFile(filepath.Join(d.Mount(), "dirty"), make([]byte, 16*mib), 0o644); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("stopping took %v: the model was not turned off first", took)
	}
	checkGone(t, dir, device)
	if _, _, err := ReadLog(filepath.Join(dir, "a.log")); err != nil {
		t.Errorf("the log does not outlive the disk: %v", err)
	}
	if err := d.Stop(); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
}

func checkGone(t *testing.T, dir, device string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("still mounted:\n%s", mounts)
	}
	backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	// The kernel shortens the name after the end of the mount.
	if err == nil && (strings.Contains(string(backing), dir) || string(backing) == "/"+imageName+"\n") {
		t.Errorf("%s is still attached to %s", device, backing)
	}
	if _, err := os.Stat(filepath.Join(dir, ledger.FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the ledger is still there")
	}
	if left, _ := filepath.Glob(filepath.Join("/dev/shm", fmt.Sprintf("penstock-%d-*", os.Getpid()))); len(left) > 0 {
		t.Errorf("left in memory: %v", left)
	}
}

// victim is a run in another process that has started everything that a run may start.
type victim struct {
	process   *exec.Cmd
	dir       string
	device    string
	server    int
	child     int
	parameter string // testParameter before the run
}

func startVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{dir: t.TempDir()}
	parameter, err := os.ReadFile(filepath.Join("/proc/sys", testParameter))
	if err != nil {
		t.Fatal(err)
	}
	v.parameter = string(parameter)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	v.process = exec.Command(self)
	v.process.Env = append(os.Environ(), parentVariable+"="+v.dir)
	out, err := v.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.process.Process.Kill()
		v.process.Wait()
		Recover(v.dir)
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if n, _ := fmt.Sscan(line, &v.device, &v.server, &v.child); n != 3 {
		rest, _ := io.ReadAll(out)
		t.Fatalf("the run says %q (%v) %s", line, err, rest)
	}
	return v
}

func (v *victim) checkGone(t *testing.T) {
	t.Helper()
	checkGone(t, v.dir, v.device)
	if left, _ := filepath.Glob(filepath.Join("/dev/shm", fmt.Sprintf("penstock-%d-*", v.process.Process.Pid))); len(left) > 0 {
		t.Errorf("left in memory: %v", left)
	}
	for _, pid := range []int{v.server, v.child} {
		if running(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if now, err := os.ReadFile(filepath.Join("/proc/sys", testParameter)); err != nil || string(now) != v.parameter {
		t.Errorf("%s is %q (%v), was %q", testParameter, now, err, v.parameter)
	}
}

// running reports whether a process is alive; a zombie is not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// await polls for a condition that has no event to wait for.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s: %s", what)
		}
	}
}

func TestAKilledRunIsPutBackByItsDisk(t *testing.T) {
	if Available() != nil {
		if err := RecoverDead(t.TempDir()); err != nil {
			t.Errorf("recovering a run that never was: %v", err)
		}
		return
	}
	v := startVictim(t)
	if err := Recover(v.dir); !errors.Is(err, ledger.ErrInUse) {
		t.Fatalf("recovering a living run: %v, want ErrInUse", err)
	}
	if err := v.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	v.process.Wait()
	await(t, "the run is not put back", func() bool {
		_, err := os.Stat(filepath.Join(v.dir, ledger.FileName))
		return errors.Is(err, os.ErrNotExist)
	})
	v.checkGone(t)
}

// After a process is killed, its disk's server may notice the end before the kernel has freed the
// lock.
func TestRecoveryWaitsForTheLock(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "left")
	ledgerFile, err := os.Create(filepath.Join(dir, ledger.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer ledgerFile.Close()
	if err := json.NewEncoder(ledgerFile).Encode(map[string]any{"id": 1, "kind": "remove", "path": file}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(ledgerFile.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- RecoverDead(dir) }()
	select {
	case err := <-done:
		t.Fatalf("the recovery has given up: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	ledgerFile.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("what the run has left is still there")
	}
}

func TestRecoverAfterEverythingWasKilled(t *testing.T) {
	if Available() != nil {
		if err := Recover(t.TempDir()); err != nil {
			t.Errorf("recovering a run that never was: %v", err)
		}
		return
	}
	v := startVictim(t)
	// The server is killed first, so it cannot react to its parent's end.
	if err := unix.Kill(v.server, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the server lives", func() bool { return !running(v.server) })
	if err := v.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	v.process.Wait()
	if !running(v.child) {
		t.Error("the run's child is gone before anybody recovered the run")
	}
	if err := Recover(v.dir); err != nil {
		t.Fatal(err)
	}
	v.checkGone(t)
}

// A daemon with its own mount namespace must not keep the disk alive.
func TestStopReachesOtherMountNamespaces(t *testing.T) {
	dir := t.TempDir()
	d, ok := modelled(t, Options{Name: "a", RunDir: dir, Size: 16 * mib})
	if !ok {
		return
	}
	daemon := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo; exec sleep 600")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { daemon.Process.Kill(); daemon.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	device := d.Device()
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	checkGone(t, dir, device)
}

// Deleting files frees their memory.
func TestDiscard(t *testing.T) {
	d, ok := modelled(t, Options{Name: "a", Size: 64 * mib})
	if !ok {
		return
	}
	path := filepath.Join(d.Mount(), "file")
	if _, err := openDirect(t, path).WriteAt(aligned(32*mib), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(d.Mount())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		t.Fatal(err)
	}
	backing, err := filepath.Glob(fmt.Sprintf("/dev/shm/penstock-%d-*-a.img", os.Getpid()))
	if err != nil || len(backing) != 1 {
		t.Fatalf("backing files %v (%v)", backing, err)
	}
	// The discard follows the commit.
	deadline := time.Now().Add(10 * time.Second)
	for {
		var st unix.Stat_t
		if err := unix.Stat(backing[0], &st); err != nil {
			t.Fatal(err)
		}
		if st.Blocks*512 < 16*mib {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the file is deleted and the disk still holds %d MiB", st.Blocks*512/mib)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
