package join

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// joined returns the ends of a joined connection, over which nothing has been sent.
func joined(t testing.TB) (r *rig, client, server *net.TCPConn) {
	t.Helper()
	r = build(t)
	r.start()
	client, server = r.pair()
	return r, client, server
}

// write writes a message and checks that it went straight to the reader.
func (r *rig) write(client *net.TCPConn, message []byte) {
	r.t.Helper()
	before := r.found(client).Client.Bytes
	if n, err := client.Write(message); err != nil || n != len(message) {
		r.t.Fatal(n, err)
	}
	if c := r.found(client); c.Client.Bytes != before+uint64(len(message)) {
		r.t.Fatalf("the message was not joined: %+v", c)
	}
}

func TestPeekAndEpoll(t *testing.T) {
	r, client, server := joined(t)
	fd := blocking(t, server)
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	r.must(err)
	defer unix.Close(epoll)
	r.must(unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET}))
	events := make([]unix.EpollEvent, 1)
	wait := func(timeout time.Duration) uint32 {
		n, err := unix.EpollWait(epoll, events, int(timeout.Milliseconds()))
		for errors.Is(err, unix.EINTR) {
			n, err = unix.EpollWait(epoll, events, int(timeout.Milliseconds()))
		}
		r.must(err)
		if n == 0 {
			return 0
		}
		return events[0].Events
	}
	if e := wait(0); e != 0 {
		t.Errorf("an empty socket is ready: %#x", e)
	}
	got := make([]byte, 16)
	for _, message := range []string{"first", "second"} {
		r.write(client, []byte(message))
		if e := wait(patience); e != unix.EPOLLIN {
			t.Errorf("a socket with a message: %#x", e)
		}
		for range 2 {
			n, _, err := unix.Recvfrom(fd, got, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if err != nil || string(got[:n]) != message {
				t.Errorf("peek: %q, %v", got[:max(n, 0)], err)
			}
		}
		n, _, err := unix.Recvfrom(fd, got, unix.MSG_DONTWAIT)
		if err != nil || string(got[:n]) != message {
			t.Errorf("read: %q, %v", got[:max(n, 0)], err)
		}
		if _, _, err := unix.Recvfrom(fd, got, unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("read again: %v", err)
		}
	}
	r.must(client.CloseWrite())
	if e := wait(patience); e != unix.EPOLLIN|unix.EPOLLRDHUP {
		t.Errorf("after the end: %#x", e)
	}
	if n, _, err := unix.Recvfrom(fd, got, 0); n != 0 || err != nil {
		t.Errorf("after the end: %d, %v", n, err)
	}
	// A reader of a part of a message gets the rest later.
	client, server = server, client
	if _, err := client.Write([]byte("abcdef")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ab", "cd", "ef"} {
		if _, err := io.ReadFull(server, got[:2]); err != nil || string(got[:2]) != want {
			t.Errorf("%q, %v; want %q", got[:2], err, want)
		}
	}
}

