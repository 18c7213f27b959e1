package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/core/ladder"
	"penstock/lab/poll"
	"penstock/node/status"
)

const cgroupOnly = "control: {mode: enforce, mechanisms: [cgroup]}\n"

func (r *running) holding() *holding {
	r.daemon.mu.Lock()
	defer r.daemon.mu.Unlock()
	return r.daemon.holding
}

// The status shows what kernel control would hold, and why it cannot.
func TestControlInTheStatus(t *testing.T) {
	r := startWith(t, "enforce", cgroupOnly)
	r.put(r.weights, "default: 1\nprocesses: [{name: a, command: nobody-has-it, limit: 1MiB}]\n")
	var c status.Control
	r.until("the entry", func() bool { c = r.status().Control; return len(c.Holds) == 1 })
	if !c.Enforced || c.Mode != "enforce" || len(c.Mechanisms) != len(ladder.All()) || c.Gate != nil || c.Changes != 0 {
		t.Errorf("%+v", c)
	}
	if h := c.Holds[0]; h.Flow != "process:a" || h.Held || h.Mechanism != "" || len(h.Passed) != 5 || h.Limit != 1<<20 {
		t.Errorf("%+v", h)
	}
	if p := r.daemon.PreviewControl(); len(p.Holds) != 1 || p.Holds[0].Mechanism != "" {
		t.Errorf("preview: %+v", p)
	}
	r.put(r.kill, "")
	r.until("the kill switch", func() bool { return !r.status().Control.Enforced })
	r.stop()
	if _, err := os.Stat(filepath.Join(filepath.Dir(r.dir), "control.journal")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of changes after the end: %v", err)
	}
}

// A daemon whose record is damaged says so, and opens kernel control when the record is mended.
func TestControlThatCannotBeOpened(t *testing.T) {
	r := startWith(t, "enforce", cgroupOnly, func(d *Daemon) {
		if err := os.WriteFile(d.settings.Control.Journal, []byte("nonsense\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	journal := filepath.Join(filepath.Dir(r.dir), "control.journal")
	r.until("the error", func() bool { return strings.Contains(r.status().Control.Error, "line 1") })
	if err := os.Remove(journal); err != nil {
		t.Fatal(err)
	}
	h := r.holding()
	h.mu.Lock()
	h.tried = h.tried.Add(-openAgainAfter)
	h.mu.Unlock()
	r.until("kernel control", func() bool { c := r.status().Control; return c.Error == "" && c.Enforced })
}

// TestJoining joins connections to a port that no server has, so no connection of the machine is touched. The kill switch ends this.
func TestJoining(t *testing.T) {
	r := startWith(t, "enforce", "control: {mode: enforce, mechanisms: [], joining: {ports: [1]}}\n")
	r.until("the joining", func() bool { return r.status().Control.Joining != nil })
	if c := r.status().Control; *c.Joining != (status.Joining{}) || c.Error != "" || c.Changes != 1 {
		t.Errorf("%+v, %+v", c, c.Joining)
	}
	if bypass := r.daemon.bypass(); bypass == nil || len(bypass) > 0 {
		t.Errorf("bypass: %v", bypass)
	}
	r.put(r.kill, "")
	r.until("the kill switch", func() bool { c := r.status().Control; return c.Joining == nil && c.Changes == 0 })
	if bypass := r.daemon.bypass(); bypass != nil {
		t.Errorf("bypass after the end: %v", bypass)
	}
}

// TestJoiningThatFails shows why no connection is joined until the next try.
func TestJoiningThatFails(t *testing.T) {
	r := startWith(t, "enforce", "control: {mode: enforce, mechanisms: [], joining: {cgroup: ROOT/none}}\n")
	r.until("the error", func() bool { return strings.Contains(r.status().Control.Error, "none") })
	r.holding().controller().Apply(r.holding().want())
	if c := r.status().Control; c.Joining != nil || c.Changes != 0 || !strings.Contains(c.Error, "none") {
		t.Errorf("%+v", c)
	}
}

// Without the setting, a start still puts back what an earlier daemon has left.
func TestAnEarlierDaemonsChanges(t *testing.T) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	var journal string
	r := startWith(t, "observe", "", func(d *Daemon) {
		journal = filepath.Join(filepath.Dir(d.settings.Socket), "control.journal")
		// A gate's process that has ended, since its pid is that of a process with another start time.
		text := fmt.Sprintf(`{"boot":%q}`+"\n"+`{"change":{"mechanism":"gate","target":"gate process","before":"","after":"%d 1"}}`+"\n",
			strings.TrimSpace(string(boot)), os.Getpid())
		if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	r.until("the record is gone", func() bool { _, err := os.Stat(journal); return errors.Is(err, os.ErrNotExist) })
}

// A directory belongs to the device that is mounted there now, and does not keep its file system busy.
func TestADirectoryThatIsMountedLater(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root may mount
	}
	r := startWith(t, "enforce", cgroupOnly)
	r.until("kernel control", func() bool { return r.status().Control.Enforced })
	h := r.holding()
	before := h.findPlaces()
	if len(before) != 1 {
		t.Fatalf("%+v", before)
	}
	command := func(words ...string) {
		t.Helper()
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", words, err, out)
		}
	}
	command("mount", "-t", "tmpfs", "none", r.dir)
	mounted := true
	defer func() {
		if mounted {
			command("umount", "-l", r.dir)
		}
	}()
	if during := h.findPlaces(); len(during) != 1 || during[0].Name == before[0].Name {
		t.Errorf("before %+v, with another file system %+v", before, during)
	}
	// It fails while the daemon has the directory open, which it has for a moment when it looks there.
	unmounted := func() (bool, error) { return exec.Command("umount", r.dir).Run() == nil, nil }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := poll.Until(ctx, 50*time.Millisecond, unmounted); err != nil {
		t.Fatalf("the file system stays busy: %v", err)
	}
	mounted = false
	if after := h.findPlaces(); len(after) != 1 || after[0] != before[0] {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
