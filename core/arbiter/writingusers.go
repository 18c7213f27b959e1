package arbiter

import "time"

// Users that write. A flow of many users, such as the clients outside of containers, has one bound
// for its backlog. One user's bulk writes fill it, and a small write of another user would wait
// until the flow's share has drained some of them: on a busy disk with a small share, seconds. So
// each user has a part of the bound:
//
//   - A user whose own backlog is below its part goes on at once, packet by packet, even if the flow's
//     backlog is full. All parts together are half of the bound. A part is at least one packet; if
//     there are more users than maxParts, or the bound is too small, no user has one.
//   - Beyond their parts, users with parked writers take turns by the bytes of their leases, whatever
//     the number of their writers is. Among the writers of a user, the one that has waited longest
//     goes first.
//
// These bytes are drained and charged as always: the flow pays for them and, within the flow, the user
// (streamqueue.go). A flow of one user has no parts, and nothing changes for it.
type writingUsers struct {
	byName map[string]*writingUser
	turns  indexedHeap[*writingUser] // users with parked writers, by tag
	v      int64                     // virtual time of the turns
	parked int                       // parked writers of all users
}

// writingUser is a user with writing streams.
type writingUser struct {
	name    string
	writers int                  // streams: open ones, and closed ones with a backlog
	backlog int64                // without deferred bytes, which have a bound of their own
	parked  indexedHeap[*Stream] // the user's writers that wait for a lease, longest wait first
	tag     int64                // bytes of leases while writers waited; at least v when the user began to wait
	index   int                  // in writingUsers.turns
}

// maxParts is the maximum number of users that have parts.
const maxParts = 64

func newWritingUsers() writingUsers {
	return writingUsers{turns: indexedHeap[*writingUser]{
		less:  func(u, w *writingUser) bool { return u.tag < w.tag || u.tag == w.tag && u.name < w.name },
		index: func(u *writingUser) *int { return &u.index },
	}}
}

// enter adds a writing stream to its user.
func (w *writingUsers) enter(s *Stream) {
	if w.byName == nil {
		w.byName = map[string]*writingUser{}
	}
	u := w.byName[s.User]
	if u == nil {
		u = &writingUser{name: s.User, parked: indexedHeap[*Stream]{
			less:  func(s, t *Stream) bool { return s.parked < t.parked },
			index: func(s *Stream) *int { return &s.parkedIndex },
		}}
		w.byName[s.User] = u
	}
	u.writers++
	s.writer = u
}

// leave removes a stream that is not parked from its user.
func (w *writingUsers) leave(s *Stream) {
	u := s.writer
	if u.writers--; u.writers == 0 {
		delete(w.byName, u.name)
	}
	s.writer = nil
}

// park adds a stream to the parked writers, or moves it to its place among them.
func (w *writingUsers) park(s *Stream, now time.Duration) {
	u := s.writer
	if s.parkedIndex == 0 {
		w.parked++
	}
	if s.parked = now; u.parked.len() == 0 {
		u.tag = max(u.tag, w.v)
	}
	u.parked.set(s)
	w.turns.set(u)
}

// unpark removes a stream from the parked writers, if it is one.
func (w *writingUsers) unpark(s *Stream) {
	if s.parkedIndex == 0 {
		return
	}
	w.parked--
	u := s.writer
	if u.parked.remove(s); u.parked.len() == 0 {
		w.turns.remove(u)
	}
}

// next returns the parked writer whose turn it is. There must be one.
func (w *writingUsers) next() *Stream {
	u := w.turns.first()
	w.v = max(w.v, u.tag)
	return u.parked.first()
}

// charge adds the bytes of a lease to a user's turns. While no writer waits, nobody loses a turn, and nothing
// is charged.
func (w *writingUsers) charge(u *writingUser, bytes int64) {
	if w.parked == 0 {
		return
	}
	if u.tag = max(u.tag, w.v) + bytes; u.index > 0 {
		w.turns.set(u)
	}
}

// addUndrained adds bytes to the backlog of the stream's flow and user.
func (s *Stream) addUndrained(bytes int64) {
	if s.flow.backlog += bytes; !s.deferred() {
		s.writer.backlog += bytes
	}
}

// partOf returns the part of the flow's bound that each of its users has; 0 if users have none.
func (f *flow) partOf() int64 {
	n := len(f.users.byName)
	if n < 2 || n > maxParts {
		return 0
	}
	if part := f.room / 2 / int64(n); part >= leaseFloor {
		return part
	}
	return 0
}

// withinPart reports whether the backlog of the stream's user is below the user's part. Deferred
// bytes have a bound of their own.
func (f *flow) withinPart(s *Stream) bool { return !s.deferred() && s.writer.backlog < f.partOf() }

// grantParts gives a lease to the first parked writer of each user whose backlog is below its part.
// It does not wait for the users' turns.
func (a *Arbiter) grantParts(f *flow, now time.Duration) {
	if f.partOf() == 0 {
		return
	}
	for i := 0; i < f.users.turns.len(); i++ {
		if s := f.users.turns.items[i].parked.first(); f.withinPart(s) {
			a.giveLease(s, leaseFloor, now) // another user may take the index i; a user that is missed is checked next time
		}
	}
}
