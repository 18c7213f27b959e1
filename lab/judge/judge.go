// Package judge determines how much of a disk each owner got. Its evidence is independent: the
// modelled disk's request log, and the kernel's map of files' extents (FIEMAP). It uses nothing
// that Penstock reports, so it can verify Penstock's shares and Penstock's own accounts.
//
// Problem: a request names a place on the device, and the owner of a place changes. Files are
// created, renamed and deleted, and their blocks are reused. So the Watcher records the layout
// repeatedly, and a request is looked up in the layouts before and after it. A write belongs to the
// owner of the place in the layout *after* the write, because blocks get their place when they are
// written. A read belongs to the owner in the layout *before* the read. If the place has no owner
// in that layout, the neighbouring layouts decide. A file that is created and deleted between two
// layouts is not seen, and its bytes are attributed to the file system. Choose an interval well
// below the lifetime of the files that matter, or call Watcher.Look at the right moments.
//
// Bytes outside of files belong to the file system: journal, inodes and bitmaps. If a request spans
// several owners, its service is divided in proportion to their bytes.
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

// FileSystem is the owner of bytes that belong to no file.
const FileSystem = "filesystem"

// Owner returns the owner of a file, such as an application or a kind of file. Its argument is the
// path below the watched root. "" means FileSystem.
type Owner func(path string) string

// Watcher records the layout of a file system's files over time.
type Watcher struct {
	root string

	mu      sync.Mutex
	known   map[string]mappedFile
	layouts []layout
}

// layoutsMax bounds the recorded layouts. Of equal successive layouts only the first and the last
// are kept. Beyond the bound every second layout is dropped, so the early times become coarser.
const layoutsMax = 4096

// NewWatcher returns a Watcher of the file system mounted at root, which must be on one device.
func NewWatcher(root string) *Watcher {
	return &Watcher{root: filepath.Clean(root)}
}

// Look records the current layout. Dirty pages may have no place yet; a later Look will see them.
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
		// Nothing has moved meanwhile, so the first and the last of the equal layouts are enough.
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

// Run calls Look at every interval until ctx ends, and once more at the end.
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

// find returns the file that owned the byte at the offset "from" when the request ended, at the
// time "at". The answer is valid for the bytes before the offset "until", which is at most "to".
func (w *Watcher) find(op disk.Op, at, from, to int64) (path string, until int64) {
	after := sort.Search(len(w.layouts), func(i int) bool { return w.layouts[i].at >= at })
	// The layouts just before and just after the request are tried first. Their neighbours help if a
	// scan missed a file because the file was renamed from one folder to another during the scan.
	order := [4]int{after - 1, after, after - 2, after + 1} // for a read: first the layout before, then the one after
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

// Usage is an owner's use of the disk.
type Usage struct {
	ReadBytes, WriteBytes int64
	Requests              int64 // requests with at least one byte of the owner
	Service               time.Duration
}

// Bytes returns the number of bytes read and written.
func (u Usage) Bytes() int64 { return u.ReadBytes + u.WriteBytes }

// Window is a time span on the request log's clock. It does not include To.
type Window struct{ From, To int64 }

// Account contains the usage of every owner within a window.
type Account struct {
	Window Window
	Owners map[string]Usage
}

// Total returns the sum over all owners. In its Requests, a request counts once for each of its
// owners.
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

// Judge returns every owner's usage in each window. A request belongs to the window in which it
// ended. Windows may overlap.
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

// split returns the number of bytes of a request for each owner.
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

// Windows divides a span into windows of the given length. It omits a shorter rest at the end.
func Windows(span Window, length time.Duration) []Window {
	var windows []Window
	for from := span.From; from+int64(length) <= span.To; from += int64(length) {
		windows = append(windows, Window{from, from + int64(length)})
	}
	return windows
}

// Disk judges a disk by its log and by the current layout of its files.
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
		return records, fmt.Errorf("the request log has reached its bound, and %d requests are missing: raise LogBytesMax: %w",
			records[n-1].Length, os.ErrInvalid)
	}
	return records, nil
}
