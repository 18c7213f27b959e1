package device

import (
	"time"

	"penstock/core/arbiter"
	"penstock/node/blockfile"
)

// File holds the methods of a block or meta file that the loop needs; blockfile.File implements
// it.
type File interface {
	Query(off, length int64) (blockfile.Pages, error)
	Stage(off, length int64) error
	Drain(off, length int64) error
	Deleted() bool
	Size() (int64, error)
	// Space returns the bytes that the file occupies on its file system, including bytes not
	// written out yet.
	Space() (int64, error)
	Close() error
}

// Marker sends marks to the agent. It is called in the loop's goroutine and must not block.
// Streams with the same Marker belong to one connection.
type Marker interface {
	Mark(stream uint32, position int64)
}

// OpenRequest describes a stream that an agent has opened.
type OpenRequest struct {
	Marker   Marker
	ID       uint32
	Flow     string
	User     string // of the operation, from a block token or the process; streams of one user share a turn
	Kind     Kind
	Write    bool
	Remote   bool          // the bytes go to another machine or come from one
	Block    File          // nil for a network device
	Meta     File          // nil if there is none
	Asked    bool          // the flow is a claim that is being verified; Reassign follows
	From, To int64         // offsets in the block file; To is set for reads and for sent data (0: not known)
	Patience time.Duration // the longest wait that the client accepts; 0: not known

	// Refusable reports whether the agent can still refuse the operation, as HDFS itself does when
	// all of its threads are busy. Threads is the number of threads that the agent's process has
	// for operations.
	Refusable bool
	Threads   int

	// Turn is set if the agent does the I/O itself, through a storage server on this machine. Block
	// then waits in Stage and Drain until the agent has done it.
	Turn bool

	// Passing is set if the agent does not wait for the marks of a small read.
	Passing bool

	// Closed, if not nil, is called when the agent ends the stream. The stream's files may be open
	// for longer, until what it wrote is on the device. It may be called more than once.
	Closed func()
}

// Stream is one operation of an agent's process on one file.
type Stream struct {
	OpenRequest
	loop    *Loop
	missing []int64         // of a read: the bytes of each quantum that were not resident when the stream was opened
	at      *arbiter.Stream // the arbiter's stream; only for the loop's goroutine
	news    news            // protected by the mailbox's lock
}

// Progress is Loop.Progress for this stream.
func (s *Stream) Progress(pos int64) { s.loop.Progress(s, pos) }

// Close is Loop.Close for this stream.
func (s *Stream) Close(pos int64) { s.loop.Close(s, pos) }

// facts answers the arbiter's questions about a file. An error counts as the least favourable
// answer.
type facts struct{ File }

// Missing implements arbiter.File.
func (f facts) Missing(off, length int64) int64 {
	pages, err := f.Query(off, length)
	if err != nil {
		return length
	}
	span := (off+length+pageBytes-1)/pageBytes*pageBytes - off/pageBytes*pageBytes
	return min(length, max(0, span-pages.Resident))
}

// Saved implements arbiter.File.
func (f facts) Saved(off, length int64) int64 {
	size, err := f.Size()
	if err != nil {
		return 0
	}
	if length = min(length, size-off); length <= 0 {
		return 0
	}
	return length - f.unsaved(off, length)
}

// unsaved returns how many bytes of a range the device does not have yet.
func (f facts) unsaved(off, length int64) int64 {
	pages, err := f.Query(off, length)
	if err != nil {
		return length
	}
	return min(length, pages.Unsaved)
}

// Written implements arbiter.File. A file may have any size, but it occupies space only for bytes
// that were written.
func (f facts) Written() (int64, bool) {
	size, err := f.Size()
	if err != nil {
		return 0, false
	}
	space, err := f.Space()
	if err != nil {
		return 0, false
	}
	return min(size, space), true
}

const pageBytes = 4096

// missingAtOpen returns how many bytes of each quantum of [from, to) are not resident. It runs
// outside of the loop, since it makes one system call per quantum.
func missingAtOpen(f File, from, to, quantum int64) []int64 {
	const bound = 4096 // in quanta; the range beyond counts as resident at open
	var missing []int64
	for off := from; off < to && len(missing) < bound; off += quantum {
		missing = append(missing, facts{f}.Missing(off, min(quantum, to-off)))
	}
	return missing
}

// closeFiles closes the files without waiting. The last close of a file that HDFS has
// deleted frees its blocks, which is device I/O, and the loop must not wait for it.
func (s *Stream) closeFiles() {
	if s.Block == nil {
		return
	}
	go func() {
		s.Block.Close()
		if s.Meta != nil {
			s.Meta.Close()
		}
	}()
}
