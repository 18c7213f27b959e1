package failure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/stand"
)

// application is a job; the clients can be its tasks.
type application int

var lastApplication application

// newApplication returns an application that no test has used before.
func newApplication() application {
	lastApplication++
	return lastApplication
}

func (a application) attempt() string { return client.Attempt(int(a)) }
func (a application) flow() string    { return client.Application(int(a)) }

// transfer describes a put or a get.
type transfer struct {
	app         application
	path        string
	bytes       int64
	seed        int64
	limit       int64 // put, get: stop at this byte until the test continues the client; 0: do not stop
	replication int   // put; default 1
	node        int   // put: the DataNode of the first replica
	hsync       bool  // put: at a stop, hsync rather than hflush
}

// operation is a running client operation.
type operation struct {
	id   int
	what string

	mu       sync.Mutex
	changed  chan struct{} // closed at the next event
	progress int64         // bytes
	watched  time.Time
	from     int64     // the position then
	sign     time.Time // when the operation was well past from
	reached  int64     // the stop at which the client waits; 0: none
	ended    bool
	endedAt  time.Time
	answer   string
	failure  string
}

func put(t *testing.T, f transfer) *operation {
	t.Helper()
	// One block, so that its stream lives as long as the file is written. The block is not larger
	// than the file, because the NameNode reserves room for a whole block.
	args := f.args() + fmt.Sprintf(" block=%d on=%s", f.bytes, shared.Hadoop.DataNodeAddress(f.node))
	if f.replication > 0 {
		args += fmt.Sprintf(" replication=%d", f.replication)
	}
	if f.hsync {
		args += " hsync=1"
	}
	return run(t, "put", args)
}

func get(t *testing.T, f transfer) *operation {
	t.Helper()
	return run(t, "get", f.args())
}

func (f transfer) args() string {
	args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d", f.path, f.app.attempt(), f.bytes, f.seed)
	if f.limit > 0 {
		args += fmt.Sprintf(" limit=%d", f.limit)
	}
	return args
}

func run(t *testing.T, operationName, args string) *operation {
	t.Helper()
	o := &operation{what: operationName + " " + args, changed: make(chan struct{})}
	o.id = shared.Clients.Do(operationName, args, o.take)
	t.Cleanup(func() {
		o.to(-1) // after a failed test no client stays stopped
		shared.Clients.Forget(o.id)
	})
	return o
}

// take handles one event.
func (o *operation) take(name, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch name {
	case "progress":
		o.progress, _ = strconv.ParseInt(value, 10, 64)
	case "reached":
		o.reached, _ = strconv.ParseInt(value, 10, 64)
	case "done":
		o.ended, o.endedAt, o.answer = true, time.Now(), value
	case "error":
		o.ended, o.endedAt, o.failure = true, time.Now(), value
	}
	if o.sign.IsZero() && (o.progress >= o.from+onTheWay || o.reached > 0 || o.ended) {
		o.sign = time.Now()
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// to lets the client continue to a later stop; a negative limit: to the end.
func (o *operation) to(limit int64) {
	o.mu.Lock()
	o.reached = 0
	o.mu.Unlock()
	shared.Clients.Limit(o.id, limit)
}

// await waits for a condition on the operation's fields. If the operation fails, or ends before the
// condition holds, the test fails.
func (o *operation) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(stand.Patience)
	for {
		o.mu.Lock()
		ok, ended, changed, at, failure := holds(), o.ended, o.changed, o.progress, o.failure
		o.mu.Unlock()
		if ok {
			return
		}
		if ended {
			t.Fatalf("%s: ended at %d bytes (%s) before this: %s", o.what, at, failure, what)
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s: at %d bytes; not within %v: %s", o.what, at, stand.Patience, what)
		}
	}
}

func (o *operation) awaitProgress(t *testing.T, bytes int64) {
	t.Helper()
	o.await(t, fmt.Sprintf("%d bytes", bytes), func() bool { return o.progress >= bytes })
}

func (o *operation) awaitStop(t *testing.T, at int64) {
	t.Helper()
	o.await(t, fmt.Sprintf("stop at %d", at), func() bool { return o.reached >= at })
}

// end waits for success and returns the answer.
func (o *operation) end(t *testing.T) string {
	t.Helper()
	o.await(t, "success", func() bool { return o.ended && o.failure == "" })
	return o.answer
}

// took returns the time from begin to the end of an operation that has ended.
func (o *operation) took(begin time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endedAt.Sub(begin)
}

// fails waits for failure and returns the client's error.
func (o *operation) fails(t *testing.T) string {
	t.Helper()
	o.await(t, "failure", func() bool { return o.ended && o.failure != "" })
	return o.failure
}

// onTheWay is more than the client's and the sockets' buffers can hold. An operation that has
// advanced by this much was served meanwhile.
const onTheWay = 8 * fixture.MiB

// watch starts to watch whether the operation is served.
func (o *operation) watch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched, o.from, o.sign = time.Now(), o.progress, time.Time{}
}

