package shares

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clients "penstock/lab/client"
)

// guests are HDFS clients in one JVM that runs before they join. So a test sees the join of a
// client, and not the start of a JVM on a busy machine.
type guests struct {
	*cluster
	jvm *clients.JVM
}

func (c *cluster) guests(t *testing.T) *guests {
	t.Helper()
	return &guests{cluster: c, jvm: c.StartClients(t, clients.Options{Log: filepath.Join(c.Hadoop.LogDir(), "clients.log")})}
}

// part is an application that wants as much service as possible until its files are complete. A
// reader has at least two files: then twice as much is staged ahead of it, so it may wait for a CPU
// twice as long before its queue is empty.
type part struct {
	number int    // of the application
	name   string // of the flow, if it is none of an application
	weight int
	write  bool
	bytes  int64 // of all its files
	files  int   // 0: two for a reader, one for a writer
}

func (p part) flow() string {
	if p.name != "" {
		return p.name
	}
	return application(p.number)
}

func (p part) paths() []string {
	kind, files := "read", max(2, p.files)
	if p.write {
		kind, files = "written", max(1, p.files)
	}
	paths := make([]string, files)
	for i := range paths {
		paths[i] = fmt.Sprintf("/part-%d-%s-%d", p.number, kind, i)
	}
	return paths
}

// file returns the size of each of the part's files, in bytes.
func (p part) file() int64 { return p.bytes / int64(len(p.paths())) }

// prepare writes the files that a reader will read.
func (g *guests) prepare(t *testing.T, p part) {
	t.Helper()
	if p.write {
		return
	}
	for _, path := range p.paths() {
		g.create(t, path, &filled{seed: int64(p.number)}, p.file())
	}
}

// filled is a reader of the bytes that a guest expects.
type filled struct{ seed, pos int64 }

func (f *filled) Read(b []byte) (int, error) {
	b = b[:len(b)/8*8]
	clients.Fill(b, f.seed, f.pos)
	f.pos += int64(len(b))
	return len(b), nil
}

// guest is a running part.
type guest struct {
	part
	ended chan struct{} // closed when all files are complete, or one has failed

	mu     sync.Mutex
	left   int
	err    error
	last   []time.Time     // by file: when its client last advanced
	paused []time.Duration // by file: its longest pause since forgetPauses
}

// join starts a part.
func (g *guests) join(t *testing.T, p part) *guest {
	t.Helper()
	operation, args := "get", ""
	if p.write {
		operation, args = "put", fmt.Sprintf(" replication=1 block=%d", g.Hadoop.BlockSize())
	}
	files := len(p.paths())
	guest := &guest{part: p, ended: make(chan struct{}), left: files, last: make([]time.Time, files), paused: make([]time.Duration, files)}
	guest.forgetPauses()
	for i, path := range p.paths() {
		if p.write {
			g.remove(t, path)
		}
		g.jvm.Do(operation, fmt.Sprintf("attempt=%s path=%s bytes=%d seed=%d", clients.Attempt(p.number), path, p.file(), p.number)+args,
			func(event, value string) {
				switch event {
				case "progress":
					guest.goesOn(i)
				case "done":
					guest.goesOn(i)
					guest.end(nil)
				case "error":
					guest.end(fmt.Errorf("%s: %s", path, value))
				}
			})
	}
	return guest
}

func (g *guest) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := g.left > 0
	if g.left--; err != nil && g.err == nil {
		g.err, g.left = err, 0
	}
	if open && g.left <= 0 {
		close(g.ended)
	}
}

// goesOn records that the client of a file has advanced.
func (g *guest) goesOn(file int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.paused[file] = max(g.paused[file], now.Sub(g.last[file]))
	g.last[file] = now
}

// forgetPauses restarts the count of pauses.
func (g *guest) forgetPauses() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.last {
		g.last[i], g.paused[i] = time.Now(), 0
	}
}

// longestPauses returns, for each file, the longest time in which its client did not advance.
func (g *guest) longestPauses() []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	pauses := make([]time.Duration, len(g.paused))
	for i := range pauses {
		pauses[i] = max(g.paused[i], time.Since(g.last[i])).Round(10 * time.Millisecond)
	}
	return pauses
}

func (g *guest) name() string { return g.flow() }

// running fails the test if the guest has ended.
func (g *guest) running(t *testing.T) {
	t.Helper()
	select {
	case <-g.ended:
		g.mu.Lock()
		defer g.mu.Unlock()
		t.Fatalf("%s ended too early (%v)", g.flow(), g.err)
	default:
	}
}

// wait waits until the guest has read or written all of its bytes.
func (g *guest) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.ended:
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.err != nil {
			t.Fatal(g.err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s has not ended after a minute", g.flow())
	}
}
