// Package judge says how much of a disk each owner got, from independent evidence: the request log of
// the modelled disk, and the kernel's map of files' extents (FIEMAP). Nothing that Penstock reports
// goes in, so Penstock's shares and its own account can be verified.
//
// Problem: a request names a place on the device, and places change owners. Files are created, renamed
// and deleted, and their blocks are reused. So the Watcher records the layout repeatedly, and a
// request is looked up in the layouts before and after it. A write belongs to the owner of the place
// *after* it, because blocks get their place when they are written. A read belongs to the owner
// *before* it. If that layout has no owner, the neighbouring layouts decide. A file that is created
// and deleted between two layouts is not seen, and its bytes count as the file system's. Choose the
// interval well below the lifetime of the files that matter, or call Watcher.Look at the right moments.
//
// Bytes outside of files belong to the file system: journal, inodes, bitmaps. The service of a request
// that spans several owners is split by bytes.
package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"penstock/lab/disk"
)

// FileSystem owns what belongs to no file.
const FileSystem = "filesystem"

// Owner names the owner of a file: an application, a kind of file. It is given
// the path below the watched root. "" counts as FileSystem.
type Owner func(path string) string

// Watcher records where a file system's files lie, over time.
type Watcher struct {
	root string

	mu      sync.Mutex
	known   map[string]mappedFile
	layouts []layout
}

// layoutsMax bounds the recorded layouts; equal ones are kept once. Past it
// every second one is dropped, so that old times become coarser.
const layoutsMax = 4096

// NewWatcher watches the file system mounted at root, all of it on one device.
func NewWatcher(root string) *Watcher {
	return &Watcher{root: filepath.Clean(root)}
}

// Look records where the files lie now. Pages that are still to be written have
// no place yet; a later Look sees them.
func (w *Watcher) Look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	files, err := scan(w.root, w.known)
	if err != nil {
		return fmt.Errorf("look at the files below %s: %w", w.root, err)
	}
	w.known = files
	next := newLayout(disk.Monotonic(), files)
	w.layouts = append(w.layouts, next)
	if n := len(w.layouts); n >= 3 && equal(w.layouts[n-1], w.layouts[n-2]) && equal(w.layouts[n-2], w.layouts[n-3]) {
		// Nothing has moved in between: the first and the last say it all.
		w.layouts[n-2] = next
		w.layouts = w.layouts[:n-1]
	}
	if len(w.layouts) > layoutsMax {
		kept := w.layouts[:0]
		for i, l := range w.layouts {
			if i%2 == 0 || i == len(w.layouts)-1 {
				kept = append(kept, l)
			}
		}
		w.layouts = kept
	}
	return nil
}

func equal(a, b layout) bool {
	if len(a.extents) != len(b.extents) {
		return false
	}
	for i := range a.extents {
		if a.extents[i] != b.extents[i] {
			return false
		}
	}
	return true
}

// Run looks at every interval until ctx ends, and once more then.
func (w *Watcher) Run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := w.Look(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return w.Look()
		case <-tick.C:
		}
	}
}

// find names the file that a place belonged to when the request was made.
func (w *Watcher) find(op disk.Op, at, from, to int64) (path string, until int64) {
	after := sort.Search(len(w.layouts), func(i int) bool { return w.layouts[i].at >= at })
	// The next ones but one help where a look missed a file that was renamed
	// from one folder to another while it went through them.
	order := [4]int{after - 1, after, after - 2, after + 1} // a read: before, then after
	if op == disk.Write {
		order = [4]int{after, after - 1, after + 1, after - 2}
	}
	until = to
	for _, i := range order {
		if i < 0 || i >= len(w.layouts) {
			continue
		}
		path, owned, end := w.layouts[i].find(from, until)
		until = end
		if owned {
			return path, until
		}
	}
	return "", until
}

// Usage is what an owner got of the disk.
type Usage struct {
	ReadBytes, WriteBytes int64
	Requests              int64 // requests with at least one byte of the owner
	Service               time.Duration
}

// Bytes are those read and written.
func (u Usage) Bytes() int64 { return u.ReadBytes + u.WriteBytes }

// Window is a span of time on the request log's clock; To is not part of it.
type Window struct{ From, To int64 }

// Account is what every owner got within a window.
type Account struct {
	Window Window
	Owners map[string]Usage
}

// Total is the sum over all owners; its Requests count one for each owner of a
// request.
func (a Account) Total() Usage {
	var total Usage
	for _, u := range a.Owners {
		total.ReadBytes += u.ReadBytes
		total.WriteBytes += u.WriteBytes
		total.Requests += u.Requests
		total.Service += u.Service
	}
	return total
}

// Judge says who got what in each window. A request belongs to the window in
// which it ended. Windows may overlap.
func (w *Watcher) Judge(records []disk.Record, owner Owner, windows ...Window) []Account {
	w.mu.Lock()
	defer w.mu.Unlock()
	accounts := make([]Account, len(windows))
	for i, window := range windows {
		accounts[i] = Account{Window: window, Owners: map[string]Usage{}}
	}
	for _, r := range records {
		if r.Op != disk.Read && r.Op != disk.Write {
			continue
		}
		var parts map[string]int64
		for i, window := range windows {
			if r.Ended < window.From || r.Ended >= window.To {
				continue
			}
			if parts == nil {
				parts = w.split(r, owner)
			}
			accounts[i].add(r, parts)
		}
	}
	return accounts
}

// split says how many bytes of a request are whose.
func (w *Watcher) split(r disk.Record, owner Owner) map[string]int64 {
	parts := map[string]int64{}
	for at, end := r.Offset, r.Offset+r.Length; at < end; {
		path, until := w.find(r.Op, r.Ended, at, end)
		name := ""
		if path != "" {
			if below, err := filepath.Rel(w.root, path); err == nil {
				name = owner(below)
			}
		}
		if name == "" {
			name = FileSystem
		}
		parts[name] += until - at
		at = until
	}
	return parts
}

func (a *Account) add(r disk.Record, parts map[string]int64) {
	for name, bytes := range parts {
		u := a.Owners[name]
		u.Requests++
		u.Service += time.Duration(float64(r.Service) * float64(bytes) / float64(r.Length))
		if r.Op == disk.Read {
			u.ReadBytes += bytes
		} else {
			u.WriteBytes += bytes
		}
		a.Owners[name] = u
	}
}

// Windows cuts a span into windows of the given length; a shorter rest at its
// end is left out.
func Windows(span Window, length time.Duration) []Window {
	var windows []Window
	for from := span.From; from+int64(length) <= span.To; from += int64(length) {
		windows = append(windows, Window{from, from + int64(length)})
	}
	return windows
}

// Disk judges by a disk's log, and by where its files lie now.
func Disk(d *disk.Disk, owner Owner, windows ...Window) ([]Account, error) {
	records, err := ReadLog(d)
	if err != nil {
		return nil, err
	}
	w := NewWatcher(d.Mount())
	if err := w.Look(); err != nil {
		return nil, err
	}
	return w.Judge(records, owner, windows...), nil
}

// ReadLog brings a disk's log up to date and reads it.
func ReadLog(d *disk.Disk) ([]disk.Record, error) {
	if err := d.SyncLog(); err != nil {
		return nil, err
	}
	_, records, err := disk.ReadLog(d.LogPath())
	if err != nil {
		return nil, err
	}
	if n := len(records); n > 0 && records[n-1].Op == disk.Lost {
		return records, fmt.Errorf("the request log reached its bound: %d requests are missing; make it larger: %w",
			records[n-1].Length, os.ErrInvalid)
	}
	return records, nil
}
