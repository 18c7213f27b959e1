package blkio

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"penstock/lab/ledger"
)

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
