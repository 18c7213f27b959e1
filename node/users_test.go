package node

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/monitor/blockio"
	"penstock/node/status"
	"penstock/wire"
)

// Without the necessary right, the daemon shows only the totals. It logs this once and does not try
// again, and the status contains the reason.
func TestUsersSayOnceWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs syncBuffer
		u := newUsers(slog.New(slog.NewTextHandler(&logs, nil)))
		tried, begin := 0, time.Now()
		u.open = func() (*blockio.Watch, error) { tried++; return nil, errors.New("CAP_BPF is missing") }
		u.number = func(name string) (uint32, error) {
			if name == "network" {
				return 0, errors.New("no block device")
			}
			return 8 << 20, nil
		}
		u.follow(t.Context(), func() []string {
			if time.Since(begin) < 10*time.Second {
				return []string{"network"} // nothing to watch yet
			}
			return []string{"network", "sda"}
		})
		if tried != 1 || time.Since(begin) != 10*time.Second {
			t.Errorf("tried %d times, until %v", tried, time.Since(begin))
		}
		u.fail("again", errors.New("CAP_BPF is missing"))
		if got := strings.Count(logs.String(), "level=WARN"); got != 1 {
			t.Errorf("said %d times:\n%s", got, logs.String())
		}
		if s := u.status(); s.On || s.Error != "CAP_BPF is missing" {
			t.Errorf("%+v", s)
		}
		if s := u.of("sda"); s.Top == nil || len(s.Top) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestUsersEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		newUsers(slog.New(slog.DiscardHandler)).follow(ctx, func() []string { return nil })
	})
}

// A foreign process appears in the status with its name, pid and bytes. If the kernel or the test's
// rights do not allow this, the status says so.
func TestStatusNamesForeignProcesses(t *testing.T) {
	r := start(t, "enforce")
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: block})
	r.until("the device", func() bool { return len(r.status().Devices) == 1 })
	if !r.status().Devices[0].Kernel.Counted {
		if s := r.status().ForeignWatch; s != (status.ForeignWatch{}) {
			t.Errorf("%+v without a block device", s)
		}
		return
	}
	r.until("the watch", func() bool { return r.status().ForeignWatch != status.ForeignWatch{} })
	if s := r.status().ForeignWatch; !s.On {
		t.Log(s.Error)
		return
	}
	const size = 2 << 20
	dd := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(r.dir, "other"), "oflag=direct", "bs=256k", "count=8")
	if out, err := dd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.until("dd to show", func() bool {
		for _, u := range r.status().Devices[0].ForeignUsers.Top {
			if u.Name == "dd" && int(u.PID) == dd.Process.Pid {
				if over := u.Bytes.Written - size; over < 0 || over > size/20 || u.DeviceNS <= 0 {
					t.Errorf("%+v, want %d bytes", u, size)
				}
				return true
			}
		}
		return false
	})
}
