package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/node/monitor/owner"
	"penstock/node/monitor/processes"
	"penstock/node/status"
	"penstock/wire"
)

// TestApplicationsAreAddedUp: the containers of an application count together. Applications that run come first, then those
// with the most CPU time, and at most maxStatusApplications are listed.
func TestApplicationsAreAddedUp(t *testing.T) {
	looked := time.Unix(1, 0)
	s := processes.Snapshot{Looked: looked, Sums: []processes.Sum{
		{Group: processes.Group{Flow: "job", Owner: owner.Owner{ID: "c1"}}, Processes: 2, CPU: 3, Memory: 10, Read: 1, Written: 2},
		{Group: processes.Group{Owner: owner.Owner{ID: "fio.service"}}, Processes: 1, CPU: 4},
		{Group: processes.Group{Flow: "job", Owner: owner.Owner{ID: "c2"}}, Processes: 1, CPU: 5, Memory: 20, Read: 10, Written: 20},
		{Group: processes.Group{Owner: owner.Owner{Pod: "pod"}}, CPU: 100},
	}}
	got := sumApplications(s)
	want := []status.Application{
		{Name: "job", Containers: 2, Processes: 3, CPUNS: 8, MemoryBytes: 30, Bytes: status.Pair{Read: 11, Written: 22}},
		{Name: "fio.service", Containers: 1, Processes: 1, CPUNS: 4},
		{Name: "pod", Containers: 1, CPUNS: 100},
	}
	if fmt.Sprint(got.Top) != fmt.Sprint(want) || got.LeftOff != 0 || !got.Looked.Equal(looked) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range maxStatusApplications {
		s.Sums = append(s.Sums, processes.Sum{Group: processes.Group{Flow: fmt.Sprint("more", i)}, Processes: 1, CPU: time.Duration(6 + i)})
	}
	got = sumApplications(s)
	if len(got.Top) != maxStatusApplications || got.LeftOff != 3 || got.Top[0].Name != fmt.Sprint("more", maxStatusApplications-1) {
		t.Errorf("%d listed, %d left off, the first is %s", len(got.Top), got.LeftOff, got.Top[0].Name)
	}
	if a := (&processWatch{}).applications(); a.Top == nil || len(a.Top) != 0 {
		t.Errorf("without a watch: %+v", a)
	}
}

// TestNetworkSpeed: only interfaces of hardware that are up count.
func TestNetworkSpeed(t *testing.T) {
	sysfs := t.TempDir()
	add := func(name, speed, state string, hardware bool) {
		t.Helper()
		dir := filepath.Join(sysfs, "class/net", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if hardware {
			if err := os.Mkdir(filepath.Join(dir, "device"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for file, text := range map[string]string{"speed": speed, "operstate": state} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if speed := networkSpeed(sysfs); speed != 0 {
		t.Errorf("without interfaces: %d", speed)
	}
	add("eth0", "1000", "up", true)
	add("eth1", "10000", "up", true)
	add("eth2", "10000", "down", true)
	add("wifi", "-1", "up", true)
	add("odd", "fast", "up", true)
	add("veth", "10000", "up", false)
	if speed := networkSpeed(sysfs); speed != 11_000*125_000 {
		t.Errorf("%d bytes a second", speed)
	}
}

func TestRemoteStreams(t *testing.T) {
	for _, test := range []struct {
		kind           wire.Kind
		server, client string
		want           bool
	}{
		{wire.Persistent, "10.0.0.1:9866", "10.0.0.1:4000", false},
		{wire.Persistent, "10.0.0.1:9866", "[::ffff:10.0.0.1]:4000", false},
		{wire.Persistent, "10.0.0.1:9866", "10.0.0.2:4000", true},
		{wire.Persistent, "", "", false},
		{wire.Persistent, "10.0.0.1:9866", "host", false},
		{wire.Network, "", "", true},
		{wire.Network, "10.0.0.1:1", "10.0.0.1:2", false},
	} {
		if got := (&registration{}).remote(wire.Open{Kind: test.kind, Server: test.server, Client: test.client}); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestThisMachine(t *testing.T) {
	if m := thisMachine(); m.Cores < 1 || m.MemoryBytes < 1<<20 || m.NetworkBytes < 0 {
		t.Errorf("%+v", m)
	}
}
