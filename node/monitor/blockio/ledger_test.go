package blockio

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func user(device, pid uint32, name string, read, written int64) User {
	u := User{Device: device, PID: pid, Name: name, Bytes: [2]int64{read, written}, key: key{device: device, pid: pid}}
	if pid == 0 {
		u.key.thread = name
	}
	return u
}

func names(s Summary) (all string) {
	for _, u := range s.Top {
		all += fmt.Sprint(u.Name, u.Window, " ")
	}
	return all
}

func TestLedger(t *testing.T) {
	var l Ledger
	if s := l.Of(1, 10); s.Top != nil || s.Seconds != 0 {
		t.Errorf("before the first reading: %+v", s)
	}
	at := time.Unix(1000, 0)
	own := user(1, 9, "penstock", 500, 700)
	own.Own = true
	l.Take(at, Table{Users: []User{user(1, 10, "fio", 1000, 0), user(1, 0, "kworker", 0, 100), own, user(2, 11, "dd", 9, 9)}})
	// A single reading has no window; then users are sorted by all their bytes.
	if s := l.Of(1, 10); names(s) != "fio[0 0] kworker[0 0] " || s.Seconds != 0 {
		t.Errorf("%s in %v s", names(s), s.Seconds)
	}
	l.Take(at.Add(2*time.Second), Table{
		Users: []User{
			user(1, 10, "fio again", 1001, 0), user(1, 0, "kworker", 0, 400), user(1, 12, "dd", 50, 60), own,
			user(1, 0, "jbd2/sdb-8", 0, 0), user(2, 11, "dd", 9, 9),
		},
		Lost: map[uint32]Lost{1: {3, 4096}},
	})
	s := l.Of(1, 2)
	if names(s) != "kworker[0 300] dd[50 60] " || s.Left != 1 || s.Seconds != 2 || s.Own != [2]int64{500, 700} || s.Lost != (Lost{3, 4096}) {
		t.Errorf("%s, %+v", names(s), s)
	}
	// The counts of a user that was dropped start again at 0, and the window is bounded.
	for i := range 20 {
		l.Take(at.Add(time.Duration(3+i)*time.Second), Table{Users: []User{user(1, 10, "fio", int64(i), 0)}})
	}
	if s := l.Of(1, 2); names(s) != "fio[5 0] " || s.Seconds != samples-1 || len(l.past) != samples {
		t.Errorf("%s in %v s, %d samples", names(s), s.Seconds, len(l.past))
	}
	l = Ledger{}
	l.Take(at, Table{Users: []User{user(1, 10, "fio", 1000, 5)}})
	l.Take(at.Add(time.Second), Table{Users: []User{user(1, 10, "fio", 7, 9)}})
	if s := l.Of(1, 2); names(s) != "fio[7 4] " {
		t.Errorf("forgotten and back: %s", names(s))
	}
}

func TestNamesAreValid(t *testing.T) {
	if got := text([16]int8{'a', -1, 'b', 27, 0, 'c'}); got != "a?b\x1b" {
		t.Errorf("%q", got)
	}
	full := [16]int8{}
	for i := range full {
		full[i] = 'x'
	}
	if got := text(full); len(got) != 16 {
		t.Errorf("%q", got)
	}
}

func TestParseHierarchy(t *testing.T) {
	const v2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
	const v1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n38 31 0:35 / /sys/fs/cgroup/blkio rw - cgroup none rw,foo,blkio\n"
	for text, want := range map[string]string{
		"": "", "38 31": "", " - ": "", "1 2 3 4 /x - cgroup": "", v2: "/sys/fs/cgroup/unified",
		v1: "/sys/fs/cgroup/blkio", v2 + v1: "/sys/fs/cgroup/blkio", v1 + v2: "/sys/fs/cgroup/blkio",
	} {
		if got := parseHierarchy(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzParseHierarchy(f *testing.F) {
	f.Add("41 31 0:38 / /a rw shared:9 - cgroup2 cgroup2 rw\n")
	f.Add("38 31 0:35 / /b rw - cgroup none rw,blkio\n")
	f.Fuzz(func(t *testing.T, text string) { parseHierarchy(text) })
}

func TestCgroupPaths(t *testing.T) {
	c := cgroups{root: t.TempDir()}
	id := func(dir string) uint64 {
		t.Helper()
		dir = filepath.Join(c.root, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Ino
	}
	now := time.Unix(1000, 0)
	check := func(id uint64, want string) {
		t.Helper()
		if got := c.path(id, now); got != want {
			t.Errorf("%d is %q, want %q", id, got, want)
		}
	}
	a, root := id("system.slice/a.service"), id("")
	check(a, "/system.slice/a.service")
	check(root, "/")
	check(0, "")
	b := id("b")
	check(b, "") // not walked again so soon
	now = now.Add(walkPeriod)
	check(b, "/b")
	if err := os.RemoveAll(filepath.Join(c.root, "system.slice")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(walkPeriod)
	check(1<<60, "")
	check(a, "/system.slice/a.service") // its last I/O may still follow
	for i := uint64(0); len(c.paths) < maxCgroups; i++ {
		c.paths[1<<61+i] = "old"
	}
	now = now.Add(walkPeriod)
	check(1<<60, "")
	if len(c.paths) != 2 {
		t.Errorf("%d paths are kept beyond the bound", len(c.paths))
	}
	check(b, "/b")
}
