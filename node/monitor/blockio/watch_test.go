package blockio

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/bpf"
)

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]uint32{"8:16": 8<<20 | 16, "254:0": 254 << 20, "4095:1048575": 1<<32 - 1} {
		if got, err := parseNumber(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "8", "8:", ":0", "8:-1", "4096:0", "8:1048576", "8:0:0"} {
		if got, err := parseNumber(bad); err == nil {
			t.Errorf("%q gave %d", bad, got)
		}
	}
	if _, err := Number(t.TempDir(), "dev-0:24"); err == nil {
		t.Error("a file system without a device has a number")
	}
}

// device returns the disk under a directory, 0 if there is none.
func device(t *testing.T, dir string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	place := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	if _, err := os.Stat(filepath.Join(place, "partition")); err == nil {
		place = filepath.Join(place, "..")
	}
	text, err := os.ReadFile(place + "/dev")
	if err != nil {
		return 0
	}
	number, err := parseNumber(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// watch opens a folder on a disk and a watch of the disk. If BPF may not be used, the error must
// name the missing right or part of the kernel. If the folder is on no disk, there is nothing to
// count, and the watch is nil.
func watch(t *testing.T) (w *Watch, disk uint32, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(".", "blockio-test-") // the system's folder for temporary files may be in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	disk = device(t, dir)
	w, err = Open(disk)
	if err != nil {
		for _, reason := range []string{"CAP_BPF and CAP_PERFMON", "CONFIG_DEBUG_INFO_BTF", "not supported by this kernel"} {
			if strings.Contains(err.Error(), reason) {
				t.Log(err)
				return nil, 0, ""
			}
		}
		t.Fatalf("the error does not name what is missing: %v", err)
	}
	t.Cleanup(func() { w.Close() })
	if disk == 0 {
		t.Log("no block device below this folder")
		return nil, 0, ""
	}
	return w, disk, dir
}

// The test checks the kernel's counts of this process's reads and writes: of direct I/O, and of I/O
// as the daemon does it.
func TestFindsItsOwnIO(t *testing.T) {
	const size = 4 << 20
	w, disk, dir := watch(t)
	if w == nil {
		return
	}
	name := filepath.Join(dir, "file")
	direct(t, name, size)
	staged(t, name, size)
	table, err := w.Read()
	if err != nil {
		t.Fatal(err)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	var ledger Ledger
	kernels := int64(0) // bytes that kernel threads wrote
	for _, u := range table.Users {
		t.Logf("%+v", u)
		if u.Device == disk && u.PID == 0 {
			kernels += u.Bytes[1]
		}
		if u.Own && (u.Time[0] <= 0 || u.Time[1] <= 0 || u.Pieces[0] == 0 || u.Name != strings.TrimSpace(string(comm))) {
			t.Errorf("of its own: %+v", u)
		}
		if u.Own && w.cgroups.root != "" && u.Cgroup == "" {
			t.Errorf("cgroup not found: %+v", u)
		}
	}
	ledger.Take(time.Now(), table)
	s := ledger.Of(disk, 10)
	// The kernel may write out dirty pages before the process does, but not those of direct writes.
	missing := [2]int64{0, min(kernels, size)}
	for i, name := range []string{"read", "written"} {
		if d := s.Own[i] - 2*size; d < -missing[i] || d > size/20 {
			t.Errorf("%d bytes %s, want %d (%d bytes written by kernel threads)", s.Own[i], name, 2*size, kernels)
		}
	}
	if s.Lost != (Lost{}) {
		t.Errorf("%+v lost", s.Lost)
	}
}

// Beyond the bound, bytes are counted without their users, until idle users are dropped.
func TestUsersAreBounded(t *testing.T) {
	const size = 1 << 20
	w, disk, dir := watch(t)
	if w == nil {
		return
	}
	for i := range uint32(maxUsers) {
		k := bpf.BlockioUserKey{Device: 1, Tgid: i + 1}
		if err := w.objects.Users.Put(k, bpf.BlockioUserCount{Bytes: [2]uint64{1, 1}}); err != nil {
			// Another process may have used the disk in the meantime, and may occupy an entry.
			if i < maxUsers-64 {
				t.Fatalf("user %d: %v", i, err)
			}
			break
		}
	}
	begin := time.Now()
	step := func(at time.Time, users int) (own, lost int64) {
		t.Helper()
		table, err := w.read(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(table.Users) < users || len(table.Users) > users+64 {
			t.Errorf("%d users, want %d", len(table.Users), users)
		}
		for _, u := range table.Users {
			if u.Own && u.Device == disk {
				own += u.Bytes[1]
			}
		}
		return own, table.Lost[disk].Bytes
	}
	direct(t, filepath.Join(dir, "file"), size)
	if own, lost := step(begin, maxUsers); own != 0 || lost < 2*size {
		t.Errorf("%d bytes are its own and %d without a user, want 0 and %d", own, lost, 2*size)
	}
	step(begin.Add(forgetAt-1), maxUsers)
	step(begin.Add(forgetAt), 0)
	direct(t, filepath.Join(dir, "file"), size)
	if own, _ := step(begin.Add(forgetAt), 1); own < size || own > size+size/20 {
		t.Errorf("%d bytes are its own, want %d", own, size)
	}
	step(begin.Add(forgetAt+forget-1), 1)
	step(begin.Add(forgetAt+forget), 0)
}

func TestDevicesAreBounded(t *testing.T) {
	w, disk, _ := watch(t)
	if w == nil {
		return
	}
	for i := range uint32(MaxDevices - 1) {
		if err := w.Govern(1<<20 + i); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Govern(disk); err != nil {
		t.Errorf("one that is watched: %v", err)
	}
	if err := w.Govern(1); err == nil || !strings.Contains(err.Error(), "0:1 (at most 256)") {
		t.Errorf("one too many: %v", err)
	}
}

// direct writes and reads a file, bypassing the page cache.
func direct(t *testing.T, name string, size int64) {
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	copy(mem, bytes.Repeat([]byte("penstock"), len(mem)/8))
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for at := int64(0); at < size; at += int64(len(mem)) {
		if n, err := unix.Pwrite(fd, mem, at); n != len(mem) {
			t.Fatal(n, err)
		}
	}
	for at := int64(0); at < size; at += int64(len(mem)) {
		if n, err := unix.Pread(fd, mem, at); n != len(mem) {
			t.Fatal(n, err)
		}
	}
}

// staged writes a file through the page cache, drains it, and stages it again.
func staged(t *testing.T, name string, size int64) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte("penstock"), int(size)/8)); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	if err := unix.SyncFileRange(fd, 0, size, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err != nil {
		t.Fatal(err)
	}
	for _, advice := range []int{unix.FADV_RANDOM, unix.FADV_DONTNEED} {
		if err := unix.Fadvise(fd, 0, 0, advice); err != nil {
			t.Fatal(err)
		}
	}
	for at := int64(0); at < size; at += 128 << 10 {
		if _, _, errno := unix.Syscall(unix.SYS_READAHEAD, uintptr(fd), uintptr(at), 128<<10); errno != 0 {
			t.Fatal(errno)
		}
	}
	if _, err := f.ReadAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
}
