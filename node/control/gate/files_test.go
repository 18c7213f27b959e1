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

// lingering returns a descriptor whose last close waits, as that of a deleted file does while its disk
// is busy: a TCP socket with data that the peer does not read. end ends the wait; the end of the test
// does so too.
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

// A close that waits, of a file that is no longer used, does not stop the heartbeat.
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
	for range 4 { // each needs 2 heartbeats; the gate opens after 5 that are missing
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
