package blockio

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// device finds the disk under a directory, 0 if there is none.
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

// The kernel's word for what this process read and wrote, past the page cache and
// as the daemon does. Where BPF may not be used the error has to say what is missing; where the
// folder is on no disk there is nothing to count.
func TestFindsItsOwnIO(t *testing.T) {
	const size = 4 << 20
	dir, err := os.MkdirTemp(".", "blockio-test-") // the system's folder for such files may be in memory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	disk := device(t, dir)
	w, err := Open(disk)
	if err != nil {
		for _, reason := range []string{"CAP_BPF and CAP_PERFMON", "CONFIG_DEBUG_INFO_BTF", "this kernel cannot"} {
			if strings.Contains(err.Error(), reason) {
				t.Log(err)
				return
			}
		}
		t.Fatalf("it does not say what is missing: %v", err)
	}
	defer w.Close()
	if disk == 0 {
		t.Log("no block device below this folder")
		return
	}
	name := filepath.Join(dir, "file")
	direct(t, name, size)
	staged(t, name, size)
	table, err := w.Read()
	if err != nil {
		t.Fatal(err)
	}
	var ledger Ledger
	for _, u := range table.Users {
		t.Logf("%+v", u)
		if u.Own && (u.Time[0] <= 0 || u.Time[1] <= 0 || u.Pieces[0] == 0 || !strings.HasPrefix(u.Name, "blockio")) {
			t.Errorf("of its own: %+v", u)
		}
		if u.Own && w.cgroups.root != "" && u.Cgroup == "" {
			t.Errorf("cgroup not found: %+v", u)
		}
	}
	ledger.Take(w.seen[w.keys[0]].at, table)
	s := ledger.Of(disk, 10)
	for i, name := range []string{"read", "written"} {
		if d := s.Own[i] - 2*size; d < 0 || d > size/20 {
			t.Errorf("%d bytes %s, want %d", s.Own[i], name, 2*size)
		}
	}
	if s.Lost != (Lost{}) {
		t.Errorf("%+v lost", s.Lost)
	}
}

// direct writes and reads a file past the page cache.
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
