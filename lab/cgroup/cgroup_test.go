package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"penstock/lab/ledger"
)

func TestMountOf(t *testing.T) {
	const v1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n38 31 0:35 / /run/blkio rw,relatime shared:9 - cgroup none rw,blkio\n"
	if at, err := mountOf([]byte(v1), "blkio"); err != nil || at != "/run/blkio" {
		t.Errorf("%q, %v", at, err)
	}
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
	if at, err := mountOf([]byte(v2), "blkio"); err == nil || !strings.Contains(err.Error(), "not mounted") {
		t.Errorf("%q, %v", at, err)
	}
}

func book(t *testing.T) *ledger.Ledger {
	t.Helper()
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	return book
}

// The memory of both versions of the controller is read from the files in the kernel's form.
func TestUse(t *testing.T) {
	want := MemoryUse{Resident: 7 << 20, Cache: 3 << 20, Killed: 2}
	for name, test := range map[string]struct {
		files              memoryFiles
		stat, file, events string
	}{
		"v1": {memoryV1, "cache 3145728\nrss 7340032\nrss_huge 0\n", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"},
		"v2": {memoryV2, "anon 7340032\nfile 3145728\nkernel 1\n", "memory.events", "low 0\noom 5\noom_kill 2\n"},
	} {
		m := &Memory{Group: &Group{Path: t.TempDir()}, files: test.files}
		if _, err := m.Use(); err == nil {
			t.Errorf("%s: a group without files has a memory", name)
		}
		for file, text := range map[string]string{"memory.stat": test.stat, test.file: test.events} {
			if err := os.WriteFile(filepath.Join(m.Path, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := m.Use(); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := os.WriteFile(filepath.Join(m.Path, "memory.stat"), []byte("other 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Use(); err == nil || !strings.Contains(err.Error(), test.files.resident) && !strings.Contains(err.Error(), test.files.cache) {
			t.Errorf("%s: memory.stat without the memory: %v", name, err)
		}
	}
}

// A group of this machine limits and measures a process. Without rights or the controller, the error says so.
func TestMemory(t *testing.T) {
	const limit = 256 << 20
	book := book(t)
	m, err := MakeMemory(book, "penstock-test-"+filepath.Base(filepath.Dir(book.Dir())), limit)
	if err != nil {
		if os.Geteuid() == 0 && !strings.Contains(err.Error(), "controller") && !errors.Is(err, os.ErrPermission) && !errors.Is(err, unix.EROFS) {
			t.Error(err)
		}
		return
	}
	member := exec.Command("sh", "-c", "echo 0 >"+m.Path+"/cgroup.procs && echo in && read forever")
	in, err := member.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := member.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); member.Wait() }()
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if use, err := m.Use(); err != nil || use.Resident < 0 || use.Resident+use.Cache > limit || use.Killed != 0 {
		t.Errorf("%+v, %v", use, err)
	}
	if err := m.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.Path); err == nil {
		t.Error("the group is still there")
	}
}

func TestMakeInAMissingHierarchy(t *testing.T) {
	if _, err := Make(book(t), filepath.Join(t.TempDir(), "missing"), "penstock-test"); err == nil {
		t.Error("a group was made")
	}
}
