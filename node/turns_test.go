package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"penstock/broker/certs"
	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/mounts"
	"penstock/node/mounts/mountstest"
	"penstock/node/peers"
	"penstock/node/profile"
	"penstock/node/turns"
	"penstock/wire"
	"penstock/wire/cluster"
)

func turnOpen(stream uint32, direction wire.Direction, server string, bytes int64) wire.Open {
	m := openOf(stream, direction, wire.Persistent, "/mnt/shared", bytes)
	m.Server = server
	return m
}

func startStorage(t *testing.T, more string) *running {
	t.Helper()
	r := startWith(t, "enforce", "storage: {directory: ROOT/brick, names: [Brick1.]}\ndevice: {algorithm: sfqd, depth: {fixed: 1}"+more+"}\n")
	if err := os.Mkdir(filepath.Join(filepath.Dir(r.dir), "brick"), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// A task without a directory that can be governed takes turns at the disk of this machine's storage server, one at a time.
func TestTurnsOfATask(t *testing.T) {
	r := startStorage(t, "")
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{"/proc/not/governed"}})
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	task.send(turnOpen(1, wire.Read, "brick1", 1<<20))
	task.until("a turn", func() bool { return task.marks[1] == device.Open })
	task.send(turnOpen(2, wire.Write, hostname, 1<<20))
	task.send(wire.Close{Stream: 1, Position: 1 << 20})
	task.until("the next turn", func() bool { return task.marks[2] == device.Open })
	task.send(wire.Close{Stream: 2, Position: 1 << 20})
	kind := `,kind="persistent"`
	for _, direction := range []string{"read", "write"} {
		task.until("it to be charged", func() bool {
			return task.flowMetric("bytes_total", `,direction="`+direction+`"`) == "1.048576e+06" ||
				task.metric(`penstock_flow_bytes_total{device="`+task.deviceName()+`",direction="`+direction+`",flow="`+app+`"`+kind+`}`) == "1.048576e+06"
		})
	}
	if got := task.metric(`penstock_turns_total{outcome="taken"}`); got != "2" {
		t.Errorf("%s turns were taken", got)
	}
}

// What cannot be a turn passes at once, and is counted.
func TestHostileTurns(t *testing.T) {
	r := startStorage(t, "")
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app})
	forged := turnOpen(5, wire.Read, "brick1", 1<<20)
	forged.Flow = "application_1700000000000_0002"
	far := turnOpen(6, wire.Read, "brick1", 1<<20)
	far.From, far.To = 1<<62, 1<<62+1<<40
	all := []wire.Open{turnOpen(1, wire.Read, "brick1", 1<<50), turnOpen(2, wire.Write, "brick1", 0), turnOpen(3, wire.Read, "elsewhere", 1<<20),
		turnOpen(4, wire.Write, "brick1", turns.MaxBytes+1), forged, far}
	for _, m := range all {
		task.send(m)
	}
	task.until("them to pass", func() bool {
		for _, m := range all {
			if task.marks[m.Stream] != device.Open {
				return false
			}
		}
		return true
	})
	if got := task.metric("penstock_agent_open_errors_total"); got != "5" {
		t.Errorf("%s open errors", got)
	}
	if got := task.metric("penstock_agent_other_flows_total"); got != "1" {
		t.Errorf("%s other flows", got)
	}
}

// The storage server's disk is looked for again from time to time: another one may have been mounted there. While it
// hangs, the known one stays.
func TestTheStorageServersDiskIsReplaced(t *testing.T) {
	r := startStorage(t, "")
	d, dir := r.daemon, filepath.Join(filepath.Dir(r.dir), "brick")
	gone := blockfile.Device{Name: "gone"}
	old, err := d.govern(gone, dir, nil, func() (device.Config, error) { return d.deviceConfig(gone) })
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	old.disk = profile.Device{Name: "gone", Bytes: 1 << 30}
	d.mu.Unlock()
	is := func(g *governed) func() bool {
		return func() bool {
			now, err := d.storage.device()
			return now == g && (g != nil) == (err == nil)
		}
	}
	grow := func(g *governed) { d.storage.found.Store(&foundDisk{g, time.Now().Add(-diskAge)}) }
	answer := mountstest.Hang(t, &d.calls, dir)
	grow(old)
	r.until("a look at a disk that hangs", func() bool {
		if !is(old)() {
			t.Fatal("the disk was given up while it hangs")
		}
		d.storage.finding.Lock()
		defer d.storage.finding.Unlock()
		return errors.Is(d.storage.mistake, mounts.ErrHangs)
	})
	answer()
	r.until("another disk", func() bool { return !is(old)() })
	now, err := d.storage.device()
	if err != nil || !slices.Contains(now.directories(), dir) || now.kept || len(old.directories()) > 0 {
		t.Errorf("%v on %v, and on %v", err, now.directories(), old.directories())
	}
	r.until("the end of the old device", func() bool {
		_, runs := old.loop.Snapshot()
		return !runs
	})
	grow(now)
	r.until("the same disk again", func() bool { return is(now)() && time.Since(d.storage.found.Load().at) < diskAge })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	grow(now)
	r.until("no disk", is(nil))
	if slices.Contains(now.directories(), dir) {
		t.Errorf("a disk without the directory still has it: %v", now.directories())
	}
}

