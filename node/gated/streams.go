package gated

import (
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	maxStreams = 4096 // of all threads and files; the least recently used one is closed
	// maxLooks is how many streams of a file are searched for one that an operation continues.
	maxLooks = 64
)

// file identifies a process's access to a file in one direction.
type file struct {
	device, inode uint64
	pid           int
	write         bool
}

// key identifies a thread's access to a file in one direction.
type key struct {
	file
	tid int
}

// streams are all open streams. Each is found by the thread that it is assigned to, and by its file.
type streams struct {
	recent  *simplelru.LRU[*stream, struct{}] // in the order of their last use
	threads map[key]*stream
	files   map[file][]*stream
}

func newStreams() *streams {
	s := &streams{threads: map[key]*stream{}, files: map[file][]*stream{}}
	s.recent, _ = simplelru.NewLRU(maxStreams, func(st *stream, _ struct{}) { s.forget(st); st.end() }) // fails for a size of 0 only
	return s
}

// find returns the stream of an operation, or nil. If the operation does not continue its thread's stream, find looks
// for a stream of the same process, file and flow that it continues and on which no operation waits. It then exchanges
// the streams of the two threads. This serves pools of threads, as in Go's and Java's runtimes, in which any thread
// reads a file's next bytes. If no stream continues, find returns the thread's own stream.
func (s *streams) find(k key, op Operation) *stream {
	own := s.threads[k]
	if own == nil || !own.continues(op) {
		all := s.files[k.file]
		for _, st := range all[:min(len(all), maxLooks)] {
			if st != own && st.flow == op.Flow && st.continues(op) && !st.part.waits() {
				s.swap(own, st, k)
				own = st
				break
			}
		}
	}
	if own != nil {
		s.recent.Get(own)
	}
	return own
}

// swap gives a thread, whose stream is own, the stream of another thread. The other thread gets own, which may be nil.
func (s *streams) swap(own, other *stream, k key) {
	left := other.key
	other.key = k
	s.threads[k] = other
	if own == nil {
		delete(s.threads, left)
		return
	}
	own.key = left
	s.threads[left] = own
}

// add adds a thread's stream. If there are too many, the least recently used one ends.
func (s *streams) add(st *stream) {
	s.threads[st.key] = st
	s.files[st.key.file] = append(s.files[st.key.file], st)
	s.recent.Add(st, struct{}{})
}

// remove removes a stream and ends it.
func (s *streams) remove(st *stream) { s.recent.Remove(st) }

func (s *streams) forget(st *stream) {
	delete(s.threads, st.key)
	left := s.files[st.key.file]
	if at := slices.Index(left, st); at >= 0 {
		left = slices.Delete(left, at, at+1)
	}
	if s.files[st.key.file] = left; len(left) == 0 {
		delete(s.files, st.key.file)
	}
}
