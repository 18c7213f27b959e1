package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/asroot"
)

func TestMain(m *testing.M) { asroot.Main(m, "^$") }

const cache = "../../.cache"

// written writes a file on one host and reads it on another one.
func written(t *testing.T, m *Machines) (file string) {
	t.Helper()
	file = filepath.Join(m.Mount, "file")
	m.Run(t, 0, "sh", "-c", "echo hello > "+file)
	if got := m.Run(t, 2, "cat", file); got != "hello\n" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the mount is visible outside of the hosts")
	}
	return file
}

func TestGluster(t *testing.T) {
	m := ForTest(t, cache, 3)
	m.Gluster(t, GlusterOptions{})
	file := written(t, m)
	answer := m.Run(t, 1, "getfattr", "-n", "glusterfs.pathinfo", "--absolute-names", file)
	for i, h := range m.Hosts {
		at := filepath.Join(m.Folders[i], "file")
		if _, err := os.Stat(at); (err == nil) != strings.Contains(answer, ":"+h.Name+":"+at) {
			t.Errorf("%s: %v, and the answer is %s", h.Name, err, answer)
		}
	}
}

func TestMoose(t *testing.T) {
	m := ForTest(t, cache, 3)
	m.Moose(t, MooseOptions{Copies: 2})
	file := written(t, m)
	copies := 0
	answer := m.Run(t, 1, "mfsfileinfo", file)
	for _, h := range m.Hosts {
		copies += strings.Count(answer, ": "+h.IP()+":9422 (status:VALID)")
	}
	if copies != 2 {
		t.Errorf("the answer has %d copies, want 2: %s", copies, answer)
	}
}