// heldUp waits until the operation has been served after watch, and returns the length of the wait.
func (o *operation) heldUp(t *testing.T) time.Duration {
	t.Helper()
	o.await(t, "being served", func() bool { return !o.sign.IsZero() })
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sign.Sub(o.watched)
}

// endIntact waits for success, and compares the SHA-256 of the moved bytes with the expected one of
// the file.
func (o *operation) endIntact(t *testing.T, f transfer) {
	t.Helper()
	if got, want := o.end(t), client.Sum(f.seed, f.bytes); got != want {
		t.Errorf("%s: SHA-256 is %s, want %s", o.what, got, want)
	}
}

// readBack reads a file from the disks and compares every byte.
func readBack(t *testing.T, f transfer) {
	t.Helper()
	fixture.Must(t, shared.Forget())
	f.limit = 0
	get(t, f).endIntact(t, f)
}

// replica is one copy of a block.
type replica struct {
	block  string
	offset int64 // in the file
	length int64
	node   int
}

func replicas(t *testing.T, path string) (all []replica, blocks int) {
	t.Helper()
	answer := run(t, "blocks", "path="+path).end(t)
	offset := int64(0)
	for _, b := range strings.Split(answer, ";") {
		parts := strings.SplitN(b, ":", 3)
		if len(parts) < 3 {
			continue // no replica is known at the moment
		}
		length, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			t.Fatalf("blocks of %s: %q: %v", path, answer, err)
		}
		blocks++
		for i := range shared.Disks {
			if strings.Contains(","+parts[2]+",", ","+shared.Hadoop.DataNodeAddress(i)+",") {
				all = append(all, replica{parts[0], offset, length, i})
			}
		}
		offset += length
	}
	return all, blocks
}

// replicated waits until each block of the file is on both DataNodes, and compares every byte of
// both block files.
func replicated(t *testing.T, f transfer) {
	t.Helper()
	var all []replica
	fixture.Eventually(t, f.path+" is on both DataNodes", func() bool {
		var blocks int
		all, blocks = replicas(t, f.path)
		return len(all) == nodes*blocks && blocks > 0
	})
	total := int64(0)
	for _, r := range all {
		found := 0
		eachBlockFile(t, shared.Disks[r.node], func(path string) {
			if filepath.Base(path) == r.block {
				found++
				compare(t, path, f, r)
			}
		})
		if found != 1 {
			t.Errorf("%s of %s: %d files on DataNode %d", r.block, f.path, found, r.node)
		}
		total += r.length
	}
	if total != nodes*f.bytes {
		t.Errorf("%s: replicas of %d bytes in all, want %d", f.path, total, nodes*f.bytes)
	}
}

func compare(t *testing.T, path string, f transfer, r replica) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	want := make([]byte, r.length)
	client.Fill(want, f.seed, r.offset)
	if !bytes.Equal(got, want) {
		t.Errorf("%s on DataNode %d: %d bytes, not those of %s from %d", r.block, r.node, len(got), f.path, r.offset)
	}
}
