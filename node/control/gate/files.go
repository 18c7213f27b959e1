package gate

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFiles is the number of files that the daemon keeps open for later requests.
	maxFiles = 1024
	// fileLife is how long an unused file is kept open. A deleted file uses space until then.
	fileLife = 5 * time.Second
)

// File is an open file of a request.
type File struct {
	*os.File
	refs atomic.Int32
	used time.Time // by the cache, under its lock
}

// Keep makes the file valid until a further call of Release. It returns f.
func (f *File) Keep() *File {
	f.refs.Add(1)
	return f
}

// Release ends the validity that Keep has given.
func (f *File) Release() {
	if f.refs.Add(-1) == 0 {
		f.File.Close()
	}
}

// fileCache contains the files of the last requests, so that a descriptor is sent once per file and
// not once per request. A file that is open keeps its inode number, so a key means one file.
type fileCache struct {
	mu    sync.Mutex
	files map[fileKey]*File
	swept time.Time
}

// get returns the file of a request, kept for the caller. fd is the descriptor that came with the
// request, or -1. It returns nil if the file is unknown.
func (c *fileCache) get(key fileKey, fd int) *File {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.files[key]; known != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		known.used = time.Now()
		return known.Keep()
	}
	if fd < 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || (fileKey{st.Dev, st.Ino}) != key {
		unix.Close(fd) // the operation has been let go while its file was sent
		return nil
	}
	f := &File{File: os.NewFile(uintptr(fd), "file of a held process"), used: time.Now()}
	f.refs.Store(2)
	if c.files == nil {
		c.files = map[fileKey]*File{}
	}
	if len(c.files) >= maxFiles {
		c.dropOldest()
	}
	c.files[key] = f
	return f
}

func (c *fileCache) dropOldest() {
	var oldest fileKey
	var at time.Time
	for key, f := range c.files {
		if at.IsZero() || f.used.Before(at) {
			oldest, at = key, f.used
		}
	}
	c.drop(func(key fileKey, _ *File) bool { return key == oldest })
}

func (c *fileCache) drop(chosen func(fileKey, *File) bool) {
	for key, f := range c.files {
		if chosen(key, f) {
			delete(c.files, key)
			f.Release()
		}
	}
}

// sweep closes files that have not been used for a while, about once a second.
func (c *fileCache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.swept) < time.Second {
		return
	}
	c.swept = now
	c.drop(func(_ fileKey, f *File) bool { return now.Sub(f.used) > fileLife })
}

// forget closes the files of a device, so that it can be unmounted.
func (c *fileCache) forget(dev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(func(key fileKey, _ *File) bool { return key.dev == dev })
}

func (c *fileCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(func(fileKey, *File) bool { return true })
}

// tail keeps the first bytes of what the two processes write to their standard error.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[:min(len(p), maxErrors-len(t.kept))]...)
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
