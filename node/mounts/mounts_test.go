package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

const text = `22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
30 22 8:16 / /data/1 rw,noatime - xfs /dev/sdb rw
31 22 8:32 / /data/with\040space rw shared:7 master:2 - ext4 /dev/sdc rw
33 22 0:26 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
a line of another form
34 30 8:48 / /data/1/nested rw - ext4 /dev/sdd rw
`

func TestParse(t *testing.T) {
	want := []Mount{
		{"8:2", "/", "ext4", "rw"}, {"8:16", "/data/1", "xfs", "rw"}, {"8:32", "/data/with space", "ext4", "rw"},
		{"0:26", "/sys/fs/cgroup/blkio", "cgroup", "rw,blkio"}, {"8:48", "/data/1/nested", "ext4", "rw"},
	}
	if got := slices.Collect(Parse(text)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for in, want := range map[string]string{`a\040b`: "a b", `a\134b`: `a\b`, `a\04`: `a\04`, `a\9zz`: `a\9zz`} {
		if got := unescape(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestDeviceOf(t *testing.T) {
	root := t.TempDir()
	for name, to := range map[string]string{"one": "/data/1/dfs", "loop": "loop", "relative": "one"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	all := table{"/": "8:2", "/data/1": "8:16", "/data/1/nested": "8:48"}
	for path, want := range map[string]string{
		"/": "8:2", "/data": "8:2", "/data/1": "8:16", "/data/10": "8:2", "/data/1/dfs/../x": "8:16", "/data/1/nested/x": "8:48",
		root + "/one/data": "8:16", root + "/relative/data": "8:16", root + "/loop/data": "8:2", root + "/none": "8:2",
	} {
		if got := all.deviceOf("", path); got != want {
			t.Errorf("%s is on %s, want %s", path, got, want)
		}
	}
	// The links of a process in a container are in its root file system, and not in the daemon's.
	for path, want := range map[string]string{"/one/data": "8:16", "/relative/data": "8:16", root + "/one/data": "8:2"} {
		if got := all.deviceOf(root, path); got != want {
			t.Errorf("%s below another root is on %s, want %s", path, got, want)
		}
	}
	if got := (table)(nil).deviceOf("", "/x"); got != "" {
		t.Errorf("without a table: %q", got)
	}
	var c Calls
	device, _ := c.deviceOf(0, root, nil)
	if same, err := c.deviceOf(os.Getpid(), root, nil); device == "" || device != same || err != nil {
		t.Errorf("this process's mount has the device %q, and by its number %q: %v", device, same, err)
	}
}

// calls returns calls with two devices: of paths below /a and of others.
func calls() *Calls {
	return &Calls{table: table{"/": "8:2", "/a": "8:16"}, readAt: time.Now().Add(time.Hour)}
}

func TestADeviceThatHangs(t *testing.T) {
	c := calls()
	hold := make(chan struct{})
	var running atomic.Int32
	hang := func() int { running.Add(1); <-hold; return 7 }
	late := make(chan int, 100)
	began := time.Now()
	results := make(chan error, 100)
	for range 100 {
		go func() {
			_, err := Do(c, 0, "/a/b", 200*time.Millisecond, hang, func(n int) { late <- n })
			results <- err
		}()
	}
	for range 100 {
		if err := <-results; !errors.Is(err, ErrHangs) {
			t.Errorf("%v", err)
		}
	}
	if waited := time.Since(began); waited > 20*time.Second {
		t.Errorf("the callers waited for %v", waited)
	}
	if n := running.Load(); n > maxCalls {
		t.Errorf("%d calls hang, want at most %d", n, maxCalls)
	}
	if n, err := Do(c, 0, "/b", time.Minute, func() int { return 3 }, nil); n != 3 || err != nil {
		t.Errorf("on another device: %d, %v", n, err)
	}
	for deadline := time.Now().Add(time.Minute); time.Since(began) < HangsAfter+100*time.Millisecond && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	// By now the device is known to hang: no call is made, and nobody waits.
	if _, err := Do(c, 0, "/a", time.Hour, func() int { t.Error("a call was made"); return 0 }, nil); !errors.Is(err, ErrHangs) {
		t.Errorf("%v", err)
	}
	close(hold)
	for range running.Load() {
		if n := <-late; n != 7 {
			t.Errorf("a late result is %d", n)
		}
	}
	if n, err := Do(c, 0, "/a", time.Minute, func() int { return 4 }, nil); n != 4 || err != nil {
		t.Errorf("after the hang: %d, %v", n, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.devices) != 0 {
		t.Errorf("%d devices are kept", len(c.devices))
	}
}
