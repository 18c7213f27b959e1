package control

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/core/ladder"
	"penstock/lab/disk"
	"penstock/node/control/cgroup"
	"penstock/node/control/gate"
)

// A direct reader that could read 40 MB/s is held to about 10 MB/s by the freezer, and runs freely when
// the rule is gone.
func TestTheFreezerHoldsToALimit(t *testing.T) {
	m := start(t)
	h, err := cgroup.Find(cgroup.V1, "freezer")
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/penstock-frozen-%d", os.Getpid())
	folder := filepath.Join(h.Mount, path)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(m.place.Path, "f")
	if out, err := exec.Command("dd", "if=/dev/zero", "of="+file, "bs=1M", "count=64", "conv=fsync").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := m.disk.SetModel(disk.Model{BytesPerSecond: 40_000_000, CapacityBytes: 1e12}); err != nil {
		t.Fatal(err)
	}
	loop := exec.Command("sh", "-c", fmt.Sprintf("echo $$ > %s/cgroup.procs && while :; do dd if=%s iflag=direct of=/dev/null bs=256k 2>/dev/null; done", folder, file))
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The group has the shell and its present dd.
		for {
			text, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
			if err != nil || len(text) == 0 {
				break
			}
			for _, line := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(line); err == nil {
					if p, err := os.FindProcess(pid); err == nil {
						p.Kill()
					}
				}
			}
		}
		loop.Wait()
	})
	read := func() int64 {
		t.Helper()
		records, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(m.disk.Device()), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		sectors, err := strconv.ParseInt(strings.Fields(string(records))[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return 512 * sectors
	}
	c := m.open("freezer")
	want := Want{Enforce: true, Places: []Place{m.place}, Processes: []Process{{Flow: "process:reader", UID: gate.AnyUser, Cgroup: path, Limit: 10_000_000}}}
	rate := func(w Want, seconds int) float64 {
		t.Helper()
		ticker := time.NewTicker(dutyPeriod)
		defer ticker.Stop()
		before, begun := read(), time.Now()
		for range seconds {
			c.Apply(w)
			<-ticker.C
		}
		return float64(read()-before) / time.Since(begun).Seconds()
	}
	rate(want, 6) // the duty settles
	held := rate(want, 5)
	if s := c.Status(); len(s.Holds) != 1 || !s.Holds[0].Holds {
		t.Fatalf("%+v", s)
	} else if m, _ := ladder.Taken(s.Holds[0].Steps); m != ladder.Freezer {
		t.Errorf("held by %s", m)
	}
	free := rate(Want{Enforce: true}, 2)
	t.Logf("held to 10 MB/s: %.1f MB/s; free: %.1f MB/s", held/1e6, free/1e6)
	if held > 20e6 || held < 5e6 || free < 1.3*held {
		t.Errorf("held to 10 MB/s it read %.1f MB/s, and %.1f MB/s when it was free", held/1e6, free/1e6)
	}
}