// A task that disappears gives its turn back.
func TestTurnOfATaskThatDies(t *testing.T) {
	r := startStorage(t, "")
	first := r.another(wire.Hello{Role: wire.RoleTask, Flow: app})
	first.send(turnOpen(1, wire.Read, "brick1", 1<<20))
	first.until("a turn", func() bool { return first.marks[1] == device.Open })
	second := r.another(wire.Hello{Role: wire.RoleTask, Flow: "application_1700000000000_0002"})
	m := turnOpen(1, wire.Read, "brick1", 1<<20)
	m.Flow = "application_1700000000000_0002"
	second.send(m)
	first.conn.Close()
	begin := time.Now()
	second.until("its turn", func() bool { return second.marks[1] == device.Open })
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
}

// A daemon without the setting storage lets all pass.
func TestNoTurnsWithoutTheSetting(t *testing.T) {
	r := startWith(t, "enforce", "local_dirs: [ROOT/local]\n")
	local := filepath.Join(filepath.Dir(r.dir), "local")
	if err := os.Mkdir(local, 0o755); err != nil {
		t.Fatal(err)
	}
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app, Directories: []string{local}})
	task.send(turnOpen(1, wire.Read, "brick1", 1<<20))
	task.until("it to pass", func() bool { return task.marks[1] == device.Open })
}

// A task takes turns at the storage server of another machine: its daemon asks that machine's daemon, and both have
// certificates. Here the two machines are two daemons on one loopback device.
func TestTurnsAtAnotherMachine(t *testing.T) {
	certificates := t.TempDir()
	if _, err := certs.Make(certificates, []string{"asks", "answers"}, nil); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	broker := func(name, more string) string {
		return fmt.Sprintf("broker: {addresses: [127.0.0.1:1], node: %s, ca: %s/ca.pem, cert: %[2]s/%[1]s.pem, key: %[2]s/%[1]s.key%[3]s}\n", name, certificates, more)
	}
	storage := startWith(t, "enforce", "storage: {directory: ROOT/brick}\n"+broker("answers", ", peers: '"+address+"'"))
	if err := os.Mkdir(filepath.Join(filepath.Dir(storage.dir), "brick"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := startWith(t, "enforce", "storage: {}\n"+broker("asks", ""), func(d *Daemon) {
		secure, err := cluster.Files{CA: certificates + "/ca.pem", Cert: certificates + "/asks.pem", Key: certificates + "/asks.key"}.Client()
		if err != nil {
			t.Fatal(err)
		}
		d.asking = peers.NewClient(peers.Options{Self: "asks", TLS: func() *tls.Config { return secure }, Log: d.log, Where: func(context.Context, netip.Addr) (*cluster.Node, error) {
			return &cluster.Node{Name: "answers", Address: address}, nil
		}})
		d.storage.away = peers.NewTurns(d.asking)
	})
	task := r.another(wire.Hello{Role: wire.RoleTask, Flow: app})
	for stream := range uint32(3) {
		task.send(turnOpen(stream, wire.Read, "127.0.0.3", 1<<20))
		task.until("a turn", func() bool { return task.marks[stream] == device.Open })
		task.send(wire.Close{Stream: stream, Position: 1 << 20})
	}
	charged := fmt.Sprintf(`penstock_flow_bytes_total{device=%q,direction="read",flow=%q,kind="persistent"}`, storage.deviceName(), app)
	storage.until("them to be charged there", func() bool { return storage.metric(charged) == "3.145728e+06" })
	for metric, want := range map[string]string{`penstock_turns_away_total{outcome="forwarded"}`: "3", `penstock_turns_away_total{outcome="unanswered"}`: "0"} {
		if got := task.metric(metric); got != want {
			t.Errorf("%s: %s, want %s", metric, got, want)
		}
	}
}
