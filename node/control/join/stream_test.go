package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// messages is the number of messages of a long test. PENSTOCK_JOIN_MESSAGES sets another one; `make soak` sends a
// million.
func messages(t testing.TB) int {
	text := os.Getenv("PENSTOCK_JOIN_MESSAGES")
	if text == "" {
		return 4000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// seed returns the test's seed, from PENSTOCK_SEED or by chance.
func seed(t testing.TB) uint64 {
	s := rand.Uint64()
	if text := os.Getenv("PENSTOCK_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PENSTOCK_SEED=%d", s)
	return s
}

// content returns an endless stream of bytes, which depends on the seed only.
func content(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return rand.NewChaCha8(key)
}

// size returns a random size of a message: mostly small ones, sometimes more than a buffer has room for.
func size(random *rand.Rand) int {
	switch random.IntN(50) {
	case 0:
		return 1 + random.IntN(200<<10)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
		return 1 + random.IntN(8<<10)
	default:
		return 1 + random.IntN(300)
	}
}

// ending is how a sender ends a stream.
type ending int

const (
	halfClose ending = iota
	reset
)

// send sends n messages of the stream. At the end it closes its direction, or resets the connection.
func send(c *net.TCPConn, stream uint64, n int, end ending, pause func(*rand.Rand)) error {
	random, waits, bytes := rand.New(rand.NewPCG(stream, 1)), rand.New(rand.NewPCG(stream, 4)), content(stream)
	for range n {
		message := make([]byte, size(random))
		bytes.Read(message)
		if _, err := c.Write(message); err != nil {
			return err
		}
		pause(waits)
	}
	if end == reset {
		return errors.Join(c.SetLinger(0), c.Close())
	}
	return c.CloseWrite()
}

// receive reads the stream until its end. It returns the number of bytes, and an error if a byte is wrong or the
// connection was reset. Sometimes it stops for a while, so that buffers become full.
func receive(c *net.TCPConn, stream uint64) (total int, err error) {
	random, want := rand.New(rand.NewPCG(stream, 2)), content(stream)
	got, expected := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		if random.IntN(200) == 0 {
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		n, err := c.Read(got[:1+random.IntN(len(got))])
		want.Read(expected[:n])
		if !bytes.Equal(got[:n], expected[:n]) {
			return total, fmt.Errorf("stream %d: a wrong byte between %d and %d", stream, total, total+n)
		}
		total += n
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
	}
}

// sum returns the length of the stream's first n messages.
func sum(stream uint64, n int) (total int) {
	random := rand.New(rand.NewPCG(stream, 1))
	for range n {
		total += size(random)
	}
	return total
}

// exchange sends streams both ways over a connection and checks them.
func exchange(client, server *net.TCPConn, stream uint64, n int, end ending) error {
	var group sync.WaitGroup
	errs := make([]error, 4)
	total := make([]int, 2)
	pause := func(random *rand.Rand) {
		if random.IntN(100) == 0 {
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		}
	}
	group.Go(func() { errs[0] = send(client, stream, n, end, pause) })
	group.Go(func() { errs[1] = send(server, stream+1, n, halfClose, pause) })
	group.Go(func() { total[0], errs[2] = receive(server, stream) })
	group.Go(func() { total[1], errs[3] = receive(client, stream+1) })
	group.Wait()
	if end == reset {
		for i, err := range errs {
			if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ENOTCONN) || errors.Is(err, net.ErrClosed) {
				errs[i] = nil
			}
		}
		return errors.Join(errs...)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, got := range total {
		if want := sum(stream+uint64(i), n); got != want {
			return fmt.Errorf("stream %d: %d bytes, want %d", stream+uint64(i), got, want)
		}
	}
	return nil
}

// TestStreamsAreIdentical sends messages of random sizes both ways over several connections, with half-closes,
// resets and full windows, while connections are released.
func TestStreamsAreIdentical(t *testing.T) {
	r := build(t)
	r.proof = 10 * time.Millisecond
	s := seed(t)
	r.start()
	r.exchanges(s, messages(t), 1, func(random *rand.Rand) {
		if random.IntN(2) == 0 {
			r.join.ReleaseAll("a test")
		} else if _, err := r.join.Release(func(c Connection) bool { return c.ID%2 == 0 }); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	})
	status := r.join.Status()
	t.Logf("%d connections joined, %.1f MB", status.ClosedConnections, float64(status.ClosedBytes)/1e6)
	if status.ClosedBytes == 0 {
		t.Error("nothing was joined")
	}
}

// TestLoadingAndUnloadingUnderLoad starts and ends the joining while streams flow. No connection is lost.
func TestLoadingAndUnloadingUnderLoad(t *testing.T) {
	r := build(t)
	r.proof = 10 * time.Millisecond
	s := seed(t)
	rounds, bytes := 0, uint64(0)
	r.exchanges(s, messages(t), 4, func(random *rand.Rand) {
		r.start()
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		status := r.join.Status()
		bytes += status.ClosedBytes
		for _, c := range status.Connections {
			bytes += c.Client.Bytes + c.Server.Bytes
		}
		for _, end := range []func() error{r.join.Close, r.journal.Close} {
			if err := end(); !errors.Is(err, ErrUnread) { // the readers may be slow; the next round removes what is left
				r.check(err)
			}
		}
		rounds++
	})
	t.Logf("%d rounds, %.1f MB joined", rounds, float64(bytes)/1e6)
	if rounds == 0 || bytes == 0 {
		t.Error("nothing was joined")
	}
}

// exchanges exchanges at least n messages over connections that follow each other, four at a time. Meanwhile it calls
// disturb again and again, at least rounds times.
func (r *rig) exchanges(seed uint64, n, rounds int, disturb func(*rand.Rand)) {
	r.t.Helper()
	const parallel, perConnection = 4, 100 // messages each way
	var group sync.WaitGroup
	var next, disturbed atomic.Int64
	l := r.listen(r.b)
	var dialing sync.Mutex
	for range parallel {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i*2*perConnection >= n && disturbed.Load() >= int64(rounds) || r.t.Failed() {
					return
				}
				dialing.Lock()
				client, err := r.a.Dial(context.Background(), l.Addr().String())
				if err != nil {
					dialing.Unlock()
					r.t.Error(err)
					return
				}
				server, err := l.Accept()
				dialing.Unlock()
				if err != nil {
					r.t.Error(err)
					return
				}
				deadline := time.Now().Add(2 * patience)
				err = errors.Join(client.SetDeadline(deadline), server.SetDeadline(deadline))
				err = errors.Join(err, exchange(client.(*net.TCPConn), server.(*net.TCPConn), seed+uint64(2*i), perConnection, ending(i%4/3)))
				client.Close()
				server.Close()
				if err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	random := rand.New(rand.NewPCG(seed, 3))
	for {
		disturb(random)
		disturbed.Add(1)
		select {
		case <-done:
			return
		default:
		}
	}
}
