package device

import "time"

// Reassign says whose a stream is: that was a claim when it was opened and is known
// now. If it is another flow, what the stream did so far stays charged where it was;
// what it has queued moves, at the end of the other flow's queue, and its backlog
// with it. A stream that has ended, or that was opened while its flow was off and so
// goes ungoverned to its end, does not move. The bytes that an Asked stream has passed
// are counted now, also if it has ended: a short one is over before anything is known.
func (l *Loop) Reassign(s *Stream, flow string) {
	l.send(event{kind: evCall, call: func() { l.reassign(s, flow) }})
}

func (l *Loop) reassign(s *Stream, name string) {
	now := time.Now()
	old, f := s.flow, l.flow(name)
	f.kinds[s.Kind].streamed[direction(s.Write)] += s.unowned
	s.unowned, s.Asked = 0, false
	if s.released || f == old {
		return
	}
	if l.modeOf(f) == Off {
		l.forget(s)
		return
	}
	queued := old.drop(s)
	l.retract(old, now)
	if !s.waiting.IsZero() { // it waited on the old flow's account
		if l.modeOf(old) == Observe {
			old.wouldWait += now.Sub(s.waiting)
		}
		s.waiting = time.Time{}
	}
	l.leave(s, now)
	l.join(s, f)
	f.kinds[s.Kind].opened++
	for _, r := range queued {
		if len(f.ready) < maxQueued {
			f.ready = append(f.ready, r)
		} else {
			l.leaveToKernel(r, now)
		}
	}
	l.offer(f, now)
	switch {
	case s.drains():
		l.relieve(f, now)
		l.grant(old)
		l.grant(f)
	case s.closed:
	case s.Kind == Network:
		l.ask(s, now)
	default:
		l.stage(s)
	}
	l.release(s)
}

// pass counts bytes that the stream has passed, once it is known whose they are.
func (s *Stream) pass(bytes int64) {
	if s.Asked {
		s.unowned += bytes
	} else {
		s.flow.kinds[s.Kind].streamed[direction(s.Write)] += bytes
	}
}

// join adds the stream and its backlog to a flow's counts.
func (l *Loop) join(s *Stream, f *flow) {
	s.flow = f
	f.streams++
	if !s.drains() {
		return
	}
	if f.writers = append(f.writers, s); len(f.writers) == 1 {
		l.writing++
	}
	if !s.closed {
		f.writing++
	}
	f.backlog += s.owed()
	if s.lazy() {
		f.lazy += s.pos - s.next
	}
	if s.kept {
		f.kept++
	}
}

// leave takes the stream and its backlog off its flow's counts.
func (l *Loop) leave(s *Stream, now time.Time) {
	f := s.flow
	if f.last == s {
		f.last = nil
	}
	if f.streams--; f.streams == 0 {
		f.idle = now
	}
	if !s.drains() {
		return
	}
	if f.removeWriter(s); len(f.writers) == 0 {
		l.writing--
	}
	if !s.closed {
		f.writing--
	}
	f.backlog -= s.owed()
	if s.lazy() {
		f.lazy -= s.pos - s.next
	}
	if s.kept {
		f.kept--
	}
}

// owed is the stream's part of the backlog: written and not drained.
func (s *Stream) owed() int64 {
	bytes := s.pos - s.next
	for _, r := range s.pending {
		if r.write && !r.meta && !r.finished {
			bytes += r.length
		}
	}
	return bytes
}
