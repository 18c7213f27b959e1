package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/ipc"
	"penstock/wire"
)

// portOf returns the address in the port file, "" while there is none.
func (r *running) portOf() string {
	text, err := os.ReadFile(ipc.PortFile(r.daemon.settings.Socket))
	if err != nil {
		return ""
	}
	address, _, _ := strings.Cut(string(text), " ")
	return address
}

// dialLoopback replaces the agent's connection by one to the loopback port.
func (r *running) dialLoopback(h wire.Hello) *running {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); r.portOf() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("no port file")
		}
	}
	conn, err := net.Dial("tcp", r.portOf())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	other := *r
	other.conn, other.frames, other.marks = conn, wire.NewReader(conn), map[uint32]int64{}
	h.PID, h.Agent = uint32(os.Getpid()), "test"
	other.send(h)
	return &other
}

// TestAnAgentByLoopbackIsGoverned: identity, streams and status are those of an agent on the Unix socket.
func TestAnAgentByLoopbackIsGoverned(t *testing.T) {
	r := startWith(t, "enforce", "loopback: 127.0.0.1:0\nidentity: {mode: verify}\n")
	a := r.dialLoopback(wire.Hello{Role: wire.RoleDataNode, Directories: []string{r.dir}})
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, strings.Repeat("x", 1<<20))
	a.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "clients", Path: block})
	a.until("a lease", func() bool { return a.marks[1] > 0 })
	doc := r.status()
	byLoopback := map[bool]int{}
	for _, a := range doc.Agents {
		if byLoopback[a.Loopback]++; int(a.PID) != os.Getpid() || int(a.UID) != os.Getuid() || a.Role != "datanode" {
			t.Errorf("agent: %+v", a)
		}
	}
	if byLoopback[true] != 1 || byLoopback[false] != 1 {
		t.Errorf("agents: %+v", doc.Agents)
	}
	l := doc.Loopback
	if l.Setting != "127.0.0.1:0" || l.Listen != r.portOf() || l.Listen == "" || l.File != r.daemon.settings.Socket+".port" || l.Agents != 1 || l.NoSocket+l.NoProcess != 0 {
		t.Errorf("%+v", l)
	}
	if got := r.metric("penstock_agent_loopback_connections"); got != "1" {
		t.Errorf("the metric is %q", got)
	}
	// A wrong number: no process of this user with that number has the connection.
	conn, err := net.Dial("tcp", l.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := wire.Append(nil, wire.Hello{PID: 1, Role: wire.RoleDataNode, Agent: "test", Directories: []string{r.dir}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); r.status().Loopback.NoProcess == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not counted: %+v", r.status().Loopback)
		}
	}
	if got := r.metric(`penstock_agent_loopback_refused_total{reason="process"}`); got != "1" {
		t.Errorf("the metric is %q", got)
	}
	r.stop()
	if got := r.portOf(); got != "" {
		t.Errorf("the port file names %s after the end", got)
	}
	if _, err := net.Dial("tcp", l.Listen); err == nil {
		t.Error("the port is still open")
	}
}

func TestWithoutLoopback(t *testing.T) {
	r := start(t, "observe")
	if l := r.status().Loopback; l.Setting != "off" || l.Listen != "" || l.File != "" {
		t.Errorf("%+v", l)
	}
	if got := r.portOf(); got != "" {
		t.Errorf("a port file names %s", got)
	}
}

// TestTheLoopbackPortIsInUse: the daemon governs without it, writes no file that would send agents to
// another process, and listens as soon as the port is free.
func TestTheLoopbackPortIsInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r := startWith(t, "observe", fmt.Sprintf("loopback: %v\n", other.Addr()))
	if l := r.status().Loopback; l.Setting != other.Addr().String() || l.Listen != "" || r.portOf() != "" {
		t.Errorf("%+v, the file names %q", l, r.portOf())
	}
	other.Close()
	a := r.dialLoopback(wire.Hello{Role: wire.RoleDataNode, Directories: []string{r.dir}})
	a.until("the welcome", func() bool { return len(r.status().Agents) == 2 })
}