// TestWhatTheKernelCannotDo has what the kernel does otherwise for joined bytes; docs/design/network.md names
// these. If a kernel does one of them right, the document is to be changed.
func TestWhatTheKernelCannotDo(t *testing.T) {
	r, client, server := joined(t)
	fd := blocking(t, server)
	r.write(client, []byte("unread"))
	inQueue := func(what string) {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		t.Logf("FIONREAD (Java's available): %d of 6 bytes, %s", n, what)
		if err != nil || n != 0 && n != 6 {
			t.Errorf("FIONREAD: %d, %v", n, err)
		}
	}
	inQueue("joined")
	got := make([]byte, 16)
	if n, _, err := unix.Recvfrom(fd, got[:10], unix.MSG_WAITALL|unix.MSG_DONTWAIT); err != nil || string(got[:n]) != "unread" {
		t.Errorf("MSG_WAITALL: %q, %v", got[:max(n, 0)], err)
	}
	tcp, end := r.pair()
	if _, err := r.join.Release(func(c Connection) bool { return c.ID == cookie(t, tcp) }); err != nil {
		t.Fatal(err)
	}
	if _, err := tcp.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	joined := fd
	fd = blocking(t, end)
	inQueue("by TCP, of a socket that is in the map")
	fd = joined
	r.write(client, []byte("spliced"))
	var pipe [2]int
	r.must(unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	r.must(unix.SetNonblock(fd, true))
	n, err := unix.Splice(fd, nil, pipe[1], nil, 16, unix.SPLICE_F_NONBLOCK)
	t.Logf("splice from the socket: %d, %v", n, err)
	if n != 7 && !errors.Is(err, unix.EAGAIN) {
		t.Errorf("splice from the socket: %d, %v", n, err)
	}
	if n <= 0 {
		if _, err := io.ReadFull(server, got[:7]); err != nil || string(got[:7]) != "spliced" {
			t.Errorf("after splice: %q, %v", got[:7], err)
		}
	}
}

func TestHalfClose(t *testing.T) {
	r, client, server := joined(t)
	r.write(client, []byte("last words"))
	r.must(client.CloseWrite())
	if _, err := client.Write([]byte("more")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("a write after the end: %v", err)
	}
	all, err := io.ReadAll(server)
	if err != nil || string(all) != "last words" {
		t.Errorf("the server read %q, %v", all, err)
	}
	// The other direction goes on.
	for range 10 {
		if _, err := server.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
	}
	if c := r.found(client); c.Server.Bytes != 60 {
		t.Errorf("the direction that is open: %+v", c.Server)
	}
	r.must(server.Close())
	all, err = io.ReadAll(client)
	if err != nil || !bytes.Equal(all, bytes.Repeat([]byte("answer"), 10)) {
		t.Errorf("the client read %q, %v", all, err)
	}
}

func TestReset(t *testing.T) {
	r, client, server := joined(t)
	r.write(client, []byte("before the reset"))
	r.must(client.SetLinger(0))
	r.must(client.Close())
	got := make([]byte, 64)
	// As with TCP, the reader may get what arrived before the reset, and then the error.
	var all []byte
	var err error
	for err == nil {
		var n int
		n, err = server.Read(got)
		all = append(all, got[:n]...)
	}
	if !errors.Is(err, unix.ECONNRESET) || (len(all) > 0 && string(all) != "before the reset") {
		t.Errorf("read %q, then %v", all, err)
	}
	if _, err := server.Write([]byte("x")); err == nil {
		t.Error("a write after the reset succeeds")
	}
}

// TestSendfile sends as a DataNode does.
func TestSendfile(t *testing.T) {
	r, client, server := joined(t)
	content := make([]byte, 3<<20)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(content)
	path := filepath.Join(t.TempDir(), "block")
	r.must(os.WriteFile(path, content, 0o600))
	file, err := os.Open(path)
	r.must(err)
	defer file.Close()
	fd := blocking(t, client)
	sent, begin := make(chan error, 1), time.Now()
	go func() {
		for at := int64(0); at < int64(len(content)); {
			n, err := unix.Sendfile(fd, int(file.Fd()), &at, 64<<10)
			if err != nil || n == 0 {
				sent <- errors.Join(err, io.ErrUnexpectedEOF)
				return
			}
		}
		sent <- unix.Shutdown(fd, unix.SHUT_WR)
	}()
	all, err := io.ReadAll(server)
	if err := errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all, content) {
		t.Errorf("read %d bytes of %d, which differ", len(all), len(content))
	}
	c := r.found(client)
	t.Logf("%.0f %% joined, %d times full", 100*float64(c.Client.Bytes)/float64(len(content)), c.Client.Full)
	t.Logf("sent and read in %v", time.Since(begin))
	if c.Client.Bytes == 0 {
		t.Error("nothing was joined")
	}
}

