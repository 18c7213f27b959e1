// Package access plans streams for a thread that announces one file operation at a time.
//
// The scheduler works with streams: a range of a file that is read or written from its beginning to
// its end. An agent knows the range when it opens a block. Of a process without an agent, only the
// next operation is known. This package decides whether an operation continues the thread's last stream, and
// how far a new stream reaches.
//
// A stream that is too long reads bytes that nobody wants. A stream that is too short makes the
// thread wait at each operation, and makes the disk seek for each small request. So the package works as the
// kernel's own readahead: it starts with a small stream, and takes larger ones while the thread reads
// sequentially, finally the rest of the file. (The scheduler stages only a few quanta ahead of the thread, so a
// long stream wastes no more than these.) It treats an operation at another offset as random: the stream then has
// the bytes of that operation only.
//
// The package is pure.
package access

const (
	firstWindow = 1 << 20 // bytes; the first stream of a thread that reads sequentially
	growth      = 4       // ratio of a stream's size to that of the last one
	lastWindow  = 4 << 20 // bytes; after a stream of this size, one has all that is left of the file
)

// Reads is the state of a thread that reads a file. The zero value is a thread that has not read.
type Reads struct {
	begun  bool
	last   int64 // where the last operation began
	end    int64 // where it ended
	to     int64 // end of the stream
	window int64 // bytes of a sequential stream; 0 after a random operation
}

// Next plans a read of length bytes at off from a file of size bytes. staged is the position up to
// which the present stream is staged; the thread may have read up to there without an announcement,
// because reads of resident bytes are not announced. Next returns the end of the stream. fresh means
// that a new stream [off, to) replaces the present one.
func (r *Reads) Next(off, length, staged, size int64) (to int64, fresh bool) {
	end := min(off+length, size)
	follows := r.Follows(off, staged)
	switch {
	case follows && end <= r.to:
		r.last, r.end = off, end
		return r.to, false
	case follows && r.window >= lastWindow:
		r.window = max(size-off, lastWindow)
	case follows || !r.begun && off == 0:
		r.window = max(growth*r.window, firstWindow)
	default:
		r.window = 0
	}
	r.begun, r.last, r.end = true, off, end
	r.to = max(end, min(off+r.window, size))
	return r.to, true
}

// Follows reports whether a read at off continues the present stream. staged has the same meaning as in Next.
func (r *Reads) Follows(off, staged int64) bool {
	return r.begun && off >= r.last && off <= max(r.end, min(staged, r.to))
}

// Writes is the state of a thread that writes a file. The zero value is a thread that has not written.
type Writes struct {
	begun bool
	end   int64
}

// Next plans a write of length bytes at off. fresh means that a new stream, which begins at
// off, replaces the present one.
func (w *Writes) Next(off, length int64) (fresh bool) {
	fresh = !w.Follows(off)
	w.begun, w.end = true, off+length
	return fresh
}

// Follows reports whether a write at off continues the present stream.
func (w *Writes) Follows(off int64) bool { return w.begun && off == w.end }

// Room returns the position that the mark must reach before a write of length bytes at off may pass.
// A long write passes when the scheduler has granted a part of it. The next write then waits for the
// rest.
func Room(off, length int64) int64 { return off + min(length, leastRoom) }

// leastRoom is the part of a long write, in bytes, that must be granted before the write may pass. It
// equals the smallest lease that the arbiter grants, one HDFS packet.
const leastRoom = 64 << 10
