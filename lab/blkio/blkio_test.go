package blkio

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/ledger"
)

func TestMountOf(t *testing.T) {
	const v1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n38 31 0:35 / /run/blkio rw,relatime shared:9 - cgroup none rw,blkio\n"
	if at, err := mountOf([]byte(v1)); err != nil || at != "/run/blkio" {
		t.Errorf("%q, %v", at, err)
	}
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
	if at, err := mountOf([]byte(v2)); err == nil || !strings.Contains(err.Error(), "not mounted") {
		t.Errorf("%q, %v", at, err)
	}
}

// A group accepts its settings, and processes join it as a container's JVM does. It can be removed
// while a process is still in it.
func TestGroup(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	if _, err := Mount(); err != nil || os.Geteuid() != 0 {
		if _, err := Make(book, "penstock-test"); err == nil {
			t.Fatal("a cgroup was made without the controller or rights")
		}
		return
	}
	g, err := Make(book, "penstock-test-"+filepath.Base(filepath.Dir(book.Dir())))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetWeight(WeightMax + 1); err == nil {
		t.Error("a weight of 1001 was taken")
	}
	if _, err := os.Stat(filepath.Join(g.Path, "blkio.bfq.weight")); err == nil {
		if err := g.SetWeight(7); err != nil {
			t.Error(err)
		}
	}
	member := exec.Command("sh", "-c", "echo 0 >"+g.Path+"/cgroup.procs && echo in && read forever")
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
	if procs, err := os.ReadFile(filepath.Join(g.Path, "cgroup.procs")); err != nil || len(procs) == 0 {
		t.Errorf("nobody is in the group: %v", err)
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(g.Path); err == nil {
		t.Error("the group is still there")
	}
}
