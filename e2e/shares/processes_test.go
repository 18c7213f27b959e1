package shares

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	clients "penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/judge"
	"penstock/node/status"
)

// TestProcessesWithoutAnAgent: a buffered writer and a direct reader that do not belong to Hadoop share
// the disk with an application that reads from HDFS, with the weights 1:1:8. The gate holds the writer and the
// reader. The disk's own log shows the share of each.
func TestProcessesWithoutAnAgent(t *testing.T) {
	x := &trial{cluster: start(t), measure: serviceOf, quantum: float64(fullQuantum)}
	x.retune(t, flashCost, fmt.Sprintf("control: {mode: enforce, directories: [%s]}\n", x.disk.Mount()))
	reader := part{number: 71, weight: 8, bytes: 640 * mib}
	x.parts = []part{reader, {name: "process:writer", weight: 1}, {name: "process:reader", weight: 1}}
	dir := filepath.Join(x.disk.Mount(), "beside")
	fixture.Must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { fixture.Check(t, os.RemoveAll(dir)) })
	written, read := filepath.Join(dir, "written"), filepath.Join(dir, "read")
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Args[0] = filepath.Base(args[0])
		return cmd
	}
	// Both processes are dd. They run under different command names, by which the policy selects them.
	dd, err := exec.LookPath("dd")
	fixture.Must(t, err)
	program, err := os.ReadFile(dd)
	fixture.Must(t, err)
	for _, name := range []string{"beside-writer", "beside-reader"} {
		fixture.Must(t, os.WriteFile(x.Path(name), program, 0o755))
		t.Cleanup(func() { os.Remove(x.Path(name)) })
	}
	out, err := run(dd, "if=/dev/zero", "of="+read, "bs=1M", "count=128", "conv=fsync").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	g := x.guests(t)
	g.prepare(t, reader)
	text := fmt.Sprintf(`default: 1
rules: [{application: %s, weight: 8}]
processes:
  - {name: writer, command: beside-writer, weight: 1}
  - {name: reader, command: beside-reader, weight: 1}
`, reader.flow())
	fixture.Must(t, shared.SetWeights(t.Context(), 0, text))
	t.Cleanup(func() { fixture.Check(t, shared.SetWeights(context.Background(), 0, "default: 1\n")) })
	x.awaitHolds(t, "process:writer", "process:reader")

	x.forget(t)
	x.limit(t, flash)
	application := g.join(t, reader)
	x.backlogged(t, application)
	begin := func(cmd *exec.Cmd) {
		_, err := x.Book.StartProcess(cmd)
		fixture.Must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() {
			select {
			case err := <-ended:
				t.Errorf("%s has ended: %v", cmd.Args[0], err)
			default:
				cmd.Process.Kill()
				<-ended
			}
		})
	}
	begin(run(x.Path("beside-writer"), "if=/dev/zero", "of="+written, "bs=64k", "count=8192"))
	begin(run(x.Path("beside-reader"), "if="+read, "of=/dev/null", "bs=256k", "iflag=direct"))
	err = x.node.await(t.Context(), "serving all three", func(m metrics) error {
		application.running(t)
		for _, p := range x.parts[1:] {
			if m.flow("bytes_total", p.flow()) < mib {
				return fmt.Errorf("%s has moved less than 1 MiB", p.flow())
			}
		}
		return nil
	})
	fixture.Must(t, err)
	pass(t, 2*settling)
	from := disk.Monotonic()
	pass(t, window+4*slide)
	application.running(t)
	blocks := x.owners(t, map[string][]string{reader.flow(): reader.paths()})
	x.owner = func(path string) string {
		switch {
		case strings.HasSuffix(path, "beside/written"):
			return "process:writer"
		case strings.HasSuffix(path, "beside/read"):
			return "process:reader"
		}
		return blocks(path)
	}
	x.hold(t, "beside HDFS", x.parts, judge.Window{From: from, To: disk.Monotonic()})
}

// awaitHolds waits until the daemon holds the processes of all flows.
func (x *trial) awaitHolds(t *testing.T, flows ...string) {
	t.Helper()
	err := x.node.await(t.Context(), "holding processes", func(metrics) error {
		s, err := status.Fetch(t.Context(), x.node.Address)
		if err == nil && slices.ContainsFunc(flows, func(flow string) bool { return !s.Control.Held(flow) }) {
			err = fmt.Errorf("not held yet: %+v", s.Control)
		}
		return err
	})
	fixture.Must(t, err)
}

// TestShortCircuitReadsOfAService: clients that read block files without the DataNode share the disk with an application that
// reads through it, with the weights 3:1. An entry of processes gives the clients the flow of a named service, and
// the gate holds them. All that they read counts for that flow.
func TestShortCircuitReadsOfAService(t *testing.T) {
	x := &trial{cluster: start(t), measure: serviceOf, quantum: float64(fullQuantum)}
	x.retune(t, flashCost, fmt.Sprintf("control: {mode: enforce, directories: [%s]}\n", x.disk.Mount()))
	reader := part{number: 74, weight: 1, bytes: 640 * mib}
	local := part{number: 75, name: "service:local", weight: 3, bytes: 1024 * mib}
	x.parts = []part{reader, local}
	remote := x.guests(t)
	near := &guests{cluster: x.cluster, jvm: x.StartClients(t, clients.Options{Conf: x.ShortCircuited(t), Log: filepath.Join(x.Hadoop.LogDir(), "near.log")})}
	for _, p := range x.parts {
		remote.prepare(t, p)
	}
	text := fmt.Sprintf(`default: 1
rules: [{application: %[1]s, weight: %[2]d}, {flow: "%[3]s", weight: %[4]d}]
services: [{name: local, user: "%[5]d"}]
processes: [{name: files, user: "%[5]d", command: java, service: local}]
`, reader.flow(), reader.weight, local.flow(), local.weight, os.Getuid())
	fixture.Must(t, shared.SetWeights(t.Context(), 0, text))
	t.Cleanup(func() { fixture.Check(t, shared.SetWeights(context.Background(), 0, "default: 1\n")) })
	x.awaitHolds(t, local.flow())

	x.forget(t)
	x.limit(t, flash)
	both := []contender{remote.join(t, reader), near.join(t, local)}
	x.backlogged(t, both...)
	pass(t, 2*settling)
	s := x.watch(t, window+4*slide, often, both...)
	x.owner = x.owners(t, map[string][]string{reader.flow(): reader.paths(), local.flow(): local.paths()})
	x.hold(t, "beside short-circuit reads", x.parts, s.Window)
	x.booked(t, s)
	moved := x.judge(t, x.owner, s.Window)[0].Owners[local.flow()]
	charged := s.after.flow("bytes_total", local.flow()) - s.before.flow("bytes_total", local.flow())
	t.Logf("short-circuit reads: the disk moved %d bytes, and the flow was charged %.0f", moved.Bytes(), charged)
	if off := charged/float64(moved.Bytes()) - 1; !(math.Abs(off) <= 0.05) { // so that NaN fails
		t.Errorf("%s was charged %.0f bytes, and the disk moved %d of its files: off by %.3f", local.flow(), charged, moved.Bytes(), off)
	}
}

// fullQuantum is the device time of a quantum of flashCost: 256 KiB on the 8 channels of the disk.
const fullQuantum = 256 << 10 * time.Second / rate
