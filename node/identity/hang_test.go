package identity

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/mounts"
	"penstock/node/mounts/mountstest"
)

// soon is the longest duration of a step that waits for no disk, also on a busy machine.
const soon = 10 * time.Second

// If the disk of a local directory hangs, the evidence in this directory is missing. Processes with evidence elsewhere are
// identified as before, and nothing waits.
func TestALocalDirectoryThatHangs(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	other := mountstest.OtherDisk(t)
	w.mkdir(other, "nmPrivate")
	real := w.local
	w.local = other
	w.container("bob", contB, 200)
	w.local = real
	w.start(process{pid: 300, uid: me})
	s := w.settings()
	s.LocalDirs, s.Calls = []string{real, other}, &mounts.Calls{}
	c := newChecker(t, s)
	verdict := func(pid int32, claimed string) string {
		t.Helper()
		begin := time.Now()
		v := c.Process(pid, me, claimed)
		if waited := time.Since(begin); waited > soon {
			t.Errorf("identified after %v", waited)
		}
		return v.State.String() + " " + v.Evidence.String()
	}
	check := func(when string, want map[int32]string) {
		t.Helper()
		for pid, want := range want {
			if got := verdict(pid, map[int32]string{100: appA, 200: appB, 300: appA}[pid]); got != want {
				t.Errorf("%s: process %d: %s, want %s", when, pid, got, want)
			}
		}
	}
	sound := map[int32]string{100: "confirmed session", 200: "confirmed session", 300: "refuted outside"}
	check("both disks answer", sound)
	answer := mountstest.Hang(t, s.Calls, other)
	begin := time.Now()
	c.SetDirs(s.LocalDirs, nil)
	if v, leave := c.AddServer(300, me); v.State != Confirmed {
		t.Errorf("a server beside a disk that hangs: %+v", v)
	} else {
		leave()
	}
	if waited := time.Since(begin); waited > soon {
		t.Errorf("waited for %v", waited)
	}
	// The second process's working directory names its container, on the disk that hangs.
	check("one disk hangs", map[int32]string{100: "confirmed session", 200: "unknown none"})
	answer()
	check("both answer again", sound)
}

// A disk that begins to hang after its records were read makes the processes of these records uncertain. They do not
// count as processes in no container.
func TestADiskThatHangsAfterItsRecordsWereRead(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	r := w.inspector(nil).records
	self, err := proc(w.proc).life(100)
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	lookup := func(want string, certain bool) {
		t.Helper()
		if container, complete := r.lookup([]life{self}, since); container != want || complete != certain {
			t.Errorf("container %q, complete %v", container, complete)
		}
	}
	lookup(contA, true)
	answer := mountstest.Hang(t, r.calls, w.local)
	lookup("", false)
	answer()
	lookup(contA, true)
}

// A process that cannot be examined is unknown after a while. Others are examined meanwhile, and the checker can be
// closed.
func TestAProcessThatHangs(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	pipe := filepath.Join(w.proc, strconv.Itoa(101), "cgroup")
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil { // an open for reading waits for a writer
		t.Fatal(err)
	}
	s := w.settings()
	s.Budget, s.Workers = 100*time.Millisecond, 1
	c := New(s)
	begin := time.Now()
	if v := c.Process(101, me, appA); v.State != Unknown {
		t.Errorf("%+v", v)
	}
	answer := make(chan Verdict, 1)
	if _, known := c.Check(claim(appA), func(v Verdict) { answer <- v }); known {
		t.Error("known at once")
	}
	if v := <-answer; v.State != Unknown {
		t.Errorf("%+v", v)
	}
	if v := c.Process(100, me, appA); v.State != Confirmed {
		t.Errorf("another process: %+v", v)
	}
	c.Check(claim(appB), func(v Verdict) { answer <- v }) // in progress when the checker is closed
	c.Close()
	<-answer
	if waited := time.Since(begin); waited > 4*soon {
		t.Errorf("all this took %v", waited)
	}
	for c.looking.Load() > 0 { // let all of them end
		if f, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
		time.Sleep(time.Millisecond)
	}
}
