package failure

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// clients is the JVM that the HDFS clients live in.
type clients struct {
	stdin  io.WriteCloser
	exited <-chan struct{}

	mu      sync.Mutex
	next    int
	running map[int]*operation
}

func startClients(lib string) (*clients, error) {
	args := []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true",
		"-Djava.io.tmpdir=" + filepath.Join(small.dir, "tmp"),
		"-cp", strings.Join([]string{small.cluster.ClientConfDir(), filepath.Join(small.dir, "client"), lib + "/*"}, ":")}
	for _, p := range []string{"java.lang", "java.util", "java.io", "java.nio", "java.net", "sun.nio.ch"} {
		args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	cmd := exec.Command("java", append(args, "Client")...)
	log, err := os.Create(filepath.Join(small.cluster.LogDir(), "clients.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	c := &clients{running: map[int]*operation{}}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// Not cmd.StdoutPipe, which Wait closes while the last events are unread.
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd.Stdout = write
	if c.exited, err = start(cmd); err != nil {
		return nil, err
	}
	go c.listen(stdout)
	return c, nil
}

func (c *clients) stop() {
	c.stdin.Close()
	<-c.exited
}

func (c *clients) listen(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, mib)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(id)
		c.mu.Lock()
		o := c.running[n]
		c.mu.Unlock()
		if err == nil && o != nil {
			o.take(rest)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.running {
		o.take("error the clients' JVM has ended")
	}
}

func (c *clients) send(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.stdin, line) // if the JVM is gone, every operation has its error
}

// application is a job that the clients can be a task of.
type application int

var lastApplication application

// newApplication is one that nobody was before.
func newApplication() application {
	lastApplication++
	return lastApplication
}

func (a application) attempt() string { return fmt.Sprintf("attempt_1700000000000_%04d_m_000000_0", a) }
func (a application) flow() string    { return fmt.Sprintf("application_1700000000000_%04d", a) }

// transfer describes a put or a get.
type transfer struct {
	app         application
	path        string
	bytes       int64
	seed        int64
	limit       int64 // put, get: stop there until told to go on; 0: do not
	replication int   // put; default 1
	node        int   // put: the DataNode of the first replica
	hsync       bool  // put: at a stop, hsync rather than hflush
}

// operation is a client at work.
type operation struct {
	id   int
	what string

	mu       sync.Mutex
	changed  chan struct{} // closed at the next event
	progress int64         // bytes
	watched  time.Time
	from     int64     // where it was then
	sign     time.Time // when it was well past that
	reached  int64     // the stop it stands at; 0: none
	ended    bool
	answer   string
	failure  string
}

func put(t *testing.T, f transfer) *operation {
	t.Helper()
	// One block: its stream lives as long as the file is written. And no larger
	// than the file, for the NameNode sets a whole block's room aside.
	args := f.args() + fmt.Sprintf(" block=%d on=%s", f.bytes, small.cluster.DataNodeAddress(f.node))
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
	c := small.clients
	c.mu.Lock()
	c.next++
	o := &operation{id: c.next, what: operationName + " " + args, changed: make(chan struct{})}
	c.running[o.id] = o
	c.mu.Unlock()
	c.send(fmt.Sprintf("%d %s %s", o.id, operationName, args))
	t.Cleanup(func() {
		o.to(-1) // a test that failed leaves nobody standing
		c.mu.Lock()
		delete(c.running, o.id)
		c.mu.Unlock()
	})
	return o
}

// take takes one event.
func (o *operation) take(event string) {
	name, value, _ := strings.Cut(event, " ")
	o.mu.Lock()
	defer o.mu.Unlock()
	switch name {
	case "progress":
		o.progress, _ = strconv.ParseInt(value, 10, 64)
	case "reached":
		o.reached, _ = strconv.ParseInt(value, 10, 64)
	case "done":
		o.ended, o.answer = true, value
	case "error":
		o.ended, o.failure = true, value
	}
	if o.sign.IsZero() && (o.progress >= o.from+onTheWay || o.reached > 0 || o.ended) {
		o.sign = time.Now()
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// to lets the client go on to a further stop; negative: to its end.
func (o *operation) to(limit int64) {
	o.mu.Lock()
	o.reached = 0
	o.mu.Unlock()
	small.clients.send(fmt.Sprintf("%d to limit=%d", o.id, limit))
}

// await waits for a condition of the operation's fields. An operation that
// fails, or ends without it, fails the test.
func (o *operation) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
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
			t.Fatalf("%s: at %d bytes; not within %v: %s", o.what, at, patience, what)
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

// fails waits for failure and returns the client's error.
func (o *operation) fails(t *testing.T) string {
	t.Helper()
	o.await(t, "failure", func() bool { return o.ended && o.failure != "" })
	return o.failure
}

// onTheWay is what a client's and the sockets' buffers hold, and more: an
// operation that has come so much further has been served meanwhile.
const onTheWay = 8 * mib

// watch begins to look out for the operation's being served.
func (o *operation) watch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched, o.from, o.sign = time.Now(), o.progress, time.Time{}
}

// heldUp waits until the operation has been served since watch, and returns how
// long that took.
func (o *operation) heldUp(t *testing.T) time.Duration {
	t.Helper()
	o.await(t, "being served", func() bool { return !o.sign.IsZero() })
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sign.Sub(o.watched)
}

// endIntact waits for success and holds the SHA-256 of what was moved against
// the file's as it is computed here.
func (o *operation) endIntact(t *testing.T, f transfer) {
	t.Helper()
	if got, want := o.end(t), f.sum(); got != want {
		t.Errorf("%s: SHA-256 is %s, want %s", o.what, got, want)
	}
}

// readBack reads a file from the disks and compares every byte.
func readBack(t *testing.T, f transfer) {
	t.Helper()
	evict(t)
	f.limit = 0
	get(t, f).endIntact(t, f)
}

func (f transfer) sum() string {
	h := sha256.New()
	buf := make([]byte, 64<<10)
	for pos := int64(0); pos < f.bytes; pos += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), f.bytes-pos)]
		fill(buf, f.seed, pos)
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fill makes the bytes of a file from pos on, a multiple of 8: SplitMix64 of
// the position, which the clients compute as well.
func fill(buf []byte, seed, pos int64) {
	var word [8]byte
	for i := 0; i < len(buf); i += 8 {
		z := uint64(seed) + uint64((pos+int64(i))/8+1)*0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		copy(buf[i:], word[:])
	}
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
			continue // nowhere, just now
		}
		length, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			t.Fatalf("blocks of %s: %q: %v", path, answer, err)
		}
		blocks++
		for i := range small.disks {
			if strings.Contains(","+parts[2]+",", ","+small.cluster.DataNodeAddress(i)+",") {
				all = append(all, replica{parts[0], offset, length, i})
			}
		}
		offset += length
	}
	return all, blocks
}

// replicated waits until each block of the file is on both DataNodes, and
// compares every byte of both block files.
func replicated(t *testing.T, f transfer) {
	t.Helper()
	var all []replica
	eventually(t, f.path+" is on both DataNodes", func() bool {
		var blocks int
		all, blocks = replicas(t, f.path)
		return len(all) == nodes*blocks && blocks > 0
	})
	total := int64(0)
	for _, r := range all {
		found := 0
		eachBlockFile(t, small.disks[r.node], func(path string) {
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
	fill(want, f.seed, r.offset)
	if !bytes.Equal(got, want) {
		t.Errorf("%s on DataNode %d: %d bytes, not those of %s from %d", r.block, r.node, len(got), f.path, r.offset)
	}
}
