package shares

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/proc"
	"penstock/wire"
)

const idleFlows = 5000

// TestIdleFlows: 5,000 applications that have read a little and are idle do not affect two busy
// applications, and cost the daemon little.
func TestIdleFlows(t *testing.T) {
	c := &contest{cluster: start(t)}
	c.retune(t, usual) // a new daemon, because a daemon remembers the flows for minutes
	c.node.weigh(t, map[string]int{application(61): 3, application(62): 1})
	const size = 32 * mib
	c.write(t, "/idle", size)
	c.limit(t, slow)
	c.strong, c.weak = c.put(t, 61, "/busy-3"), c.put(t, 62, "/busy-1")
	c.paths = map[string][]string{c.strong.flow: {"/busy-3"}, c.weak.flow: {"/busy-1"}}
	c.backlogged(t)

	// The CPU is measured without scrapes, whose cost grows with the number of flows.
	const quietly = 5 * time.Second
	before := c.node.cpu(t, quietly)
	c.openIdle(t, c.block(t, "/idle"), size)
	after := c.node.cpu(t, quietly)
	s := c.watch(t, 4*window, 2*time.Second) // in less time, a few seeks would change the result
	within5(t, fmt.Sprintf("bytes of two writers at 3:1 beside %d idle flows", idleFlows), c.ratios(t, s, bytesOf), 3)
	c.sameAccount(t, s)

	known := 0
	s.after.Each("flow_streams", func(map[string]string, float64) { known++ })
	if known < idleFlows+2 {
		t.Errorf("the daemon knows %d flows, want at least %d", known, idleFlows+2)
	}
	rss := c.node.rss(t)
	t.Logf("the daemon used %.1f %% of a CPU with two flows, %.1f %% with %d; it holds %.0f MiB", 100*before, 100*after, known, float64(rss)/mib)
	if after > before+0.1 {
		t.Errorf("the daemon needs %.0f %% of a CPU beside %d idle flows, %.0f %% without them", 100*after, idleFlows, 100*before)
	}
	if rss > 192*mib {
		t.Errorf("the daemon holds %.0f MiB beside %d idle flows", float64(rss)/mib, idleFlows)
	}
}

// block returns the path of the only block of an HDFS file.
func (c *cluster) block(t *testing.T, path string) (found string) {
	t.Helper()
	name := c.Blocks(t, path)[0]
	err := filepath.WalkDir(c.dataDir(), func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // of a file that was deleted
		}
		if err == nil && e.Name() == name {
			found = p
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("the DataNode has no file of %s (%s): %v", path, name, err)
	}
	return found
}

// openIdle is an agent. For each of idleFlows applications, it opens a stream on a block that is in
// the page cache, is let through, and closes the stream.
func (c *cluster) openIdle(t *testing.T, block string, size int64) {
	t.Helper()
	conn, err := net.Dial("unix", c.Socket(0))
	fixture.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	fixture.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	send := bufio.NewWriter(conn)
	say := func(m wire.Message) {
		t.Helper()
		frame, err := wire.Append(nil, m)
		if err == nil {
			_, err = send.Write(frame)
		}
		fixture.Must(t, err)
	}
	say(wire.Hello{PID: uint32(os.Getpid()), Role: wire.RoleDataNode, Agent: "idle flows", Directories: []string{c.dataDir()}})
	const page = 4096
	for i := range idleFlows {
		from := int64(i) * page % size
		say(wire.Open{Stream: uint32(i), Direction: wire.Read, Flow: fmt.Sprintf("application_1700000000001_%04d", i),
			Path: block, From: from, To: from + page})
	}
	fixture.Must(t, send.Flush())
	receive, open := wire.NewReader(bufio.NewReader(conn)), map[uint32]bool{}
	for len(open) < idleFlows {
		m, err := receive.Next()
		if err != nil {
			t.Fatalf("%d of %d streams are open: %v", len(open), idleFlows, err)
		}
		if mark, ok := m.(wire.Mark); ok && mark.Position == wire.Unlimited {
			open[mark.Stream] = true
		}
	}
	for i := range idleFlows {
		say(wire.Close{Stream: uint32(i), Position: int64(i)*page%size + page})
	}
	fixture.Must(t, send.Flush())
	err = c.node.await(t.Context(), "rid of the streams", func(m metrics) error {
		open := 0.0
		m.Each("flow_streams", func(labels map[string]string, n float64) {
			if strings.HasPrefix(labels["flow"], "application_1700000000001_") {
				open += n
			}
		})
		if open > 0 {
			return fmt.Errorf("%v are open", open)
		}
		return nil
	})
	fixture.Must(t, err)
}

// cpu returns the part of a CPU that the daemon uses over some time.
func (n *node) cpu(t *testing.T, length time.Duration) float64 {
	t.Helper()
	used := func() float64 {
		used, err := proc.CPUTime(n.PID())
		fixture.Must(t, err)
		return used.Seconds()
	}
	before, from := used(), time.Now()
	<-time.After(length)
	return (used() - before) / time.Since(from).Seconds()
}

// rss is the memory that the daemon holds, in bytes.
func (n *node) rss(t *testing.T) int64 {
	t.Helper()
	resident, _, err := proc.Memory(n.PID())
	fixture.Must(t, err)
	return resident
}