// memory returns what the kernel has stored for the socket's reader, and its bound, in bytes.
func memory(t *testing.T, c *net.TCPConn) (used, bound uint32) {
	t.Helper()
	control(t, c, func(fd int) error {
		var info [9]uint32 // SK_MEMINFO_VARS
		size := uint32(len(info) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		used, bound = info[0], info[1]
		return nil
	})
	return used, bound
}

// stopped is the time for which a reader stops.
const stopped = 3 * time.Second

func TestAReaderThatHasStopped(t *testing.T) {
	for _, size := range []int{16, 100, 64 << 10} {
		t.Run(fmt.Sprintf("messages of %d", size), func(t *testing.T) { aReaderThatHasStopped(t, size) })
	}
}

func aReaderThatHasStopped(t *testing.T, size int) {
	r, client, server := joined(t)
	fd := blocking(t, client)
	r.must(unix.SetNonblock(fd, true))
	message := make([]byte, size)
	sent := 0
	// The sender writes until nothing has been taken for a while.
	for last := time.Now(); time.Since(last) < 500*time.Millisecond; {
		for i := range message {
			message[i] = byte((sent + i) % 251)
		}
		n, err := unix.Write(fd, message)
		switch {
		case errors.Is(err, unix.EAGAIN):
			time.Sleep(time.Millisecond)
		case err != nil:
			t.Fatal(err)
		default:
			sent += n
			last = time.Now()
		}
		if sent > 64<<20 {
			t.Fatalf("no bound, %d bytes sent", sent)
		}
	}
	used, bound := memory(t, server)
	c := r.found(client)
	t.Logf("%d sent, %d of them joined in %d messages; the reader's memory is %d of %d", sent, c.Client.Bytes, c.Client.Messages, used, bound)
	// TCP itself may exceed the buffer by a packet.
	if used > bound+(64<<10) {
		t.Errorf("%d bytes in a buffer of %d", used, bound)
	}
	if most := bound * share / 256; c.Client.Bytes+1024*c.Client.Messages > uint64(most) {
		t.Errorf("%d messages with %d bytes are joined, which is over %d", c.Client.Messages, c.Client.Bytes, most)
	}
	// After a long wait TCP asks more and more rarely whether the reader has room.
	time.Sleep(stopped)
	begin := time.Now()
	got := make([]byte, 32<<10)
	for read := 0; read < sent; {
		n, err := server.Read(got)
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", read, sent, err)
		}
		for i := range n {
			if got[i] != byte((read+i)%251) {
				t.Fatalf("byte %d of %d is wrong", read+i, sent)
			}
		}
		read += n
	}
	t.Logf("read after %v", time.Since(begin))
	if took := time.Since(begin); took > stopped/2 {
		t.Errorf("the rest took %v", took)
	}
	r.must(unix.SetNonblock(fd, false))
	r.ping(client, server, 10)
	if now := r.found(client); !now.Client.Joined {
		t.Error("the reader has read all, and the sender still uses TCP")
	}
}

// TestASignalDuringARead: a signal whose handler restarts calls does not lose bytes. The kernel may end the read with
// EAGAIN, which it does not with TCP; docs/design/network.md names it.
func TestASignalDuringARead(t *testing.T) {
	r, client, server := joined(t)
	r.ping(client, server, 10)
	fd := blocking(t, server)
	thread := make(chan int, 1)
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		got := make([]byte, 16)
		n, err := unix.Read(fd, got)
		done <- result{string(got[:max(n, 0)]), err}
	}()
	tid := <-thread
	for range 3 {
		time.Sleep(20 * time.Millisecond)
		r.must(unix.Tgkill(os.Getpid(), tid, unix.SIGURG)) // Go handles and ignores it
	}
	r.write(client, []byte("after signals"))
	select {
	case got := <-done:
		t.Logf("read: %q, %v", got.text, got.err)
		if errors.Is(got.err, unix.EAGAIN) {
			again := make([]byte, 16)
			n, err := unix.Read(fd, again)
			got = result{string(again[:max(n, 0)]), err}
		}
		if got.err != nil || got.text != "after signals" {
			t.Errorf("%q, %v", got.text, got.err)
		}
	case <-time.After(patience):
		t.Error("the reader does not return")
	}
}
