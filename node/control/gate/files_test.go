package gate

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lingering returns a descriptor whose last close waits, like the last close of a deleted file on a busy
// disk. It is a TCP socket with data that the peer does not read. end ends the wait, and so does the end of
// the test.
func lingering(t *testing.T) (fd int, end func()) {
	t.Helper()
	socket := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	listener := socket()
	defer unix.Close(listener)
	must(t, unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(listener, 1))
	at, err := unix.Getsockname(listener)
	must(t, err)
	fd = socket()
	must(t, unix.Connect(fd, at))
	peer, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	must(t, err)
	end = sync.OnceFunc(func() { must(t, unix.Close(peer)) }) // with unread data: a reset
	t.Cleanup(end)
	for data := make([]byte, 1<<20); err == nil; {
		err = unix.Sendto(fd, data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 600}))
	return fd, end
}

func keyOf(t *testing.T, fd int) fileKey {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	return fileKey{st.Dev, st.Ino}
}

// closing returns how many files wait to be closed, or are being closed.
func closing(c *fileCache) (n int) {
	c.closer.mu.Lock()
	defer c.closer.mu.Unlock()
	for _, files := range c.closer.waiting {
		n += len(files)
	}
	return n
}

// The heartbeat does not wait for the close of an unused file.
func TestAHeartbeatDoesNotWaitForACloseOfAFile(t *testing.T) {
	g := startGate(t, Options{Held: newHeld(t).take})
	fd, end := lingering(t)
	g.files.get(keyOf(t, fd), fd).Release()
	g.files.mu.Lock()
	for _, f := range g.files.files {
		f.used = time.Now().Add(-2 * fileLife)
	}
	g.files.mu.Unlock()
	until(t, "the heartbeat begins to close the file", func() bool { return closing(&g.files) == 1 })
	for range 4 { // each round needs 2 heartbeats; the gate opens when 5 are missing
		freshStats(t, g)
	}
	if s := g.Stats(); s.Openings != 0 || s.Open || g.Err() != nil {
		t.Errorf("the gate has opened: %+v, error %v", s, g.Err())
	}
	if n := closing(&g.files); n != 1 {
		t.Errorf("%d files are being closed: the close was to wait", n)
	}
	end()
	until(t, "the file is closed", func() bool { return closing(&g.files) == 0 })
}

// While as many files of a device as can be kept open wait to be closed, no further one is kept. The
// files of another device are kept and closed.
func TestBoundOfFilesThatWaitToBeClosed(t *testing.T) {
	var c fileCache
	take := func(fd int) *File { return c.get(keyOf(t, fd), fd) }
	slow, end := lingering(t)
	all := []*File{take(slow)}
	dev := all[0].key.dev
	for range maxFiles - 1 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		all = append(all, take(fd))
	}
	c.clear()
	if n := closing(&c); n != 0 {
		t.Errorf("%d files are being closed, and all are in use", n)
	}
	for _, f := range all[:maxFiles-1] {
		f.Release()
	}
	if c.closer.full(dev) {
		t.Errorf("full with %d files", maxFiles-1)
	}
	all[maxFiles-1].Release()
	if n := closing(&c); n != maxFiles || !c.closer.full(dev) {
		t.Errorf("%d files wait to be closed, want %d; full: %v", n, maxFiles, c.closer.full(dev))
	}
	further, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	if take(further) != nil {
		t.Error("a further file was kept")
	}
	if err := unix.Close(further); !errors.Is(err, unix.EBADF) {
		t.Errorf("the further file was not closed: %v", err)
	}

	other, err := unix.Open(filepath.Join(t.TempDir(), "file"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	must(t, err)
	f := take(other)
	if f == nil {
		t.Fatal("the file of another device was not kept")
	}
	f.Release()
	c.forget(f.key.dev)
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the other device's file is not closed: %v", err)
	}
	if n := closing(&c); n != maxFiles {
		t.Errorf("%d files wait to be closed, want %d", n, maxFiles)
	}
	begin := time.Now()
	c.closer.wait(time.Millisecond, dev)
	if waited := time.Since(begin); waited > patience/2 {
		t.Errorf("the wait for a device that does not answer took %v", waited)
	}
	end()
	c.closer.wait(patience)
	if n := closing(&c); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// If the daemon has too many open files to receive the file of an operation, the operation is allowed, also
// if the daemon has asked for the file. Later operations are held again.
func TestAnOperationWithoutItsFileIsAllowed(t *testing.T) {
	dir := disk(t, "ext4")
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take})
	must(t, g.Mark(dir))
	p := startHelper(t, nil, "steps", filepath.Join(dir, "file"), "write:1", "write:2", "write:3", "write:4")
	p.line()
	must(t, g.Classes([]Rule{{Class: 7, UID: AnyUser, PID: p.pid()}}))
	allowed := func(what string, count uint64) {
		t.Helper()
		p.begin()
		if got := p.line(); got != "write <nil>" {
			t.Errorf("%s: %s", what, got)
		}
		h.none(t, what)
		if n := g.Stats().LetGoFull; n != count {
			t.Errorf("%s: %d operations were let go, want %d", what, n, count)
		}
	}
	isHeld := func(what string) {
		t.Helper()
		p.begin()
		r := h.next(t)
		if r.File == nil {
			t.Errorf("%s: no file", what)
		}
		must(t, g.Allow(r.ID))
		p.line()
	}
	more := noMoreFiles(t)
	allowed("the first operation", 1)
	more()
	isHeld("the second operation")
	h.release()
	g.files.clear() // the gate process does not know that
	more = noMoreFiles(t)
	allowed("the third operation", 2)
	more()
	isHeld("the fourth operation")
}

// noMoreFiles forbids this process to open files, until the returned function is called or the test
// ends.
func noMoreFiles(t *testing.T) (more func()) {
	t.Helper()
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	more = sync.OnceFunc(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	t.Cleanup(more)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	return more
}

// The file of one request is asked for once.
func TestAFileIsAskedForOnce(t *testing.T) {
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take})
	g.conn.Close() // so that the test alone calls request, and each answer is an error
	<-g.Done()
	letGo := func(id uint64, lost bool) uint64 {
		before := g.Stats().LetGoFull
		frame := appendRequest(nil, &Request{ID: id, Op: Write})
		if err := g.request(frame[1:], -1, lost); err == nil {
			t.Error("the gate process has ended, and an answer was sent")
		}
		return g.Stats().LetGoFull - before
	}
	for i, want := range []struct {
		id    uint64
		lost  bool
		letGo uint64
	}{
		{maxHeld, false, 0}, {maxHeld, false, 1}, {maxHeld + 1, false, 0}, {2 * maxHeld, false, 0},
		{maxHeld + 1, false, 1}, {2 * maxHeld, false, 1}, {3*maxHeld - 1, true, 1},
	} {
		if n := letGo(want.id, want.lost); n != want.letGo {
			t.Errorf("frame %d, %+v: %d let go", i, want, n)
		}
	}
	h.none(t, "a request without a file")
}
