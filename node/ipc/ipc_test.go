package ipc

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/node/device"
	"penstock/wire"
)

// daemon is an Opener without devices: it lets every stream pass, and records the opened streams.
// The real Opener is tested end to end in package node.
type daemon struct {
	mu    sync.Mutex
	opens []wire.Open
	alive uint64 // returned by Alive
	free  uint64 // returned by Free
	used  chan struct{}
	fail  error
}

func (d *daemon) Register(Peer) (Registration, error) { return d, d.fail }
func (d *daemon) Close()                              {}
func (d *daemon) Stride(wire.Role) uint32             { return 65536 }
func (d *daemon) Heartbeat() (uint64, device.Mode)    { return 1, device.Enforce }
func (d *daemon) Devices() []uint8                    { return []uint8{1, 0, 2} }
func (d *daemon) Alive() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive
}

func (d *daemon) Free() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free
}

func (d *daemon) NoLongerFree() <-chan struct{} { return d.used }

func (d *daemon) Open(m wire.Open, _ device.Marker) (Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opens = append(d.opens, m)
	return nil, errors.New("no device here")
}

func serve(t *testing.T, d Opener, allow bool) (*Server, string) {
	t.Helper()
	return serveTo(t, d, func(uint32, wire.Role) bool { return allow })
}

func serveTo(t *testing.T, d Opener, allow func(uint32, wire.Role) bool) (*Server, string) {
	t.Helper()
	s := &Server{Opener: d, Allow: allow}
	return s, serveAs(t, s)
}

