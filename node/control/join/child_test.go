package join

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"penstock/lab/netns"
	"penstock/node/control/journal"
)

const childRole = "PENSTOCK_JOIN_CHILD"

// child runs this program in a role, which is how the tests start other processes. "daemon DIR JOURNAL CGROUP" joins
// connections until it is killed. "talk ADDRESS STREAM" connects and sends a stream without end.
func child(role []string) error {
	switch role[0] {
	case "daemon":
		book, err := journal.Open(role[2], undo)
		if err != nil {
			return err
		}
		_, err = Start(context.Background(), Config{Dir: role[1], Cgroup: role[3], Journal: book, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			return err
		}
		fmt.Println("started")
		select {}
	case "talk":
		c, err := net.Dial("tcp", role[1])
		if err != nil {
			return err
		}
		stream, err := strconv.ParseUint(role[2], 10, 64)
		if err != nil {
			return err
		}
		fmt.Println("connected")
		message, bytes := make([]byte, 1000), content(stream)
		for {
			bytes.Read(message)
			if _, err := c.Write(message); err != nil {
				return err
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return fmt.Errorf("no role %q", role)
}

// command returns a child in a namespace.
func (r *rig) command(m *netns.Machine, role string) *exec.Cmd {
	c := m.Command(context.Background(), os.Args[0])
	c.Env = append(os.Environ(), childRole+"="+role)
	c.Stderr = os.Stderr
	return c
}

// run starts a child in a namespace and waits for its first line.
func (r *rig) run(m *netns.Machine, role string) *exec.Cmd {
	r.t.Helper()
	c := r.command(m, role)
	out, err := c.StdoutPipe()
	r.must(err)
	r.must(c.Start())
	r.t.Cleanup(func() { r.kill(c) })
	line := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		line <- err
	}()
	select {
	case err := <-line:
		if err != nil {
			r.t.Fatalf("the child %q: %v", role, err)
		}
	case <-time.After(patience):
		r.t.Fatalf("the child %q does not begin", role)
	}
	return c
}

// kill kills a child as kill -9 does, and waits for its end.
func (r *rig) kill(c *exec.Cmd) {
	if c.ProcessState == nil {
		c.Process.Kill()
		c.Wait()
	}
}

// TestTheDaemonIsKilled: connections continue by TCP, and the next daemon removes what was left.
func TestTheDaemonIsKilled(t *testing.T) {
	r := build(t)
	s := seed(t)
	c := r.config()
	for round := range 3 {
		daemon := r.run(r.router, fmt.Sprintf("daemon %s %s/journal %s", c.Dir, r.dir, c.Cgroup))
		stream := s + uint64(2*round)
		client, server := r.pair()
		done := make(chan error, 1)
		go func() { done <- exchange(client, server, stream, 1500, halfClose) }()
		time.Sleep(20 * time.Millisecond)
		r.kill(daemon)
		g, err := latest(c.Dir)
		r.must(err)
		if g.attached == nil {
			t.Fatal("the killed daemon's programs are not pinned")
		}
		var raw connectionState
		r.must(g.connections.Lookup(cookie(t, client), &raw))
		t.Logf("%d and %d bytes were joined when the daemon was killed", raw.Directions[0].Bytes, raw.Directions[1].Bytes)
		if raw.Directions[0].Bytes+raw.Directions[1].Bytes == 0 {
			t.Error("nothing was joined")
		}
		r.must(g.close())
		// A connection that begins after the heartbeat is stale is not joined.
		time.Sleep(1200 * time.Millisecond)
		late, end := r.pair()
		r.ping(late, end, 10)
		r.check(<-done)
		client.Close()
		server.Close()
	}
	book, err := journal.Open(r.dir+"/journal", undo)
	r.must(err)
	if n := len(book.Restored()); n != 1 {
		t.Errorf("%d changes are put back, want 1", n)
	}
	r.check(book.Close())
	if paths, err := generations(c.Dir); err != nil || len(paths) > 0 || isMounted(c.Dir) {
		t.Errorf("left over: %v, %v", paths, err)
	}
}

// TestKilledWhileItStarts: what a daemon has done in part is undone by the next one.
func TestKilledWhileItStarts(t *testing.T) {
	r := build(t)
	random := rand.New(rand.NewPCG(seed(t), 0))
	c := r.config()
	for range 6 {
		daemon := r.command(r.router, fmt.Sprintf("daemon %s %s/journal %s", c.Dir, r.dir, c.Cgroup))
		r.must(daemon.Start())
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		r.kill(daemon)
	}
	r.start()
	client, server := r.pair()
	r.ping(client, server, 10)
	if f := r.found(client); !f.Client.Joined {
		t.Errorf("%+v", f)
	}
	if paths, err := generations(c.Dir); err != nil || len(paths) != 1 {
		t.Errorf("%v, %v", paths, err)
	}
	client.Close()
	server.Close()
	r.must(errors.Join(r.join.Close(), r.journal.Close()))
	if isMounted(c.Dir) {
		t.Error("the BPF file system is left over")
	}
}

// latest opens the last generation.
func latest(dir string) (*generation, error) {
	paths, err := generations(dir)
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no generation in %s: %v", dir, err)
	}
	return open(paths[len(paths)-1])
}

// TestAnEndIsKilled: the reader gets a part of what was sent, in order, and then the end.
func TestAnEndIsKilled(t *testing.T) {
	r := build(t)
	s := seed(t)
	r.start()
	l := r.listen(r.b)
	for round := range 5 {
		stream := s + uint64(round)
		talker := r.run(r.a, fmt.Sprintf("talk %s %d", l.Addr(), stream))
		server, err := l.Accept()
		r.must(err)
		time.AfterFunc(time.Duration(20+10*round)*time.Millisecond, func() { talker.Process.Kill() })
		r.must(server.SetDeadline(time.Now().Add(patience)))
		total, err := receive(server.(*net.TCPConn), stream)
		if err != nil || total == 0 {
			t.Errorf("after %d bytes: %v", total, err)
		}
		server.Close()
		talker.Wait()
	}
	r.eventually("closed connections are forgotten", func() bool { return len(r.join.Status().Connections) == 0 })
	if s := r.join.Status(); s.ClosedConnections != 5 || s.ClosedBytes == 0 {
		t.Errorf("%+v", s)
	}
}
