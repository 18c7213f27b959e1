package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/monitor"
	"penstock/node/status"
	"penstock/wire"
)

func (r *running) status() *status.Document {
	r.t.Helper()
	code, body := r.get("/status")
	if code != 200 {
		r.t.Fatalf("/status: %d: %s", code, body)
	}
	doc, err := status.Parse([]byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	return doc
}

func TestStatusTellsWhatTheDaemonDoes(t *testing.T) {
	r := start(t, "enforce")
	const size = 5 << 20
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, strings.Repeat("x", size))
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "application_1_0001", Path: block})
	r.until("a lease", func() bool { return r.marks[1] > 0 })
	r.send(wire.Progress{Stream: 1, Position: size})
	r.until("the quanta to be drained", func() bool {
		d := r.status()
		return len(d.Devices) == 1 && len(d.Devices[0].Flows) == 1 && d.Devices[0].Flows[0].Window.Share == 1
	})
	doc := r.status()
	if doc.Mode != "enforce" || doc.PID != os.Getpid() || !doc.Heartbeat.Alive || doc.KillSwitch.On || doc.MonotonicNS <= 0 {
		t.Errorf("%+v", doc)
	}
	if len(doc.Agents) != 1 {
		t.Fatalf("agents: %+v", doc.Agents)
	}
	a := doc.Agents[0]
	if int(a.PID) != os.Getpid() || int(a.UID) != os.Getuid() || a.Role != "datanode" || a.Agent != "test" || a.Directories[0] != r.dir || a.Since.IsZero() {
		t.Errorf("agent: %+v", a)
	}
	dev := doc.Devices[0]
	if !dev.Answered || dev.Algorithm != "sfqd2" || dev.Depth < 1 || dev.DepthMax != 12 || dev.StagedBound < 2*dev.QuantumBytes || dev.Directories[0] != r.dir || dev.Window.Seconds <= 0 {
		t.Errorf("device: %+v", dev)
	}
	f := dev.Flows[0]
	if f.Name != "application_1_0001" || f.Weight != 1 || f.Streams != 1 || f.Window.Share != 1 || f.Window.Entitlement != 1 || f.ServiceNS <= 0 {
		t.Errorf("flow: %+v", f)
	}
	r.conn.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		doc = r.status()
		if len(doc.Agents) == 0 && len(doc.Devices[0].Directories) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %+v", doc.Agents)
		}
	}
}

// The manual describes every field, and no other.
func TestTheReferenceHasEveryField(t *testing.T) {
	manual, err := os.ReadFile("../docs/reference/status.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := status.Document{Agents: make([]status.Agent, 1), MissingCalls: make([]status.MissingCall, 1), Orchestrators: []status.Orchestrator{{Top: make([]status.Orchestrated, 1), DevicePlugin: &status.DevicePlugin{}}}, Devices: []status.Device{{
		Flows: make([]status.Flow, 1), ForeignUsers: status.ForeignUsers{Top: make([]status.ForeignUser, 1)},
		Latencies: status.Latencies{Top: make([]status.OwnerLatency, 1)},
	}}}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				if !strings.Contains(string(manual), "`"+name+"`") {
					t.Errorf("docs/reference/status.md says nothing of %s", name)
				}
				visit(inner)
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		}
	}
	visit(tree)
}

func TestStatusIsBounded(t *testing.T) {
	r := readingAt(0, monitor.Counters{})
	r.governed = newGoverned(blockfile.Device{Name: "sdz"}, device.Config{}, nil)
	for i := range 300 {
		r.snap.Flows = append(r.snap.Flows, flowSnap(fmt.Sprintf("f%03d", i), 1, 0, time.Duration(i), 0, 0))
	}
	s := r.status(256)
	if len(s.Flows) != 256 || s.FlowsLeftOff != 44 || s.Flows[0].Name != "f299" {
		t.Errorf("%d flows, %d left off, first %s", len(s.Flows), s.FlowsLeftOff, s.Flows[0].Name)
	}
}

// If a device's loop is stalled, the status names the device, and neither the status nor the
// daemon's end is delayed.
func TestALoopThatStandsStill(t *testing.T) {
	r := start(t, "enforce")
	dir, block := r.dir, filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: block})
	r.until("the first lease", func() bool { return r.marks[1] > 0 })
	name := r.deviceName()
	r.daemon.mu.Lock()
	g := r.daemon.devices[name]
	r.daemon.mu.Unlock()
	hold := make(chan struct{})
	g.loop.Apply(device.Enforce, func(string) device.Rule { <-hold; return device.Rule{Weight: 1, Mode: device.Enforce} })
	defer close(hold)
	r.put(r.weights, "default: 2\n") // must not delay the daemon either

	code, body := r.get("/metrics")
	if code != 200 || !strings.Contains(body, fmt.Sprintf("penstock_device_silent{device=%q} 1", name)) {
		t.Errorf("/metrics: %d, and does not say that %s is silent", code, name)
	}
	doc := r.status()
	if len(doc.Silent) != 1 || doc.Silent[0] != name || doc.Devices[0].Answered || doc.Devices[0].Directories[0] != dir {
		t.Errorf("status: %+v", doc)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if code, body = r.get("/-/healthy"); code == 503 && strings.Contains(body, name) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/-/healthy: %d %s", code, body)
		}
	}
	if doc = r.status(); doc.Heartbeat.Alive || len(doc.Heartbeat.Stalled) != 1 {
		t.Errorf("heartbeat: %+v", doc.Heartbeat)
	}
	begin := time.Now()
	r.stop()
	if took := time.Since(begin); took > 4*stopWait {
		t.Errorf("the daemon took %v to stop", took)
	}
}
