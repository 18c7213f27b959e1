package arbiter

import "time"

// streamQueue selects a stream of a flow when the flow is selected.
//
// While both reads and writes of a flow are queued, each direction gets half of the flow's device
// time. Within each direction, users have equal shares of device time, and a user's streams have
// equal shares of the user's time. So larger quanta or more files gain nothing, and a writer beside
// a hundred readers gets half of the flow's time. Each of the three levels is an SFQ with weights
// of 1, as in package sfq: the smallest start tag goes first, and a member that returns begins at
// the virtual time.
//
// A selected file is served for a while (Config.Run, RunTime), so that the flow's own files do not
// cause a seek after every quantum. The file is charged for this service, so the other files catch
// up afterwards.
type streamQueue struct {
	dirs [2]directionQueue // reads, writes
	v    int64             // virtual time of the directions

	last  *Stream       // the last selected stream
	run   int64         // bytes served to the last stream in a row
	since time.Duration // when the last stream's run began
}

// directionQueue contains the queued streams of one direction, by user.
type directionQueue struct {
	tag      int64
	v        int64
	users    indexedHeap[*userQueue] // users with queued streams
	byName   map[string]*userQueue
	departed []*userQueue // users without streams whose tags are ahead of v, at most maxDeparted
	n        int          // number of queued streams
}

// maxDeparted bounds the users that are remembered after their last stream has left.
const maxDeparted = 64

// userQueue is one user's streams in one direction.
type userQueue struct {
	name         string
	tag          int64
	v            int64
	streams      indexedHeap[*Stream] // queued streams
	members      int                  // all streams of the user
	inheritedTag int64                // tag of a stream that left while ahead of v; the next new stream inherits it
	index        int
	seq          uint64
}

// queueEntry is a stream's place in the queue.
type queueEntry struct {
	user  *userQueue
	tag   int64
	seq   int64
	index int
}

func newStreamQueue() streamQueue {
	var t streamQueue
	for i := range t.dirs {
		t.dirs[i].users = indexedHeap[*userQueue]{
			less:  func(u, w *userQueue) bool { return u.tag < w.tag || u.tag == w.tag && u.name < w.name },
			index: func(u *userQueue) *int { return &u.index },
		}
	}
	return t
}

// len returns the number of queued streams.
func (t *streamQueue) len() int { return t.dirs[0].n + t.dirs[1].n }

// set adds a stream to the queue, or removes it.
func (t *streamQueue) set(s *Stream, waits bool) {
	u := s.queued.user
	if u == nil {
		if !waits {
			return
		}
		u = t.enter(s)
	}
	lane := &t.dirs[direction(s.Write)]
	had := s.queued.index > 0
	switch {
	case waits == had:
	case waits:
		if lane.n++; lane.n == 1 {
			lane.tag = max(lane.tag, t.v)
			lane.forgetDeparted()
		}
		s.queued.tag = max(s.queued.tag, u.v)
		u.streams.set(s)
		if u.streams.len() == 1 {
			u.tag = max(u.tag, lane.v)
			lane.users.set(u)
		}
	default:
		lane.n--
		u.streams.remove(s)
		if u.streams.len() == 0 {
			lane.users.remove(u)
		}
	}
}

func (t *streamQueue) enter(s *Stream) *userQueue {
	lane := &t.dirs[direction(s.Write)]
	if lane.byName == nil {
		lane.byName = map[string]*userQueue{}
	}
	u := lane.byName[s.User]
	if u == nil {
		u = &userQueue{name: s.User, streams: indexedHeap[*Stream]{
			less: func(s, o *Stream) bool {
				return s.queued.tag < o.queued.tag || s.queued.tag == o.queued.tag && s.queued.seq < o.queued.seq
			},
			index: func(s *Stream) *int { return &s.queued.index },
		}}
		lane.byName[s.User] = u
	}
	u.members++
	u.seq++
	s.queued = queueEntry{user: u, tag: u.inheritedTag, seq: int64(u.seq)}
	u.inheritedTag = 0
	return u
}

// leave removes a stream that leaves the flow.
func (t *streamQueue) leave(s *Stream) {
	u := s.queued.user
	if u == nil {
		return
	}
	t.set(s, false)
	if s.queued.tag > u.v && u.streams.len() > 0 {
		u.inheritedTag = max(u.inheritedTag, s.queued.tag)
	}
	if u.members--; u.members == 0 {
		t.dirs[direction(s.Write)].rememberDeparted(u)
	}
	s.queued = queueEntry{}
	if t.last == s {
		t.last = nil
	}
}

// rememberDeparted remembers a user whose last stream has left, as long as the user is ahead of v
// and other streams are queued. So a user gains nothing by reading one file after the other.
func (l *directionQueue) rememberDeparted(u *userQueue) {
	kept := l.departed[:0]
	for _, d := range l.departed {
		if d != u && d.members == 0 && l.n > 0 && d.tag > l.v {
			kept = append(kept, d)
		} else if d != u {
			l.forget(d)
		}
	}
	if l.n > 0 && u.tag > l.v {
		kept = append(kept, u)
	} else {
		l.forget(u)
	}
	if len(kept) > maxDeparted {
		l.forget(kept[0])
		kept = append(kept[:0], kept[1:]...)
	}
	l.departed = kept
}

// forgetDeparted forgets all departed users. It is called when a stream joins an empty queue.
func (l *directionQueue) forgetDeparted() {
	for _, d := range l.departed {
		l.forget(d)
	}
	l.departed = l.departed[:0]
}

// forget forgets a user without streams.
func (l *directionQueue) forget(u *userQueue) {
	if u.members == 0 {
		delete(l.byName, u.name)
	}
}

// peek returns the stream that goes next, not considering runs. The queue must not be empty.
func (t *streamQueue) peek() *Stream {
	return t.nextDirection().users.first().streams.first()
}

func (t *streamQueue) nextDirection() *directionQueue {
	reads, writes := &t.dirs[0], &t.dirs[1]
	if writes.n == 0 || reads.n > 0 && reads.tag <= writes.tag {
		return reads
	}
	return writes
}

// take selects the stream that goes now. It continues a run within the given bounds.
func (t *streamQueue) take(run int64, runTime, now time.Duration) *Stream {
	lane := t.nextDirection()
	s := lane.users.first().streams.first()
	if l := t.last; l != nil && l.queued.index > 0 && &t.dirs[direction(l.Write)] == lane && t.run < run && now-t.since < runTime {
		s = l
	}
	if s != t.last {
		t.last, t.run, t.since = s, 0, now
	}
	t.v = max(t.v, lane.tag)
	lane.v = max(lane.v, s.queued.user.tag)
	s.queued.user.v = max(s.queued.user.v, s.queued.tag)
	return s
}

// charge adds bytes and cost to a selected stream. A negative cost is a correction.
func (t *streamQueue) charge(s *Stream, bytes, cost int64) {
	if t.last == s {
		t.run += bytes
	}
	u := s.queued.user
	if u == nil {
		return // the stream has left
	}
	lane := &t.dirs[direction(s.Write)]
	lane.tag += cost
	u.tag += cost
	s.queued.tag += cost
	if s.queued.index > 0 {
		u.streams.set(s)
	}
	if u.index > 0 {
		lane.users.set(u)
	}
}
