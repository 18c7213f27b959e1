package arbiter

import "time"

// turns decides which of a flow's streams goes when the flow is due.
//
// Reads and writes of one flow have half of its device time each while both wait. Within each
// direction users take turns, and the streams of a user, by device time as well. So larger quanta
// or more files gain nothing, and a writer beside a hundred readers has half of the flow. Each of
// the three levels follows the rule of package sfq with weights of 1: the smallest start tag goes
// first, and one that comes back begins at the virtual time.
//
// A file that has begun goes on for a while (Config.Run, RunTime), so that the flow's own files
// do not make the disk seek after every quantum. The file is charged for it, so the others catch
// up afterwards.
type turns struct {
	dirs [2]lane // reads, writes
	v    int64   // virtual time of the directions

	last  *Stream       // the stream that went last,
	run   int64         // its bytes in a row,
	since time.Duration // and when its run began
}

// lane is one direction.
type lane struct {
	tag      int64
	v        int64
	users    pile[*user] // users with streams that wait
	named    map[string]*user
	departed []*user // users without streams that are ahead, at most maxDeparted
	n        int     // streams that wait
}

// maxDeparted bounds how many users are remembered after their last streams.
const maxDeparted = 64

// user is one user's streams in one direction.
type user struct {
	name    string
	tag     int64
	v       int64
	streams pile[*Stream] // those that wait
	members int           // all streams that are here
	lead    int64         // tag of a stream that left ahead of the others; the next one takes it over
	at      int
	seq     uint64
}

// turn is a stream's place.
type turn struct {
	user *user
	tag  int64
	seq  int64
	at   int
}

func newTurns() turns {
	var t turns
	for i := range t.dirs {
		t.dirs[i].users = pile[*user]{
			less:  func(u, w *user) bool { return u.tag < w.tag || u.tag == w.tag && u.name < w.name },
			place: func(u *user) *int { return &u.at },
		}
	}
	return t
}

// len returns how many streams wait.
func (t *turns) len() int { return t.dirs[0].n + t.dirs[1].n }

// set notes whether a stream waits for its turn.
func (t *turns) set(s *Stream, waits bool) {
	u := s.turn.user
	if u == nil {
		if !waits {
			return
		}
		u = t.enter(s)
	}
	lane := &t.dirs[direction(s.Write)]
	had := s.turn.at > 0
	switch {
	case waits == had:
	case waits:
		if lane.n++; lane.n == 1 {
			lane.tag = max(lane.tag, t.v)
			lane.forgetDeparted()
		}
		s.turn.tag = max(s.turn.tag, u.v)
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

func (t *turns) enter(s *Stream) *user {
	lane := &t.dirs[direction(s.Write)]
	if lane.named == nil {
		lane.named = map[string]*user{}
	}
	u := lane.named[s.User]
	if u == nil {
		u = &user{name: s.User, streams: pile[*Stream]{
			less: func(s, o *Stream) bool {
				return s.turn.tag < o.turn.tag || s.turn.tag == o.turn.tag && s.turn.seq < o.turn.seq
			},
			place: func(s *Stream) *int { return &s.turn.at },
		}}
		lane.named[s.User] = u
	}
	u.members++
	u.seq++
	s.turn = turn{user: u, tag: u.lead, seq: int64(u.seq)}
	u.lead = 0
	return u
}

// leave ends a stream's membership.
func (t *turns) leave(s *Stream) {
	u := s.turn.user
	if u == nil {
		return
	}
	t.set(s, false)
	if s.turn.tag > u.v && u.streams.len() > 0 {
		u.lead = max(u.lead, s.turn.tag)
	}
	if u.members--; u.members == 0 {
		t.dirs[direction(s.Write)].depart(u)
	}
	s.turn = turn{}
	if t.last == s {
		t.last = nil
	}
}

// depart remembers a user whose last stream has left, while the user is ahead of users that wait.
// So a user that reads one file after the other gains nothing by that.
func (l *lane) depart(u *user) {
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

// forgetDeparted forgets all departed users. It is for a moment at which nobody waits.
func (l *lane) forgetDeparted() {
	for _, d := range l.departed {
		l.forget(d)
	}
	l.departed = l.departed[:0]
}

// forget forgets a user without streams.
func (l *lane) forget(u *user) {
	if u.members == 0 {
		delete(l.named, u.name)
	}
}

// peek returns the stream that goes next, unless a run goes on. Some stream must wait.
func (t *turns) peek() *Stream {
	return t.lane().users.first().streams.first()
}

func (t *turns) lane() *lane {
	reads, writes := &t.dirs[0], &t.dirs[1]
	if writes.n == 0 || reads.n > 0 && reads.tag <= writes.tag {
		return reads
	}
	return writes
}

// take returns the stream that goes now.
func (t *turns) take(run int64, runTime, now time.Duration) *Stream {
	lane := t.lane()
	s := lane.users.first().streams.first()
	if l := t.last; l != nil && l.turn.at > 0 && &t.dirs[direction(l.Write)] == lane && t.run < run && now-t.since < runTime {
		s = l
	}
	if s != t.last {
		t.last, t.run, t.since = s, 0, now
	}
	t.v = max(t.v, lane.tag)
	lane.v = max(lane.v, s.turn.user.tag)
	s.turn.user.v = max(s.turn.user.v, s.turn.tag)
	return s
}

// charge books device time of a stream that has taken its turn, or corrects it.
func (t *turns) charge(s *Stream, bytes, cost int64) {
	if t.last == s {
		t.run += bytes
	}
	u := s.turn.user
	if u == nil {
		return // the stream has left
	}
	lane := &t.dirs[direction(s.Write)]
	lane.tag += cost
	u.tag += cost
	s.turn.tag += cost
	if s.turn.at > 0 {
		u.streams.set(s)
	}
	if u.at > 0 {
		lane.users.set(u)
	}
}
