package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/config"
	"penstock/node/device"
	"penstock/wire"
)

// running is a daemon on real files with an agent's connection that the test controls: real
// sockets, real page cache, no DataNode.
type running struct {
	t       testing.TB
	daemon  *Daemon
	dir     string // the registered data directory
	weights string
	kill    string
	url     string
	conn    net.Conn
	frames  *wire.Reader
	marks   map[uint32]int64
	mode    wire.Mode
	stop    func()
}

func start(t *testing.T, mode string) *running {
	t.Helper()
	return startWith(t, mode, "")
}

// startWith starts the daemon as launch does. This process then connects to it as a DataNode.
func startWith(t testing.TB, mode, more string, change ...func(*Daemon)) *running {
	t.Helper()
	r := launch(t, mode, more, change...)
	r.connect(wire.Hello{Role: wire.RoleDataNode, Directories: []string{r.dir}})
	return r
}

// launch adds the settings in more, where ROOT stands for the folder of all files, and changes
// the daemon before it runs. No agent is connected.
func launch(t testing.TB, mode, more string, change ...func(*Daemon)) *running {
	t.Helper()
	root := t.TempDir()
	r := &running{
		t: t, dir: filepath.Join(root, "data"), weights: filepath.Join(root, "weights.yaml"),
		kill: filepath.Join(root, "off"), marks: map[uint32]int64{},
	}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.put(r.weights, "default: 1\n")
	if !strings.Contains(more, "identity:") {
		more += "identity: {mode: trust}\n" // the applications here are invented
	}
	settings := filepath.Join(root, "node.yaml")
	r.put(settings, fmt.Sprintf("socket: s\nlisten: 127.0.0.1:0\nmode: %s\nweights: weights.yaml\nkill_switch: off\ndata_dirs: [%s]\n%s", mode, r.dir, strings.ReplaceAll(more, "ROOT", root)))
	n, err := config.LoadNode(settings)
	if err != nil {
		t.Fatal(err)
	}
	var logs syncBuffer
	d, err := New(n, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(d)
	}
	r.daemon = d
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(r.stop)
	for r.url == "" {
		if _, after, ok := strings.Cut(logs.String(), "listen="); ok && strings.Contains(after, "\n") {
			r.url = "http://" + strings.Fields(after)[0]
		}
		select {
		case err := <-done:
			t.Fatalf("the daemon ended: %v\n%s", err, logs.String())
		case <-time.After(time.Millisecond):
		}
	}
	return r
}

// connect makes the agent's connection.
func (r *running) connect(h wire.Hello) {
	r.t.Helper()
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(r.dir), "s"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	r.conn, r.frames, r.marks = conn, wire.NewReader(conn), map[uint32]int64{}
	h.PID, h.Agent = uint32(os.Getpid()), "test"
	r.send(h)
}

// another returns a second agent's connection to the same daemon.
func (r *running) another(h wire.Hello) *running {
	r.t.Helper()
	other := *r
	other.connect(h)
	return &other
}