// serveAs starts to serve and returns the socket's path.
func serveAs(t *testing.T, s *Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func frames(t *testing.T, messages ...wire.Message) []byte {
	t.Helper()
	var b []byte
	for _, m := range messages {
		var err error
		if b, err = wire.Append(b, m); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

var hello = wire.Hello{PID: uint32(os.Getpid()), Role: wire.RoleDataNode, Agent: "test", Directories: []string{"/x"}}

var task = wire.Hello{PID: uint32(os.Getpid()), Role: wire.RoleTask, Agent: "test", Flow: "application_1", Directories: []string{"/x"}}

// ended waits until the server closes the connection, and returns the bytes received.
func ended(t *testing.T, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the connection was not closed")
	}
	return b
}

func TestConversation(t *testing.T) {
	d := &daemon{alive: 1}
	_, path := serve(t, d, true)
	c := dial(t, path)
	open := wire.Open{Stream: 7, Direction: wire.Read, Flow: "a", Path: "/x/blk_1", To: 10}
	if _, err := c.Write(frames(t, hello, open, wire.Progress{Stream: 99}, wire.Close{Stream: 7})); err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(c)
	var welcome, mark, heartbeat bool
	for !welcome || !mark || !heartbeat {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case wire.Welcome:
			welcome = m.Mode == wire.ModeEnforce && m.Stride == 65536
		case wire.Mark:
			mark = m == wire.Mark{Stream: 7, Position: device.Open}
		case wire.Heartbeat:
			heartbeat = m.Tick == 1
		}
	}
	if len(d.opens) != 1 || d.opens[0] != open {
		t.Errorf("opened: %+v", d.opens)
	}
}

// When a device stops being free, each connection reports it without waiting for its next heartbeat.
func TestADeviceThatIsNoLongerFreeIsReportedAtOnce(t *testing.T) {
	d := &daemon{alive: 0b11, free: 0b10, used: make(chan struct{}, 1)}
	_, path := serve(t, d, true)
	c := dial(t, path)
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(c)
	// Without an answer at once, each of the changes would wait for the next heartbeat.
	const changes = 40
	begin := time.Now()
	for i := range changes {
		want := uint64(i % 2 << 1)
		d.mu.Lock()
		d.free = want
		d.mu.Unlock()
		d.used <- struct{}{}
		for {
			m, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if beat, ok := m.(wire.Heartbeat); ok && beat.Free == want {
				break
			}
		}
	}
	if took := time.Since(begin); took >= changes*HeartbeatEvery/2 {
		t.Errorf("%d changes took %v, with a heartbeat every %v", changes, took, HeartbeatEvery)
	}
}

// Heartbeats continue while a loop is stalled, and report which loop that is.
func TestHeartbeatsSayWhichDevicesLive(t *testing.T) {
	d := &daemon{alive: 0b101}
	_, path := serve(t, d, true)
	c := dial(t, path)
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(c)
	for _, want := range []uint64{0b101, 0b111, 0} {
		d.mu.Lock()
		d.alive = want
		d.mu.Unlock()
		for beats := 0; ; {
			m, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if w, ok := m.(wire.Welcome); ok && !bytes.Equal(w.Devices, d.Devices()) {
				t.Fatalf("devices: %v", w.Devices)
			}
			beat, ok := m.(wire.Heartbeat)
			if ok && beat.Alive == want {
				break
			}
			// One heartbeat may have been in transit.
			if ok && beats > 0 {
				t.Fatalf("heartbeat says %b, want %b", beat.Alive, want)
			}
			if ok {
				beats++
			}
		}
	}
}

// An agent of another version than the daemon's or the one before is refused with a frame that contains the daemon's
// version. The log says what to do.
func TestAnAgentOfAnotherVersionHearsWhich(t *testing.T) {
	for version, remedy := range map[byte]string{wire.Former - 1: "restart its process", wire.Version + 1: "upgrade the daemon"} {
		var logs syncBuffer
		s := &Server{Opener: &daemon{alive: 1}, Allow: func(uint32, wire.Role) bool { return true }, Log: slog.New(slog.NewTextHandler(&logs, nil))}
		c := dial(t, serveAs(t, s))
		old := frames(t, hello)
		old[3] = version
		if _, err := c.Write(old); err != nil {
			t.Fatal(err)
		}
		if said := ended(t, c); len(said) < wire.HeaderLen || said[2] != byte(wire.TypeWelcome) || said[3] != wire.Version {
			t.Errorf("version %d received %x", version, said)
		}
		if n := s.Stats.BadFrames.Load(); n != 1 {
			t.Errorf("%d bad frames counted", n)
		}
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(logs.String(), remedy) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if !strings.Contains(logs.String(), remedy) {
			t.Errorf("version %d: %s", version, logs.String())
		}
	}
}

// An agent of the former release is served in its own version, beside one of this release. The frames that it sends were
// written by the former release.
func TestAnAgentOfTheFormerRelease(t *testing.T) {
	text, err := os.ReadFile("../../wire/testdata/former.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Name, Hex string }
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	var sent []byte
	for _, name := range []string{"hello", "open read", "open write, end unknown"} {
		for _, v := range vectors {
			if v.Name == name {
				frame, err := hex.DecodeString(v.Hex)
				if err != nil {
					t.Fatal(err)
				}
				sent = append(sent, frame...)
			}
		}
	}
	d := &daemon{alive: 1, free: 2}
	s, path := serve(t, d, true)
	present := dial(t, path)
	if _, err := present.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	former := dial(t, path)
	if _, err := former.Write(sent); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[net.Conn]struct {
		version uint8
		marks   int
		free    uint64
	}{present: {wire.Version, 0, 2}, former: {wire.Former, 2, 0}} {
		r := wire.NewAgentReader(c)
		marks, beats := 0, 0
		for first := true; marks < want.marks || beats == 0; first = false {
			m, err := r.Next()
			if err != nil || r.Version() != want.version {
				t.Fatalf("%v, of version %d, want %d", err, r.Version(), want.version)
			}
			switch m := m.(type) {
			case wire.Welcome:
				if !first || !bytes.Equal(m.Devices, d.Devices()) {
					t.Errorf("%+v", m)
				}
			case wire.Mark:
				marks++
			case wire.Heartbeat:
				if beats++; m.Alive != 1 || m.Free != want.free {
					t.Errorf("version %d: %+v", want.version, m)
				}
			}
		}
	}
	for _, a := range s.Agents() {
		if a.Name == "penstock-agent 0.1" && a.Frames != wire.Former || a.Name != "penstock-agent 0.1" && a.Frames != wire.Version {
			t.Errorf("%+v", a)
		}
	}
	if _, err := former.Write(frames(t, wire.Progress{Stream: 7, Position: 1})); err != nil { // of another version than its hello
		t.Fatal(err)
	}
	ended(t, former)
	if n := s.Stats.BadFrames.Load(); n != 1 {
		t.Errorf("%d bad frames", n)
	}
}

func TestBadPeers(t *testing.T) {
	mark := frames(t, wire.Mark{Stream: 1})
	open := wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: "/x/b"}
	whole := frames(t, hello)
	for name, send := range map[string][]byte{
		"garbage":             []byte("GET / HTTP/1.1\r\n\r\n"),
		"oversized":           {0xff, 0xff, 1, 1},
		"wrong version":       {0, 0, 1, 9},
		"no hello first":      mark,
		"daemon's own frame":  append(frames(t, hello), mark...),
		"second hello":        append(frames(t, hello), frames(t, hello)...),
		"half a frame, later": append(frames(t, hello), frames(t, open)[:9]...),
		"half a hello":        whole[:len(whole)/2],
	} {
		t.Run(name, func(t *testing.T) {
			d := &daemon{alive: 1}
			s, path := serve(t, d, true)
			c := dial(t, path)
			if _, err := c.Write(send); err != nil {
				t.Fatal(err)
			}
			if err := c.(*net.UnixConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			ended(t, c)
			if got := s.Stats.BadFrames.Load(); got != 1 {
				t.Errorf("%d bad frames counted", got)
			}
			// The next peer is served.
			good := dial(t, path)
			if _, err := good.Write(frames(t, hello)); err != nil {
				t.Fatal(err)
			}
			if _, err := wire.NewReader(good).Next(); err != nil {
				t.Errorf("after a bad peer: %v", err)
			}
		})
	}
}

func TestPeerCheck(t *testing.T) {
	s, path := serve(t, &daemon{alive: 1}, false)
	c := dial(t, path)
	if got := ended(t, c); len(got) != 0 {
		t.Errorf("a refused peer got %d bytes", len(got))
	}
	if s.Stats.Refused.Load() != 1 {
		t.Error("the refusal was not counted")
	}
	d := &daemon{alive: 1, fail: errors.New("no")}
	s, path = serve(t, d, true)
	c = dial(t, path)
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	ended(t, c)
	if s.Stats.Refused.Load() != 1 {
		t.Error("refused directories were not counted")
	}
}

// A user that may connect as a task may not connect as a server, which names flows.
func TestPeerCheckByRole(t *testing.T) {
	s, path := serveTo(t, &daemon{alive: 1}, func(uid uint32, role wire.Role) bool {
		return uid == uint32(os.Geteuid()) && !Serves(role)
	})
	c := dial(t, path)
	if _, err := c.Write(frames(t, task)); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.NewReader(c).Next(); err != nil {
		t.Errorf("a task was refused: %v", err)
	}
	for n, role := range []wire.Role{wire.RoleDataNode, wire.RoleNodeManager, wire.RoleWorker} {
		server := hello
		server.Role = role
		c := dial(t, path)
		if _, err := c.Write(frames(t, server)); err != nil {
			t.Fatal(err)
		}
		if got := ended(t, c); len(got) != 0 || s.Stats.Refused.Load() != int64(n+1) {
			t.Errorf("%v: got %d bytes, %d refusals", role, len(got), s.Stats.Refused.Load())
		}
	}
}

// However many tasks there are, they leave the servers' slots free. Servers do not take more than
// these slots.
func TestConnectionBound(t *testing.T) {
	s := &Server{Opener: &daemon{alive: 1}, Allow: func(uint32, wire.Role) bool { return true }, Container: containers()}
	path := serveAs(t, s)
	enter := func(h wire.Hello) bool {
		c := dial(t, path)
		if _, err := c.Write(frames(t, h)); err != nil {
			t.Fatal(err)
		}
		_, err := wire.NewReader(c).Next() // the welcome
		return err == nil
	}
	for i := range MaxConnections - MaxServers {
		h := task
		if i%2 == 0 {
			h.Role = wire.RoleExecutor
		}
		if !enter(h) {
			t.Fatalf("task %d was refused", i)
		}
	}
	if enter(task) {
		t.Error("a task got a server's slot")
	}
	for i := range MaxServers {
		h := hello
		if i%2 == 0 {
			h.Role = wire.RoleNodeManager
		}
		// A refused peer may still be leaving the last slot.
		for deadline := time.Now().Add(10 * time.Second); !enter(h); {
			if time.Now().After(deadline) {
				t.Fatalf("server %d was refused", i)
			}
		}
	}
	if s.Stats.Displaced.Load() != 0 {
		t.Error("a newcomer displaced one of those that have as little")
	}
}

// containers returns a function that puts each connection into a container of its own.
func containers() func(int32) string {
	n := 0
	return func(int32) string {
		n++
		return strconv.Itoa(n)
	}
}

func TestServersAreBounded(t *testing.T) {
	s, path := serve(t, &daemon{alive: 1}, true)
	for i := range MaxServers + 1 {
		c := dial(t, path)
		if _, err := c.Write(frames(t, hello)); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.NewReader(c).Next(); (err == nil) != (i < MaxServers) {
			t.Errorf("server %d: %v", i, err)
		}
	}
	if s.Stats.Refused.Load() != 1 || len(s.Agents()) != MaxServers {
		t.Errorf("refused %d, %d agents", s.Stats.Refused.Load(), len(s.Agents()))
	}
}

func TestATaskHasOneFlow(t *testing.T) {
	d := &daemon{alive: 1}
	s, path := serve(t, d, true)
	c := dial(t, path)
	own := wire.Open{Stream: 1, Direction: wire.Write, Kind: wire.Intermediate, Flow: task.Flow, Path: "/x/a"}
	other := wire.Open{Stream: 2, Direction: wire.Write, Kind: wire.Intermediate, Flow: "application_2", Path: "/x/b"}
	if _, err := c.Write(frames(t, task, other, own)); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, c, 2)
	if len(d.opens) != 1 || d.opens[0] != own || s.Stats.OtherFlows.Load() != 1 || s.Stats.OpenErrors.Load() != 1 {
		t.Errorf("opened %+v, %d of other flows", d.opens, s.Stats.OtherFlows.Load())
	}
	if a := s.Agents(); len(a) != 1 || a[0].Flow != task.Flow || a[0].Role != wire.RoleTask {
		t.Errorf("agents: %+v", a)
	}
	nameless := task
	nameless.Flow = ""
	c = dial(t, path)
	if _, err := c.Write(frames(t, nameless)); err != nil {
		t.Fatal(err)
	}
	ended(t, c)
	if s.Stats.BadFrames.Load() != 1 {
		t.Error("a task without a flow was taken")
	}
}

// awaitMarks reads frames until n marks have arrived, and returns the last one.
func awaitMarks(t *testing.T, c net.Conn, n int) (last wire.Mark) {
	t.Helper()
	r := wire.NewReader(c)
	for n > 0 {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if mark, ok := m.(wire.Mark); ok {
			last = mark
			n--
		}
	}
	return last
}

// At the bound of open streams, a task's next stream passes ungoverned. A closed stream still
// counts while its opening waits for the device.
func TestTaskStreamsAreBounded(t *testing.T) {
	d := &slowOpener{daemon: daemon{alive: 1}, gate: make(chan struct{})}
	s, path := serve(t, d, true)
	c := dial(t, path)
	slow := task
	slow.Flow = "slow"
	messages := []wire.Message{slow}
	for id := range uint32(MaxTaskStreams) {
		messages = append(messages, wire.Open{Stream: id, Direction: wire.Write, Flow: "slow", Path: "/x/a"}, wire.Close{Stream: id})
	}
	messages = append(messages, wire.Open{Stream: MaxTaskStreams, Direction: wire.Write, Flow: "slow", Path: "/x/a"})
	if _, err := c.Write(frames(t, messages...)); err != nil {
		t.Fatal(err)
	}
	if got := awaitMarks(t, c, 1); got.Stream != MaxTaskStreams || got.Position != device.Open || s.Stats.OpenErrors.Load() != 1 {
		t.Errorf("the first mark is %+v; %d open errors", got, s.Stats.OpenErrors.Load())
	}
	close(d.gate)
	awaitMarks(t, c, MaxTaskStreams)

	// The same for streams that stay open.
	s, path = serve(t, &openable{daemon{alive: 1}}, true)
	c = dial(t, path)
	messages = []wire.Message{task}
	for id := range uint32(MaxTaskStreams + 1) {
		messages = append(messages, wire.Open{Stream: id, Direction: wire.Write, Flow: task.Flow, Path: "/x/a"})
	}
	if _, err := c.Write(frames(t, messages...)); err != nil {
		t.Fatal(err)
	}
	if got := awaitMarks(t, c, MaxTaskStreams+1); s.Stats.OpenErrors.Load() != 1 || s.Stats.SlowPeers.Load() != 0 {
		t.Errorf("%d open errors; the last mark is %+v", s.Stats.OpenErrors.Load(), got)
	}
}

// Tasks whose device does not answer occupy a bounded number of opens, and no opens of servers.
func TestOpensOfAllTasksAreBounded(t *testing.T) {
	d := &slowOpener{daemon: daemon{alive: 1}, gate: make(chan struct{})}
	s, path := serve(t, d, true)
	slow := task
	slow.Flow = "slow"
	open := func(stream uint32) wire.Open {
		return wire.Open{Stream: stream, Direction: wire.Write, Flow: "slow", Path: "/x/a"}
	}
	for range MaxTaskOpens / MaxTaskStreams {
		c := dial(t, path)
		messages := []wire.Message{slow}
		for id := range uint32(MaxTaskStreams) {
			messages = append(messages, open(id))
		}
		if _, err := c.Write(frames(t, messages...)); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); s.taskOpens.Load() < MaxTaskOpens; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d opens", s.taskOpens.Load())
		}
	}
	if s.Stats.OpenErrors.Load() != 0 {
		t.Error("refused at the bound")
	}
	c := dial(t, path)
	if _, err := c.Write(frames(t, slow, open(1))); err != nil {
		t.Fatal(err)
	}
	if m := awaitMarks(t, c, 1); m.Stream != 1 || s.Stats.OpenErrors.Load() != 1 {
		t.Errorf("beyond the bound: %+v", m)
	}
	c = dial(t, path)
	server := open(2)
	server.Flow = "quick"
	if _, err := c.Write(frames(t, hello, server)); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, c, 1)
	if got := s.Stats.OpenErrors.Load(); got != 2 { // no device here
		t.Errorf("%d open errors", got)
	}
	d.mu.Lock()
	opened := len(d.opens)
	d.mu.Unlock()
	if opened != 1 {
		t.Errorf("a DataNode's file was not opened during the tasks' opens: %d", opened)
	}
	close(d.gate)
}

