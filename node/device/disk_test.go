package device

import (
	"sync"
	"time"

	"penstock/node/blockfile"
)

// modelDisk is a device in virtual time: one head, one request at a time in the order of arrival,
// and a seek before each request that does not follow the last one. It replaces the disk so that
// the loop's decisions can be tested in bubbles of testing/synctest. The real system calls are
// tested in blockfile and, on a modelled disk, end to end.
type modelDisk struct {
	mu     sync.Mutex
	rate   int64 // bytes per second
	seek   time.Duration
	free   time.Time // when the head is free
	file   *modelFile
	end    int64
	served map[string]int64
	log    []served
	hang   chan struct{} // while it is set, requests do not end
	slow   float64       // how many times slower than normal; 0 means 1
	done   Counters
}

type served struct {
	name   string
	offset int64
	length int64
	at     time.Time
}

func newModelDisk(rate int64, seek time.Duration) *modelDisk {
	return &modelDisk{rate: rate, seek: seek, served: map[string]int64{}}
}

func (d *modelDisk) do(f *modelFile, write bool, off, length int64) {
	d.mu.Lock()
	hang := d.hang
	now := time.Now()
	start := now
	if d.free.After(start) {
		start = d.free
	}
	took := time.Duration(float64(length) / float64(d.rate) * float64(time.Second))
	if d.file != f || d.end != off {
		took += d.seek
	}
	if d.slow > 0 {
		took = time.Duration(float64(took) * d.slow)
	}
	d.file, d.end = f, off+length
	d.free = start.Add(took)
	d.served[f.name] += length
	d.log = append(d.log, served{f.name, off, length, d.free})
	wait := d.free.Sub(now)
	d.mu.Unlock()
	time.Sleep(wait) // virtual
	d.mu.Lock()
	d.done.Add(write, length)
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

// slower makes the disk that many times slower than normal.
func (d *modelDisk) slower(times float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = times
}

// counters returns the kernel's counters of the disk.
func (d *modelDisk) counters() (Counters, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done, true
}

func (d *modelDisk) total(name string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.served[name]
}

// modelFile is a file on the disk, with a page cache of its own.
type modelFile struct {
	disk    *modelDisk
	name    string
	mu      sync.Mutex
	size    int64
	cached  map[int64]bool // by page
	dirty   map[int64]bool
	deleted bool
	sparse  bool // the file occupies only the pages that it has
	closed  int
	fail    error
}

func (d *modelDisk) newFile(name string, size int64) *modelFile {
	return &modelFile{disk: d, name: name, size: size, cached: map[int64]bool{}, dirty: map[int64]bool{}}
}

func (f *modelFile) pages(off, length int64, do func(page int64)) {
	for p := off / pageBytes; p*pageBytes < min(off+length, f.size); p++ {
		do(p)
	}
}

func (f *modelFile) write(off, length int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = max(f.size, off+length)
	f.pages(off, length, func(p int64) { f.cached[p], f.dirty[p] = true, true })
}

func (f *modelFile) fill(off, length int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages(off, length, func(p int64) { f.cached[p] = true })
}

func (f *modelFile) clean(off, length int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages(off, length, func(p int64) { delete(f.dirty, p) })
}

func (f *modelFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted = true
}

func (f *modelFile) Query(off, length int64) (blockfile.Pages, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out blockfile.Pages
	f.pages(off, length, func(p int64) {
		if f.cached[p] {
			out.Resident += pageBytes
		}
		if f.dirty[p] {
			out.Unsaved += pageBytes
		}
	})
	return out, nil
}

func (f *modelFile) Stage(off, length int64) error {
	if f.fail != nil {
		return f.fail
	}
	f.disk.do(f, false, off, length)
	f.fill(off, length)
	return nil
}

func (f *modelFile) Drain(off, length int64) error {
	f.disk.do(f, true, off, length)
	f.clean(off, length)
	return nil
}

func (f *modelFile) Deleted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deleted
}

func (f *modelFile) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size, nil
}

func (f *modelFile) Space() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sparse {
		return int64(len(f.cached)) * pageBytes, nil
	}
	return f.size, nil
}

func (f *modelFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

func (f *modelFile) timesClosed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}
