package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/wire"
)

// startKnown starts a daemon for a device whose costs are known, as with a profile.
func startKnown(t *testing.T) *running {
	t.Helper()
	line := cost.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	both := cost.Coefficients{Random: line, Sequential: line}
	config := device.Config{
		Cost:  cost.Model{Read: both, Write: both},
		Depth: depth.Config{Read: depth.Line(line), Write: depth.Line(line)},
	}
	return startWith(t, "enforce", "", func(d *Daemon) {
		dir, err := blockfile.OpenDir(d.settings.DataDirs[0], sysfs)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := config.Validate(); err != nil {
			t.Fatal(err)
		}
		loop, err := device.New(device.Options{Name: dir.Device.Name, Config: config, Mode: device.Enforce, Policy: d.policy(), Log: d.log})
		if err != nil {
			t.Fatal(err)
		}
		d.devices[dir.Device.Name] = newGoverned(dir.Device, config, loop)
		go loop.Run(t.Context())
	})
}

// TestAgentsHearOfFreeDevices plays two agents. While one of them reads, heartbeats report its device as free, and its
// small reads get no marks. When the other one opens a file for another application, both hear that the device is no
// longer free.
func TestAgentsHearOfFreeDevices(t *testing.T) {
	r := startKnown(t)
	const free, size = 1 << 1, 16 << 10
	block := filepath.Join(r.dir, "blk_1")
	if err := os.WriteFile(block, make([]byte, 4*size), 0o600); err != nil {
		t.Fatal(err)
	}
	for next[wire.Heartbeat](r).Free != free {
	}
	for i := range uint32(4) {
		from := int64(i) * size
		r.send(wire.Open{Stream: i + 1, Direction: wire.Read, Passing: true, Flow: "a", Path: block, From: from, To: from + size})
		r.send(wire.Close{Stream: i + 1, Position: from + size})
	}
	r.until("the account of the reads", func() bool {
		d := r.status().Devices[0]
		return d.Free && d.PassingReads == 4 && len(d.Flows) == 1 && d.Flows[0].Streams == 0
	})
	if len(r.marks) > 0 {
		t.Errorf("passing reads got the marks %v", r.marks)
	}
	other := r.another(wire.Hello{Role: wire.RoleDataNode, Directories: []string{r.dir}})
	r.send(wire.Open{Stream: 5, Direction: wire.Read, Passing: true, Flow: "a", Path: block, To: size})
	r.send(wire.Close{Stream: 5, Position: size})
	other.send(wire.Open{Stream: 1, Direction: wire.Read, Flow: "b", Path: block, To: size})
	other.send(wire.Close{Stream: 1, Position: size})
	for _, agent := range []*running{r, other} {
		for next[wire.Heartbeat](agent).Free != 0 {
		}
	}
	for _, agent := range []*running{r, other} {
		for next[wire.Heartbeat](agent).Free != free {
		}
	}
}

// TestManyPassingReads plays agents that send passing reads as fast as the daemon takes them, at most as many at a time as a
// task may have open. Each read counts, leaves no stream and no file open, and a reader that waits still gets its mark.
func TestManyPassingReads(t *testing.T) {
	r := startKnown(t)
	const free, size, atOnce, reads = 1 << 1, 16 << 10, 1000, 3000
	if atOnce > ipc.MaxTaskStreams {
		t.Fatalf("a task may open only %d files at a time", ipc.MaxTaskStreams)
	}
	block := filepath.Join(r.dir, "blk_1")
	if err := os.WriteFile(block, make([]byte, 4*size), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, role := range []wire.Role{wire.RoleDataNode, wire.RoleTask} {
		a := r.another(wire.Hello{Role: role, Flow: "a", Directories: []string{r.dir}})
		for next[wire.Heartbeat](a).Free != free {
		}
		for id := range uint32(reads) {
			from := int64(id%4) * size
			a.send(wire.Open{Stream: id + 1, Direction: wire.Read, Passing: true, Flow: "a", Path: block, From: from, To: from + size})
			a.send(wire.Close{Stream: id + 1, Position: from + size})
			if sent := id + 1; sent%atOnce == 0 {
				r.until("the account of the reads sent so far", func() bool {
					return r.status().Devices[0].PassingReads == int64(i)*reads+int64(sent)
				})
			}
		}
		a.send(wire.Open{Stream: reads + 1, Direction: wire.Read, Flow: "a", Path: block, To: 4 * size})
		if m := next[wire.Mark](a); m.Stream != reads+1 {
			t.Errorf("%v: a passing read got the mark %v", role, m)
		}
		a.send(wire.Close{Stream: reads + 1, Position: 4 * size})
		r.until("the account of the reads", func() bool {
			d := r.status().Devices[0]
			return d.PassingReads == int64(i+1)*reads && len(d.Flows) == 1 && d.Flows[0].Streams == 0
		})
		a.conn.Close()
	}
	r.until("the task's files to be closed", func() bool { return r.metric(`penstock_agent_files{role="task"}`) == "0" })
}

// TestAllDevicesOfANumberMustBeFree checks the bits of a heartbeat for devices that share the last number.
func TestAllDevicesOfANumberMustBeFree(t *testing.T) {
	r := startKnown(t)
	r.daemon.mu.Lock()
	var known *governed
	for _, g := range r.daemon.devices {
		known = g
	}
	r.daemon.mu.Unlock()
	for !known.loop.Free() {
		time.Sleep(time.Millisecond)
	}
	reg := &registration{daemon: r.daemon}
	for range wire.MaxDevice {
		reg.devices = append(reg.devices, known)
	}
	if got, want := reg.Free(), ^uint64(1<<wire.NetworkDevice); got != want {
		t.Errorf("free: %b, want %b", got, want)
	}
	config := device.Config{Network: true} // never free
	used, err := device.New(device.Options{Name: "used", Config: config, Log: r.daemon.log})
	if err != nil {
		t.Fatal(err)
	}
	reg.devices = append(reg.devices, newGoverned(blockfile.Device{Name: "used"}, config, used))
	if got, want := reg.Free(), ^uint64(1<<wire.NetworkDevice|1<<wire.MaxDevice); got != want {
		t.Errorf("free: %b, want %b", got, want)
	}
}
