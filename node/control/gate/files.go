package gate

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFiles is the number of files that the daemon keeps open for later requests.
	maxFiles = 1024
	// fileLife is how long an unused file is kept open. Until then, a deleted file still uses space.
	fileLife = 5 * time.Second
)

// File is an open file of a request.
type File struct {
	*os.File
	refs  atomic.Int32
	key   fileKey
	used  time.Time // by the cache, under its lock
	cache *fileCache
}

// Keep keeps the file valid until Release is called once more. It returns f.
func (f *File) Keep() *File {
	f.refs.Add(1)
	return f
}

// Release ends the effect of one call of Keep. It does not wait for the file to be closed.
func (f *File) Release() {
	if f.refs.Add(-1) == 0 {
		f.cache.closer.close(f.key.dev, f.File)
	}
}

// closer closes files, in one goroutine for each device. The last close of a deleted file frees the
// file's blocks, which may have to wait for the device or for the thawing of the file system. The daemon's
// heartbeat must not wait for that.
type closer struct {
	mu      sync.Mutex
	waiting map[uint64][]*os.File // by device; an entry has a goroutine
	none    map[uint64]chan struct{}
}

// close closes a file. It does not wait.
func (c *closer) close(dev uint64, f *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.none[dev] == nil {
		if c.none == nil {
			c.none, c.waiting = map[uint64]chan struct{}{}, map[uint64][]*os.File{}
		}
		c.none[dev] = make(chan struct{})
		go c.run(dev)
	}
	c.waiting[dev] = append(c.waiting[dev], f)
}

// run closes the files of a device, and ends when there are no more.
func (c *closer) run(dev uint64) {
	for {
		c.mu.Lock()
		files := c.waiting[dev]
		if len(files) == 0 {
			close(c.none[dev])
			delete(c.none, dev)
			delete(c.waiting, dev)
			c.mu.Unlock()
			return
		}
		f := files[0]
		c.mu.Unlock()
		f.Close()
		c.mu.Lock()
		c.waiting[dev] = c.waiting[dev][1:]
		c.mu.Unlock()
	}
}

// full reports whether maxFiles files of a device wait to be closed.
func (c *closer) full(dev uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting[dev]) >= maxFiles
}

// wait waits until the files of all devices, or of those given, are closed, but not longer than limit.
func (c *closer) wait(limit time.Duration, devs ...uint64) {
	c.mu.Lock()
	var none []chan struct{}
	for dev, done := range c.none {
		if len(devs) == 0 || slices.Contains(devs, dev) {
			none = append(none, done)
		}
	}
	c.mu.Unlock()
	late := time.NewTimer(limit)
	defer late.Stop()
	for _, done := range none {
		select {
		case <-done:
		case <-late.C:
			return
		}
	}
}

// fileCache contains the files of the last requests, so that the gate process sends a descriptor once per
// file and not once per request. The kernel does not use the inode number of an open file again, so a key
// means one file.
type fileCache struct {
	mu     sync.Mutex
	files  map[fileKey]*File
	swept  time.Time
	closer closer
}

// get returns the file of a request, kept for the caller. fd is the descriptor that came with the
// request, or -1. It returns nil if the file is unknown, and if too many files of its device wait to
// be closed.
func (c *fileCache) get(key fileKey, fd int) *File {
	var sent *os.File
	if fd >= 0 {
		sent = os.NewFile(uintptr(fd), "file of a held process")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.files[key]; known != nil {
		if sent != nil {
			sent.Close() // other descriptors of this file are open, so that this close does not wait
		}
		known.used = time.Now()
		return known.Keep()
	}
	if sent == nil {
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if c.closer.full(key.dev) {
		sent.Close() // the gate process has the file open while the operation waits
		return nil
	}
	if err != nil || (fileKey{st.Dev, st.Ino}) != key {
		c.closer.close(key.dev, sent) // the operation passed while its file was sent
		return nil
	}
	f := &File{File: sent, key: key, used: time.Now(), cache: c}
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

// forget closes the files of a device, so that its file system can be unmounted. It waits for a limited time
// until they are closed.
func (c *fileCache) forget(dev uint64) {
	c.mu.Lock()
	c.drop(func(key fileKey, _ *File) bool { return key.dev == dev })
	c.mu.Unlock()
	c.closer.wait(callLimit, dev)
}

// clear begins to close all files. It does not wait.
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
