package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/node/status"
	"penstock/ops/doctor"
)

// load writes files until stop is called or the test ends. Each file has its own name, because a
// DataNode may still handle an interrupted file after the next one has begun.
func load(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			content := io.LimitReader(rand.NewChaCha8([32]byte{byte(i)}), 16*fixture.MiB)
			path := fmt.Sprintf("/%s/%d", t.Name(), i%8)
			err = shared.Hadoop.FS().Create(ctx, path, content, hadoop.CreateOptions{Overwrite: true})
		}
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestTop(t *testing.T) {
	load(t)
	var doc *status.Document
	fixture.Eventually(t, "top shows the writers' share", func() bool {
		doc = top(t)
		return len(doc.Devices) == 1 && len(doc.Devices[0].Flows) > 0 && doc.Devices[0].Flows[0].Window.Share > 0.9 &&
			doc.Devices[0].LatencyNS > 0
	})
	dev := doc.Devices[0]
	f := dev.Flows[0]
	if doc.Mode != "enforce" || len(doc.Agents) != 1 || int(doc.Agents[0].PID) != shared.Hadoop.DataNodePID(0) {
		t.Errorf("the daemon: %+v", doc)
	}
	if dev.Name != filepath.Base(shared.Disks[0].Device()) || dev.Directories[0] != filepath.Join(shared.Disks[0].Mount(), "data") ||
		dev.Kernel.Scheduler != "mq-deadline" || dev.ReferenceNS <= 0 || dev.Window.Utilisation <= 0 {
		t.Errorf("the device: %+v", dev)
	}
	if f.Name != "clients" || f.Weight != 7 || f.Window.Entitlement < 0.5 || f.Bytes.Written == 0 || f.Window.Bytes.Written == 0 {
		t.Errorf("the flow: %+v", f)
	}
	text, code := run(t, "top", "--once", "--address", shared.Nodes[0].Address)
	if code != 0 || !bytes.Contains(text, []byte("APPLICATION")) || !bytes.Contains(text, []byte("clients")) {
		t.Errorf("top --once: exit %d: %s", code, text)
	}
	t.Logf("\n%s", text)
}

// Bytes that are written to the disk without HDFS are foreign, and hardly any others are. While
// HDFS writes, most of the foreign bytes can be attributed; afterwards, all of them.
func TestForeignIO(t *testing.T) {
	stop := load(t)
	fixture.Eventually(t, "HDFS writes", func() bool {
		doc := top(t)
		return len(doc.Devices) == 1 && doc.Devices[0].BacklogBytes > 0 && doc.Devices[0].Window.Seconds > 0
	})
	first := top(t).Devices[0]
	count := func() (foreign, own int64) {
		now := top(t).Devices[0]
		for _, f := range now.Flows {
			own += f.Bytes.Written
		}
		for _, f := range first.Flows {
			own -= f.Bytes.Written
		}
		return now.Foreign.Written - first.Foreign.Written, own
	}
	const size, late = 48 * fixture.MiB, 16 * fixture.MiB // what may be in transit: backlog and requests in flight
	name := filepath.Join(shared.Disks[0].Mount(), "not-of-hdfs")
	f, err := os.Create(name)
	fixture.Must(t, err)
	defer os.Remove(name)
	defer f.Close()
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{}), size); err != nil {
		t.Fatal(err)
	}
	fixture.Must(t, f.Sync())
	var foreign, own int64
	fixture.Eventually(t, "most of the foreign bytes are counted", func() bool { foreign, own = count(); return foreign >= size-late })
	t.Logf("while HDFS writes: %d of %d MiB, beside %d MiB by HDFS", foreign/fixture.MiB, size/fixture.MiB, own/fixture.MiB)
	stop()
	fixture.Eventually(t, "all of them are counted", func() bool { foreign, own = count(); return foreign >= size-fixture.MiB })
	t.Logf("afterwards: %d of %d MiB, beside %d MiB by HDFS", foreign/fixture.MiB, size/fixture.MiB, own/fixture.MiB)
	if foreign > size+own/5+8*fixture.MiB {
		t.Errorf("%d bytes count as foreign; the test wrote %d, HDFS wrote %d", foreign, size, own)
	}
}

func TestDoctor(t *testing.T) {
	well := map[string]doctor.Verdict{
		"daemon": doctor.OK, "heartbeat": doctor.OK, "kill-switch": doctor.OK, "mode": doctor.OK, "weights": doctor.OK,
		"datanode": doctor.OK, "agent": doctor.OK, "socket": doctor.OK, "directories": doctor.OK, "rights": doctor.OK,
		"short-circuit": doctor.OK, "devices": doctor.OK, "scheduler": doctor.OK, "kernel": doctor.OK, "java": doctor.OK,
		"hadoop": doctor.OK, "profile": doctor.Warn,
	}
	t.Run("a well node", func(t *testing.T) {
		fixture.Eventually(t, "the agent is connected", func() bool { return len(top(t).Agents) == 1 })
		r, code := diagnose(t, 0, "--ignore", "dirty-limits") // the machine's own, which other programs set
		expect(t, r, well)
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("no agent", func(t *testing.T) {
		r, code := diagnose(t, 1)
		expect(t, r, map[string]doctor.Verdict{"datanode": doctor.OK, "agent": doctor.Fail, "directories": doctor.Fail})
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("another scheduler", func(t *testing.T) {
		id, err := shared.Book.SetFile(fmt.Sprintf("/sys/block/%s/queue/scheduler", filepath.Base(shared.Disks[0].Device())), "none")
		fixture.Must(t, err)
		defer shared.Book.Undo(id)
		r, _ := diagnose(t, 0)
		expect(t, r, map[string]doctor.Verdict{"scheduler": doctor.Warn})
	})
	t.Run("kill switch", func(t *testing.T) {
		file := shared.Socket(0) + ".off"
		fixture.Must(t, os.WriteFile(file, nil, 0o600))
		defer os.Remove(file)
		fixture.Eventually(t, "the kill switch is on", func() bool { return top(t).KillSwitch.On })
		r, _ := diagnose(t, 0)
		expect(t, r, map[string]doctor.Verdict{"kill-switch": doctor.Warn})
	})
	t.Run("a mistake in the weights", func(t *testing.T) {
		fixture.Must(t, shared.Nodes[0].SetWeights("defualt: 1\n"))
		fixture.Eventually(t, "the file is refused", func() bool { return top(t).Weights.Error != "" })
		r, _ := diagnose(t, 0)
		expect(t, r, map[string]doctor.Verdict{"weights": doctor.Warn})
	})
	t.Run("no daemon", func(t *testing.T) {
		fixture.Must(t, shared.Nodes[0].Stop())
		defer func() {
			fixture.Must(t, shared.StartNode(t.Context(), 0, nil))
		}()
		fixture.Eventually(t, "the agent has noticed", func() bool {
			r, code := diagnose(t, 0)
			if code != 1 {
				t.Fatalf("exit code %d", code)
			}
			return strings.Contains(r.Text(), "not connected to a daemon")
		})
		if out, code := run(t, "top", "--once", "--address", shared.Nodes[0].Address); code != 1 || len(out) > 0 {
			t.Errorf("top without a daemon: exit %d: %s", code, out)
		}
	})
}