func (r *running) put(name, text string) {
	r.t.Helper()
	// The file is renamed into place, as editors and configuration tools do.
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) send(m wire.Message) {
	r.t.Helper()
	b, err := wire.Append(nil, m)
	if err == nil {
		_, err = r.conn.Write(b)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// until reads frames until the condition holds.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	for !ok() {
		m, err := r.frames.Next()
		if err != nil {
			r.t.Fatalf("waiting for %s: %v", what, err)
		}
		switch m := m.(type) {
		case wire.Mark:
			r.marks[m.Stream] = m.Position
		case wire.Heartbeat:
			r.mode = m.Mode
		case wire.Welcome:
			r.mode = m.Mode
		}
	}
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (r *running) metric(name string) string {
	r.t.Helper()
	_, text := r.get("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func TestDaemonServesAnAgent(t *testing.T) {
	r := start(t, "enforce")
	const size = 5 << 20
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, strings.Repeat("x", size))
	r.send(wire.Open{Stream: 1, Direction: wire.Read, Flow: "application_1_0001", Path: block, To: size})
	r.until("the whole block to be staged", func() bool { return r.marks[1] == device.Open })
	r.send(wire.Close{Stream: 1, Position: size})

	written := filepath.Join(r.dir, "blk_2")
	f, err := os.Create(written)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.send(wire.Open{Stream: 2, Direction: wire.Write, Flow: "application_1_0002", Path: written})
	for pos := int64(0); pos < size; {
		r.until("a lease", func() bool { return r.marks[2] > pos })
		n, err := f.WriteAt(make([]byte, 1<<18), pos)
		if err != nil {
			t.Fatal(err)
		}
		pos += int64(n)
		r.send(wire.Progress{Stream: 2, Position: pos})
	}
	r.send(wire.Close{Stream: 2, Position: size})
	dev := r.deviceName()
	label := fmt.Sprintf(`{device="%s",direction="write",flow="application_1_0002",kind="persistent"}`, dev)
	r.until("the tail to be drained", func() bool { return r.metric("penstock_flow_bytes_total"+label) == "5.24288e+06" })

	// The stream of a file outside the data directory, or of a missing file, passes.
	r.send(wire.Open{Stream: 3, Direction: wire.Read, Flow: "a", Path: "/etc/passwd", To: 10})
	r.send(wire.Open{Stream: 4, Direction: wire.Write, Flow: "a", Path: r.dir + "/nothing"})
	r.until("both to be let through", func() bool { return r.marks[3] == device.Open && r.marks[4] == device.Open })
	if got := r.metric("penstock_agent_open_errors_total"); got != "2" {
		t.Errorf("%s open errors counted", got)
	}
	for _, path := range []string{"/-/healthy", "/-/ready"} {
		if code, _ := r.get(path); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func (r *running) deviceName() string {
	_, text := r.get("/metrics")
	_, after, _ := strings.Cut(text, `penstock_device_depth{device="`)
	name, _, _ := strings.Cut(after, `"`)
	return name
}

func TestWeightsAndKillSwitchAreLive(t *testing.T) {
	r := start(t, "enforce")
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "application_7_0001", Path: block})
	r.until("the first lease", func() bool { return r.marks[1] > 0 })
	if r.marks[1] == device.Open {
		t.Fatal("an enforced writer is let through")
	}
	weight := fmt.Sprintf(`penstock_flow_weight{device="%s",flow="application_7_0001"}`, r.deviceName())
	r.put(r.weights, "rules: [{application: \"application_7_*\", weight: 32}]\n")
	r.until("the new weight", func() bool { return r.metric(weight) == "32" })
	r.put(r.weights, "rules: [{applicatoin: x}]\n")
	r.until("the bad file to be counted", func() bool { return r.metric(`penstock_weights_reloads_total{result="refused"}`) == "1" })
	if got := r.metric(weight); got != "32" {
		t.Errorf("a bad file replaced the good one: weight %s", got)
	}
	r.put(r.weights, "mode: observe\n")
	r.until("observe mode", func() bool { return r.mode == wire.ModeObserve && r.marks[1] == device.Open })
	r.put(r.weights, "mode: enforce\n")
	r.until("enforce mode again", func() bool { return r.mode == wire.ModeEnforce && r.marks[1] != device.Open })
	r.put(r.kill, "")
	r.until("the kill switch", func() bool { return r.mode == wire.ModeOff && r.marks[1] == device.Open })
	if err := os.Remove(r.kill); err != nil {
		t.Fatal(err)
	}
	r.until("enforce mode after the kill switch", func() bool { return r.mode == wire.ModeEnforce })
}

func TestCleanEndOpensMarks(t *testing.T) {
	r := start(t, "enforce")
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: block})
	r.until("the first lease", func() bool { return r.marks[1] > 0 })
	r.stop()
	if err := r.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := r.frames.Next(); err != nil {
			break // the connection ends, and every gate opens
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(r.dir), "s")); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestDirectoriesAreChecked(t *testing.T) {
	r := start(t, "enforce")
	c, err := net.Dial("unix", filepath.Join(filepath.Dir(r.dir), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := wire.Append(nil, wire.Hello{PID: 1, Role: wire.RoleDataNode, Agent: "x", Directories: []string{"/etc"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	if got := r.metric("penstock_agent_connections_refused_total"); got != "1" {
		t.Errorf("%s refused", got)
	}
}

func TestWhoMayConnect(t *testing.T) {
	const stranger = 4_000_000_000
	for _, c := range []struct {
		more         string
		server, task bool
	}{
		{"", false, false},
		{"users: [4000000000]\n", true, true},
		{"task_users: [4000000000]\n", false, true},
		{"task_users: [4000000001]\n", false, false},
		{"task_users: ['*']\n", false, true},
	} {
		d := startWith(t, "enforce", c.more).daemon
		if server, task := d.allow(stranger, wire.RoleNodeManager), d.allow(stranger, wire.RoleExecutor); server != c.server || task != c.task {
			t.Errorf("%q: as a server %v, as a task %v", c.more, server, task)
		}
		if !d.allow(0, wire.RoleDataNode) {
			t.Error("root may not connect")
		}
	}
}