// openable opens every stream on a device that is switched off.
type openable struct{ daemon }

func (d *openable) Register(Peer) (Registration, error) { return d, nil }

func (d *openable) Open(m wire.Open, k device.Marker) (Stream, error) {
	l, err := device.New(device.Options{Name: "off", Config: device.Config{Network: true}, Log: slog.New(slog.DiscardHandler),
		Policy: func(string) device.Rule { return device.Rule{Weight: 1} }})
	if err != nil {
		return nil, err
	}
	ended, end := context.WithCancel(context.Background())
	end()
	l.Run(ended)
	return l.Open(device.OpenRequest{Marker: k, ID: m.Stream, Flow: m.Flow, Kind: device.Network}), nil
}

// A file that a task has deleted before it was opened is not an error.
func TestFilesThatAreGone(t *testing.T) {
	s, path := serve(t, &gone{daemon{alive: 1}}, true)
	c := dial(t, path)
	spill := wire.Open{Stream: 1, Direction: wire.Write, Kind: wire.Intermediate, Flow: task.Flow, Path: "/x/a"}
	block := wire.Open{Stream: 2, Direction: wire.Write, Flow: task.Flow, Path: "/x/b"}
	if _, err := c.Write(frames(t, task, spill, block)); err != nil {
		t.Fatal(err)
	}
	awaitMarks(t, c, 2)
	if s.Stats.GoneFiles.Load() != 1 || s.Stats.OpenErrors.Load() != 1 {
		t.Errorf("%d gone, %d errors", s.Stats.GoneFiles.Load(), s.Stats.OpenErrors.Load())
	}
}

