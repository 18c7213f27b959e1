package control

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/node/control/gate"
	"penstock/node/control/join"
)

// TestJoiningFollowsThePolicy joins the connections of a cgroup in which there are no processes.
func TestJoiningFollowsThePolicy(t *testing.T) {
	root, err := join.Root()
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(root, fmt.Sprintf("penstock-control-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	c, err := Open(options(filepath.Join(dir, "journal"), func(string, gate.Request, func()) {}))
	if err != nil {
		t.Fatal(err)
	}
	want := Joining{Dir: filepath.Join(dir, "join"), Cgroup: group, Ports: []uint16{9866}}
	is := func(what string, w Want, joined bool, changes int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			c.Apply(w)
			s := c.Status()
			if (s.Joined != nil) == joined && s.Changes == changes {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, s)
			}
		}
	}
	is("observe", Want{Joining: &want}, false, 0)
	is("enforce", Want{Enforce: true, Joining: &want}, true, 1)
	is("enforce again", Want{Enforce: true, Joining: &want}, true, 1)
	if s := c.Status(); s.Joined.Sockets != 0 || s.Joined.Error != "" || s.Error != "" {
		t.Errorf("%+v", s)
	}
	is("the kill switch", Want{Joining: &want}, false, 0)
	if _, err := os.Stat(want.Dir); !os.IsNotExist(err) {
		t.Errorf("left over: %v", err)
	}
	is("enforce once more", Want{Enforce: true, Joining: &want}, true, 1)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(want.Dir); !os.IsNotExist(err) {
		t.Errorf("left over: %v", err)
	}
}
