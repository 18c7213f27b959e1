package hostile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/wire"
)

// server is a DataNode's hello.
func server(i int) wire.Hello {
	return wire.Hello{Role: wire.RoleDataNode, Directories: []string{dataDir(i)}, Threads: 4096}
}

// Bounds of the daemon (node/ipc).
const (
	taskPlaces      = 960
	containerPlaces = 64
)

// TestOneUserTakesAllPlaces: if all tasks are of one user, that user may take all connections for
// tasks. Servers have connections of their own, a second user still gets some, and one process gets
// only its part.
func TestOneUserTakesAllPlaces(t *testing.T) {
	n := startNode(t, options{})
	setModel(t, 0, usual)
	r := readOn(t, n, 0)
	watch(t, n)
	p := plan{Attack: "connections", User: nobody, Socket: n.socket, Dir: attackersDir(0)}
	greedy := p
	greedy.Number = 2 * containerPlaces
	c := run(t, greedy).end(t)
	t.Logf("one process has %d of %d requested connections", c["held"], greedy.Number)
	if c["held"] > containerPlaces || c["held"] < containerPlaces/2 {
		t.Errorf("one process has %d connections", c["held"])
	}
	fixture.EventuallyWithin(t, "its connections are free", patience, func() bool { return n.metric(t, "agent_connections") < containerPlaces })
	r.keepsItsRate(t, func() func() {
		p.Number = containerPlaces
		var all []*process
		for range taskPlaces/containerPlaces + 1 {
			all = append(all, begin(t, p))
		}
		for _, a := range all {
			a.awaitReady(t)
		}
		fixture.EventuallyWithin(t, "all connections for tasks are taken", patience, func() bool { return n.metric(t, "agent_connections") >= taskPlaces })
		return func() {
			n.findPlaces(t, p)
			for _, a := range all {
				a.stdin.Close()
			}
			held := int64(0)
			for _, a := range all {
				held += a.end(t)["held"]
			}
			// A process counts a connection as held until it reads that the connection has ended.
			displaced := int64(n.metric(t, "agent_connections_displaced_total"))
			t.Logf("one user had %d connections, at most %d of them displaced", held, displaced)
			if held > taskPlaces+displaced {
				t.Errorf("one user had %d connections", held)
			}
		}
	})
}

// findPlaces connects servers and a second user while one user has all connections for tasks.
func (n *node) findPlaces(t *testing.T, p plan) {
	t.Helper()
	begin := time.Now()
	for range 8 {
		a, err := connect(n.socket, server(0))
		if err != nil {
			t.Fatalf("a server is refused: %v", err)
		}
		defer a.close()
	}
	t.Logf("8 servers were greeted in %v", time.Since(begin).Round(time.Millisecond))
	p.User, p.Number = another, 8
	c := run(t, p).end(t)
	t.Logf("a second user has %d of 8 connections; %.0f connections were displaced", c["held"], n.metric(t, "agent_connections_displaced_total"))
	if c["held"] != 8 {
		t.Errorf("a second user has %d of 8 connections", c["held"])
	}
}

// TestOpenFilesAreBounded: the daemon has few descriptors, and tasks open files endlessly. Enough
// descriptors remain for a second user, for servers and for the status page.
func TestOpenFilesAreBounded(t *testing.T) {
	const descriptorsMax = 8192
	n := startNode(t, options{files: descriptorsMax})
	g := watch(t, n)
	path := filepath.Join(attackersDir(0), "open")
	p := plan{Attack: "files", User: nobody, Socket: n.socket, Dir: attackersDir(0), Path: path, Number: 2, Streams: 1024}
	var all []*process
	for range 6 {
		all = append(all, begin(t, p))
	}
	for _, a := range all {
		a.awaitReady(t)
	}
	held, bound := n.metric(t, "agent_files", `role="task"`), n.metric(t, "agent_files_bound", `role="task"`)
	if held > bound || held < bound/2 {
		t.Errorf("%.0f files are open, want at most %.0f", held, bound)
	}
	// The first files of a second user, in a directory of its own, and the files of a server.
	own := filepath.Join(localDir(0), "second")
	fixture.Must(t, os.Mkdir(own, 0o755))
	t.Cleanup(func() { os.RemoveAll(own) })
	fixture.Must(t, os.Chown(own, another, another))
	second := p
	second.User, second.Number, second.Streams, second.Dir, second.Path = another, 1, 4, own, filepath.Join(own, "open")
	if c := run(t, second).end(t); c["governed"] != 4 {
		t.Errorf("a second user's files: %v", c)
	}
	a, err := connect(n.socket, server(0))
	fixture.Must(t, err)
	defer a.close()
	block := cold(t, filepath.Join(dataDir(0), "blk_8"), mib, 0)
	for s := range uint32(1024) {
		fixture.Must(t, a.say(wire.Open{Stream: s, Direction: wire.Write, Flow: neighbour, Path: block}))
	}
	fixture.Must(t, a.out.Flush())
	for s := range uint32(1024) {
		if mark, opened := a.await(s, 0, patience); opened || mark == wire.Unlimited {
			t.Fatalf("a server's stream %d is not governed", s)
		}
	}
	governed := int64(0)
	for _, a := range all {
		governed += a.end(t)["governed"]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.Logf("tasks asked for %d files and had %d, of at most %.0f; %d descriptors at most", 6*2*1024, governed, bound, g.files)
	if g.files > descriptorsMax-256 {
		t.Errorf("%d descriptors, the limit is %d", g.files, descriptorsMax)
	}
	fixture.EventuallyWithin(t, "the files are closed", patience, func() bool { return n.metric(t, "agent_files", `role="task"`) == 0 })
}
