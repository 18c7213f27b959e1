package node

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/mounts/mountstest"
	"penstock/wire"
)

// next returns the next message of type M.
func next[M wire.Message](r *running) M {
	r.t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	for {
		m, err := r.frames.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		if m, ok := m.(M); ok {
			return m
		}
	}
}

// The daemon reports to an agent which device each of its directories is on, and which devices
// are alive.
func TestAnAgentHearsOfItsDevices(t *testing.T) {
	r := start(t, "enforce")
	agent := r.another(wire.Hello{Role: wire.RoleDataNode, Directories: []string{r.dir, r.dir + "/none", r.dir + "/"}})
	if w := next[wire.Welcome](agent); !bytes.Equal(w.Devices, []uint8{1, 0, 1}) {
		t.Fatalf("devices: %v", w.Devices)
	}
	const all, network = 1<<1 | 1<<wire.NetworkDevice, 1 << wire.NetworkDevice
	if b := next[wire.Heartbeat](agent); b.Alive != all {
		t.Fatalf("alive: %b", b.Alive)
	}
	name := r.deviceName()
	r.daemon.mu.Lock()
	g := r.daemon.devices[name]
	r.daemon.mu.Unlock()
	hold := make(chan struct{})
	g.loop.Apply(device.Enforce, func(string) device.Rule { <-hold; return device.Rule{Weight: 1, Mode: device.Enforce} })
	r.put(r.dir+"/blk_1", "") // its stream looks up the rule
	agent.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: r.dir + "/blk_1"})
	for next[wire.Heartbeat](agent).Alive != network {
	}
	close(hold)
	for next[wire.Heartbeat](agent).Alive != all {
	}
}

// Devices beyond the largest number share that number. They are reported as alive only while all of
// them are.
func TestManyDevicesShareTheLastNumber(t *testing.T) {
	r := start(t, "observe")
	loop := func() *governed {
		l, err := device.New(device.Options{Name: "d", Config: device.Config{Network: true}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return newGoverned(blockfile.Device{Name: "d"}, device.Config{}, l)
	}
	stalled := loop() // like all of these, it does not run
	for stalled.loop.Alive() {
	}
	reg := &registration{daemon: r.daemon}
	for i := 1; i <= wire.MaxDevice+5; i++ {
		g := loop()
		if got, want := reg.number(g), uint8(min(i, wire.MaxDevice)); got != want || reg.number(g) != want {
			t.Fatalf("device %d has number %d, want %d", i, got, want)
		}
	}
	if got := reg.Alive(); got != ^uint64(0) {
		t.Errorf("alive: %b", got)
	}
	if reg.number(stalled) != wire.MaxDevice {
		t.Error("one more has a number of its own")
	}
	if got := reg.Alive(); got != ^uint64(0)>>1 {
		t.Errorf("alive: %b", got)
	}
}

// SIGTERM ends the context of Run. The daemon ends in time although a device's loop stands still and a disk hangs.
func TestTheDaemonEndsWhileADiskHangs(t *testing.T) {
	other := mountstest.OtherDisk(t)
	r := startWith(t, "enforce", "identity: {mode: verify}\n", listed(other))
	mountstest.Hang(t, &r.daemon.calls, other)
	agent, _ := r.welcomed(r.dir, other)
	name := r.deviceName()
	r.daemon.mu.Lock()
	g := r.daemon.devices[name]
	r.daemon.mu.Unlock()
	hold := make(chan struct{})
	g.loop.Apply(device.Enforce, func(string) device.Rule { <-hold; return device.Rule{Weight: 1, Mode: device.Enforce} })
	r.put(r.dir+"/blk_1", "") // its stream looks up the rule
	agent.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: r.dir + "/blk_1"})
	for next[wire.Heartbeat](agent).Alive&2 != 0 {
	}
	begin := time.Now()
	r.stop()
	if waited := time.Since(begin); waited > endWait+soon/2 {
		t.Errorf("the daemon has ended after %v", waited)
	}
	close(hold)
}
