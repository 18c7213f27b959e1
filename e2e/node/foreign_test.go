package node

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/stand"
	"penstock/node/status"
)

// TestForeignIO: a program that does not belong to Hadoop uses a DataNode's disk while HDFS writes
// to it. Penstock names the program and its bytes, and does not attribute its load to HDFS: the
// depth keeps room for requests in parallel. The depth stays below 4, its value without the
// program, because the depth controller subtracts only the minimum time that others can have used.
// How far below 4 depends on how the program's requests merge; core/foreign tests that in virtual
// time. The depth of a daemon that does not see foreign I/O in the counters falls to 1 under the
// same load.
func TestForeignIO(t *testing.T) {
	const (
		seconds         = 10
		reading, writes = 6e6, 4e6 // of the program, bytes a second
	)
	ctx := shared.Begin(t, 4*time.Minute)
	used := shared.Disks[1]
	w := write(ctx, t, 11, 2, dataNodes)
	slow(t)
	backlogged := func() bool { return fixture.Flow(fixture.Device(t, shared.Look(t), used), w.flow).BacklogBytes > 0 }

	fixture.Eventually(t, "HDFS writes to the disk", backlogged)
	program := startChild(t, foreignFile, reading, writes)
	program.begin(t)
	knowing := depths(t, program, seconds)
	did := program.end(t)

	var top status.ForeignUser
	fixture.Eventually(t, "the program is listed with its bytes", func() bool {
		for _, u := range fixture.Device(t, shared.Look(t), used).ForeignUsers.Top {
			if int(u.PID) == program.pid {
				top = u
			}
		}
		return float64(top.Bytes.Read) >= 0.95*float64(did.Read) && float64(top.Bytes.Written) >= 0.95*float64(did.Written)
	})
	within5(t, "read by the program", top.Bytes.Read, did.Read)
	within5(t, "written by the program", top.Bytes.Written, did.Written)
	if top.Cgroup != program.cgroup {
		t.Errorf("its cgroup is %q, want %q", top.Cgroup, program.cgroup)
	}
	for _, c := range []struct{ command, want string }{
		{"top --once", top.Name}, {"doctor", "attributed by process and cgroup"},
	} {
		args := append(strings.Fields(c.command), "--address", shared.Nodes[0].Address)
		if c.command == "doctor" {
			args = append(args, "--datanode", shared.Hadoop.DataNodeURL(1))
		}
		if out := penstock(t, args...); !strings.Contains(out, c.want) {
			t.Errorf("penstock %s does not say %q:\n%s", c.command, c.want, out)
		}
	}

	// Now the same daemon runs with counters of the disk that do not change.
	shared.Retune(t, func(o *daemon.Options) { o.Binary = blinded(t, stand.KernelName(used)) })
	fixture.Eventually(t, "HDFS writes to the disk", backlogged)
	program = startChild(t, foreignFile, reading, writes)
	program.begin(t)
	blind := depths(t, program, seconds)
	program.end(t)

	t.Logf("depth beside the program, each second:    %v", knowing)
	t.Logf("and if the daemon does not see the program: %v", blind)
	if a, b := mean(knowing[seconds/2:]), mean(blind[seconds/2:]); a < 2 || b > 0.7*a {
		t.Errorf("depth %.1f, and %.1f if the daemon does not see the program: want 2 or more, and 0.7 of that or less", a, b)
	}
}

// depths looks at the depth once a second while HDFS has a backlog.
func depths(t *testing.T, c *child, seconds int) (depths []float64) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range seconds {
		select {
		case <-tick.C:
		case <-c.exited:
			t.Fatal("the program has ended")
		}
		d := fixture.Device(t, shared.Look(t), shared.Disks[1])
		depths = append(depths, float64(d.Depth))
		t.Logf("depth %d, latency %.0f ms of %.0f ms, others' part %.2f, foreign %.1f MB in %.1f s", d.Depth,
			float64(d.LatencyNS)/1e6, float64(d.ReferenceNS)/1e6, d.OthersPart, float64(d.Window.Foreign.Read+d.Window.Foreign.Written)/1e6, d.Window.Seconds)
	}
	return depths
}

// blinded returns a script that runs penstock in a mount namespace where a device's counters never
// change.
func blinded(t *testing.T, device string) string {
	t.Helper()
	dir := t.TempDir()
	script, still := filepath.Join(dir, "penstock"), filepath.Join(dir, "stat")
	counters := fmt.Sprintf("/sys/block/%s/stat", device)
	text := fmt.Sprintf("#!/bin/sh\nset -eu\nexec unshare --mount sh -c 'mount --bind %s %s && exec %s \"$@\"' penstock \"$@\"\n", still, counters, shared.Spec.Binary)
	now, err := os.ReadFile(counters)
	fixture.Must(t, err)
	fixture.Must(t, os.WriteFile(still, now, 0o644))
	fixture.Must(t, os.WriteFile(script, []byte(text), 0o755))
	return script
}

func within5(t *testing.T, what string, said, did int64) {
	t.Helper()
	off := float64(said)/float64(did) - 1
	t.Logf("%s: Penstock says %d, the program says %d bytes (%+.2f %%)", what, said, did, 100*off)
	if !(math.Abs(off) <= 0.05) {
		t.Errorf("%s: Penstock says %d, the program says %d bytes", what, said, did)
	}
}

func mean(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	return mean
}