type gone struct{ daemon }

func (d *gone) Register(Peer) (Registration, error) { return d, nil }

func (d *gone) Open(wire.Open, device.Marker) (Stream, error) {
	return nil, &os.PathError{Op: "open", Path: "/x", Err: os.ErrNotExist}
}

func TestPeerThatDoesNotReadIsDisconnected(t *testing.T) {
	s, path := serve(t, &daemon{alive: 1}, true)
	c := dial(t, path)
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	// Every open is answered with a mark that the peer never reads.
	for id := uint32(0); ; id++ {
		if _, err := c.Write(frames(t, wire.Open{Stream: id, Direction: wire.Write, Flow: "a", Path: "/x/b"})); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatal("a peer that does not read was never disconnected")
			}
			break
		}
	}
	if s.Stats.SlowPeers.Load() == 0 {
		t.Error("the slow peer was not counted")
	}
}

// slowOpener opens nothing until the test allows it.
type slowOpener struct {
	daemon
	gate chan struct{}
}

func (d *slowOpener) Register(Peer) (Registration, error) { return d, nil }

func (d *slowOpener) Open(m wire.Open, k device.Marker) (Stream, error) {
	if m.Flow == "slow" {
		<-d.gate
	}
	return d.daemon.Open(m, k)
}

func TestOpenThatBlocksHoldsUpNobodyElse(t *testing.T) {
	d := &slowOpener{daemon: daemon{alive: 1}, gate: make(chan struct{})}
	_, path := serve(t, d, true)
	c := dial(t, path)
	open := wire.Open{Stream: 1, Direction: wire.Write, Flow: "slow", Path: "/x/a"}
	other := wire.Open{Stream: 2, Direction: wire.Write, Flow: "quick", Path: "/x/b"}
	if _, err := c.Write(frames(t, hello, open, wire.Progress{Stream: 1, Position: 7}, other)); err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(c)
	next := func() uint32 {
		for {
			m, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if mark, ok := m.(wire.Mark); ok {
				return mark.Stream
			}
		}
	}
	if got := next(); got != 2 {
		t.Errorf("the first mark is for stream %d, not for the one whose files open at once", got)
	}
	close(d.gate)
	if got := next(); got != 1 {
		t.Errorf("the second mark is for stream %d", got)
	}
}
