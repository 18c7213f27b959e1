package control

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/control/gate"
	"penstock/node/control/join"
	"penstock/node/control/journal"
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

// TestUnreadBytesKeepTheRecord: an end of joining that readers delay is tried again until they have read, without a wait in
// Apply. The journal has the change until then.
func TestUnreadBytesKeepTheRecord(t *testing.T) {
	var unread atomic.Bool
	var tries atomic.Int32
	unread.Store(true)
	release := make(chan struct{})
	undo := map[string]journal.Undo{join.Mechanism: func(journal.Change) error {
		tries.Add(1)
		<-release
		if unread.Load() {
			return join.ErrUnread
		}
		return nil
	}}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run", "journal"), undo)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Make(journal.Change{Mechanism: join.Mechanism, Target: "/pins", After: "attached"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := &Control{journal: j, options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	now := time.Now()
	sweep := func() { // returns while Undo waits
		t.Helper()
		c.putBackJoined(now)
		if n := j.Len(); n != 1 {
			t.Errorf("%d changes", n)
		}
	}
	wait := func() {
		t.Helper()
		select {
		case <-c.joining.leaving:
		case <-time.After(20 * time.Second):
			t.Fatal("the end of joining is not tried")
		}
	}
	sweep()
	now = now.Add(retryAfter)
	sweep() // the first try has not returned
	close(release)
	wait()
	for range 3 {
		now = now.Add(retryAfter)
		sweep()
		wait()
	}
	now = now.Add(retryAfter - 1)
	sweep()
	if n := tries.Load(); n != 4 {
		t.Errorf("%d tries, want 4", n)
	}
	if n := strings.Count(log.String(), "not everything is put back yet"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, &log)
	}
	unread.Store(false)
	now = now.Add(1)
	sweepEnds := func() { c.putBackJoined(now); wait() }
	if sweepEnds(); j.Len() != 0 || tries.Load() != 5 {
		t.Errorf("%d changes after %d tries", j.Len(), tries.Load())
	}
	now = now.Add(retryAfter)
	if sweepEnds(); tries.Load() != 5 {
		t.Error("tried again without a change")
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	c.noteEnd(errors.New("no such file"))
	if !strings.Contains(log.String(), "no such file") {
		t.Error("an error is not logged")
	}
}
