package ipc

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/wire"
)

// crowd is a server with a fake kernel: the test chooses the user and the container of each
// connection.
type crowd struct {
	*Server
	t    *testing.T
	path string
	dir  string // of the clients' addresses
	log  syncBuffer

	mu   sync.Mutex
	n    int
	next map[string]unix.Ucred // by the client's own address
	of   map[int32]string      // container by process
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newCrowd(t *testing.T, b Bounds) *crowd {
	t.Helper()
	c := &crowd{t: t, dir: t.TempDir(), next: map[string]unix.Ucred{}, of: map[int32]string{}}
	c.Server = &Server{Opener: &openable{daemon{alive: 1}}, Bounds: b, Log: slog.New(slog.NewTextHandler(&c.log, nil))}
	c.Allow = func(uid uint32, role wire.Role) bool { return uid < 100 || !Serves(role) && uid < 1000 }
	c.Container = func(pid int32) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.of[pid]
	}
	c.credentials = func(conn *net.UnixConn) (*unix.Ucred, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		cred, ok := c.next[conn.RemoteAddr().String()]
		if !ok {
			return nil, errors.New("nobody has said who that is")
		}
		return &cred, nil
	}
	c.path = serveAs(t, c.Server)
	return c
}

// connect connects as a process of that user in that container; "" stands for no container.
func (c *crowd) connect(uid uint32, container string, pid int32) net.Conn {
	c.t.Helper()
	c.mu.Lock()
	c.n++
	own := filepath.Join(c.dir, strconv.Itoa(c.n))
	c.next[own] = unix.Ucred{Uid: uid, Pid: pid}
	c.of[pid] = container
	c.mu.Unlock()
	conn, err := net.DialUnix("unix", &net.UnixAddr{Name: own, Net: "unix"}, &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// enter connects and sends a hello; in is false if no welcome arrives.
func (c *crowd) enter(uid uint32, container string, pid int32, h wire.Hello) (conn net.Conn, in bool) {
	c.t.Helper()
	conn = c.connect(uid, container, pid)
	if _, err := conn.Write(frames(c.t, h)); err != nil {
		return conn, false
	}
	_, err := wire.NewReader(conn).Next()
	return conn, err == nil
}

func (c *crowd) users() map[uint32]int {
	n := map[uint32]int{}
	for _, a := range c.Agents() {
		n[a.UID]++
	}
	return n
}

// All tasks of one user may fill every slot that is not reserved for servers; a container has its
// part; and a second user still finds slots, up to as many as the first one has.
func TestNobodyKeepsOthersOut(t *testing.T) {
	const slots = 160
	c := newCrowd(t, Bounds{Connections: slots + 8, Servers: 8, Greetings: 32, ServerFiles: 1, TaskFiles: 1})
	pid := int32(1)
	var last net.Conn
	for i := range slots {
		pid++
		container := "a" + strconv.Itoa(i%4) // four containers of 40
		conn, in := c.enter(500, container, pid, task)
		if !in {
			t.Fatalf("connection %d of the only user was refused", i)
		}
		last = conn
	}
	if _, in := c.enter(500, "a0", 99999, task); in {
		t.Error("a task has a server's slot")
	}
	if _, in := c.enter(50, "", 7, hello); !in {
		t.Error("a DataNode found no slot")
	}
	// The newest connection of the container with the most connections is displaced first.
	if _, in := c.enter(501, "b", 100000, task); !in {
		t.Error("a second user was kept out")
	}
	ended(t, last)
	for i := range slots {
		c.enter(501, "b"+strconv.Itoa(i), int32(100001+i), task)
	}
	if n := c.users(); n[500] != slots/2 || n[501] != slots/2 || n[50] != 1 {
		t.Errorf("connections by user: %v", n)
	}
	// Within a user, a container with fewer connections may displace others too.
	was := c.Stats.Displaced.Load()
	if _, in := c.enter(500, "a9", 200000, task); !in {
		t.Error("another container of the user was kept out")
	}
	if n := c.users(); n[500] != slots/2 || c.Stats.Displaced.Load() != was+1 {
		t.Errorf("connections by user: %v, %d displaced", n, c.Stats.Displaced.Load()-was)
	}
}

func TestAContainerHasItsPart(t *testing.T) {
	c := newCrowd(t, Bounds{})
	for i := range MaxContainerConnections {
		if _, in := c.enter(500, "a", int32(i+1), task); !in {
			t.Fatalf("connection %d was refused", i)
		}
	}
	if _, in := c.enter(500, "a", 1000, task); in {
		t.Error("a container has more connections than its part")
	}
	if _, in := c.enter(500, "b", 1001, task); !in {
		t.Error("another container of the user was refused")
	}
}

// Slots filled with idle tasks need little memory: no queues are allocated in advance.
func TestIdleConnectionsCostLittle(t *testing.T) {
	c := newCrowd(t, Bounds{})
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := used()
	const tasks = MaxConnections - MaxServers
	h := task
	h.Role = wire.RoleExecutor
	for i := range tasks {
		if _, in := c.enter(500, strconv.Itoa(i), int32(i+1), h); !in {
			t.Fatal("refused")
		}
	}
	// The frame buffers are 12 KiB for each.
	if each := int64(used()-before) / tasks; each > 48<<10 {
		t.Errorf("%d bytes for each connection", each)
	} else {
		t.Logf("%d bytes for each connection", each)
	}
}

// The bound on a container's streams covers all its connections together.
func TestAContainersStreams(t *testing.T) {
	c := newCrowd(t, Bounds{})
	var messages []wire.Message
	for i := range uint32(MaxTaskStreams) {
		messages = append(messages, wire.Open{Stream: i, Direction: wire.Write, Flow: task.Flow, Path: "/x/a"})
	}
	opens := frames(t, messages...)
	for i := range MaxContainerStreams / MaxTaskStreams {
		conn, _ := c.enter(500, "a", int32(i+1), task)
		if _, err := conn.Write(opens); err != nil {
			t.Fatal(err)
		}
		awaitMarks(t, conn, MaxTaskStreams)
	}
	if got := c.Stats.OverBound.Load(); got != 0 || c.streams.Held() != MaxContainerStreams {
		t.Fatalf("%d streams beyond a bound, %d held", got, c.streams.Held())
	}
	one := frames(t, messages[0])
	past, _ := c.enter(500, "a", 100, task)
	if _, err := past.Write(one); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, past, 1)
	if got := c.Stats.OverBound.Load(); got != 1 {
		t.Errorf("%d streams beyond the bound", got)
	}
	other, _ := c.enter(500, "b", 101, task)
	if _, err := other.Write(one); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, other, 1)
	if got := c.Stats.OverBound.Load(); got != 1 {
		t.Errorf("%d streams beyond the bound; another container's is among them", got)
	}
	// A closed stream's slot is free again.
	if _, err := other.Write(frames(t, wire.Close{Stream: 0})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the closed stream's slot", func() bool { return c.streams.Held() == MaxContainerStreams })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Silent connections do not keep others out, of the same user or of other users.
func TestSilentConnections(t *testing.T) {
	c := newCrowd(t, Bounds{})
	first := c.connect(500, "a", 1)
	for range maxContainerGreets - 1 {
		c.connect(500, "a", 1)
	}
	greeting := func(n int) func() bool {
		return func() bool {
			c.Server.mu.Lock()
			defer c.Server.mu.Unlock()
			return len(c.greetings) == n
		}
	}
	eventually(t, "the greetings", greeting(maxContainerGreets))
	c.connect(500, "a", 1)
	ended(t, first)
	for i := range maxUserGreets {
		c.connect(500, "", int32(100+i))
	}
	eventually(t, "the user's bound", func() bool { return c.Stats.Accepted.Load() >= maxContainerGreets+1+maxUserGreets })
	eventually(t, "the user's bound", greeting(maxUserGreets))
	if _, in := c.enter(500, "b", 1000, task); !in {
		t.Error("a task of the same user was kept out")
	}
	// Many users together reach the total bound: the user with the most connections loses one.
	for uid := range uint32(MaxGreetings/maxUserGreets + 1) {
		for i := range maxUserGreets {
			c.connect(600+uid, "", int32(2000+1000*int(uid)+i))
		}
	}
	eventually(t, "the bound of all", greeting(MaxGreetings))
	if _, in := c.enter(700, "c", 50000, task); !in {
		t.Error("another user was kept out")
	}
	if _, in := c.enter(50, "", 50001, hello); !in {
		t.Error("a DataNode was kept out")
	}
}

// A user that connects without pause is limited to a rate; a DataNode's user is not.
func TestConnectFlood(t *testing.T) {
	c := newCrowd(t, Bounds{})
	for i := range 2*userBurst + 200 {
		conn := c.connect(500, "", int32(i+1))
		conn.Close()
	}
	if got := c.Stats.Hurried.Load(); got == 0 {
		t.Error("nothing was refused")
	}
	if _, in := c.enter(501, "b", 1_000_000, task); !in {
		t.Error("another user was refused")
	}
	if _, in := c.enter(50, "", 1_000_001, hello); !in {
		t.Error("a DataNode was refused")
	}
	// A single process that connects too often is refused before its user is.
	hurried := c.Stats.Hurried.Load()
	for range processBurst + 50 {
		c.connect(502, "", 77).Close()
	}
	eventually(t, "a refusal of a process in a hurry", func() bool { return c.Stats.Hurried.Load() > hurried }) // accepting may lag behind
	if _, in := c.enter(502, "", 78, task); !in {
		t.Error("another process of the user was refused")
	}
	if n := strings.Count(c.log.String(), "\n"); n > 200 {
		t.Errorf("%d lines in the log", n)
	}
}

// A container's frames have a rate limit on all its connections together. Other containers are
// served in the meantime.
func TestFrameFlood(t *testing.T) {
	c := newCrowd(t, Bounds{})
	const connections, more = 4, 10_000
	flood := bytes.Repeat(frames(t, wire.Progress{Stream: 77, Position: 1}), (containerFrames+more)/connections)
	open := frames(t, wire.Open{Stream: 1, Direction: wire.Write, Flow: task.Flow, Path: "/x/a"})
	began := time.Now()
	var all sync.WaitGroup
	for i := range connections {
		conn, in := c.enter(500, "a", int32(i+1), task)
		if !in {
			t.Fatal("refused")
		}
		all.Go(func() {
			if _, err := conn.Write(append(bytes.Clone(flood), open...)); err != nil {
				t.Error(err)
			}
			awaitMarks(t, conn, 1)
		})
	}
	other, _ := c.enter(500, "b", 100, task)
	if _, err := other.Write(open); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, other, 1)
	all.Wait()
	if took, least := time.Since(began), time.Duration(more)*time.Second/framesOfContainer; took < least*9/10 {
		t.Errorf("%d frames took %v, less than %v", containerFrames+more, took, least)
	}
	if c.Stats.BadFrames.Load() != 0 || c.Stats.SlowPeers.Load() != 0 {
		t.Error("the flood was not valid")
	}
}

// A peer that is refused again and again is logged once.
func TestRefusalsAreSaidOnce(t *testing.T) {
	c := newCrowd(t, Bounds{})
	for range 500 {
		ended(t, c.connect(4000, "", 5))
	}
	if got := c.Stats.Refused.Load(); got != 500 {
		t.Errorf("%d refused", got)
	}
	if n := strings.Count(c.log.String(), "\n"); n != 1 || !strings.Contains(c.log.String(), "add it to users or task_users") {
		t.Errorf("%d lines:\n%s", n, c.log.String())
	}
	if got := c.Limited.Suppressed.Load(); got != 499 {
		t.Errorf("%d lines suppressed", got)
	}
}

func TestQuota(t *testing.T) {
	q := &Quota{Bound: 90, Container: 50}
	take := func(uid uint32, container string) (n int) {
		for q.Take(Owner{uid, container}) {
			n++
		}
		return n
	}
	if got := take(1, "a"); got != 50 {
		t.Errorf("one container has %d", got)
	}
	if got := take(1, "b"); got != 30 || q.Held() != 80 {
		t.Errorf("the user's second container has %d: a user alone gets eight ninths", got)
	}
	if got := take(2, "c"); got != 8 {
		t.Errorf("a second user finds %d", got)
	}
	if got := take(3, "d"); got != 2 {
		t.Errorf("a third user finds %d", got)
	}
	for range 8 {
		q.Give(Owner{2, "c"})
	}
	for range 50 {
		q.Give(Owner{1, "a"})
	}
	for range 30 {
		q.Give(Owner{1, "b"})
	}
	for range 2 {
		q.Give(Owner{3, "d"})
	}
	if q.Held() != 0 || len(q.users)+len(q.containers) != 0 {
		t.Errorf("%d held; %v %v", q.Held(), q.users, q.containers)
	}
}

// For every limit on descriptors, the bounds together leave some descriptors for the daemon itself.
func TestBoundsFor(t *testing.T) {
	for n := uint64(256); n <= 1<<21; n += n/7 + 1 {
		b := BoundsFor(n)
		sum := b.Connections + b.Greetings + b.ServerFiles + b.TaskFiles
		if left := int(n) - sum; left < min(ownFiles, int(n)/8) {
			t.Errorf("of %d descriptors %d are left: %+v", n, left, b)
		}
		if b.Servers <= 0 || b.Servers >= b.Connections || b.TaskFiles <= 0 || b.ServerFiles < b.TaskFiles {
			t.Errorf("%d descriptors: %+v", n, b)
		}
		if n >= 8*ownFiles && b.Connections != MaxConnections {
			t.Errorf("%d descriptors: %d connections", n, b.Connections)
		}
	}
}

func TestTheNumberOfRateLimitersIsBounded(t *testing.T) {
	p := newRateLimiters()
	for i := range int32(10 * ratesKept) {
		p.owner(Owner{uint32(i), ""}, time.Now())
	}
	if p.owners.Len() != ratesKept {
		t.Errorf("%d rates kept", p.owners.Len())
	}
	now := time.Now()
	for i := range userBurst + 1 {
		if p.user(7, now) != (i < userBurst) {
			t.Errorf("connection %d", i)
		}
	}
}
