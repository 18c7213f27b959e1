package device

import "time"

// How streams come and go.

func (l *Loop) open(s *Stream) {
	s.flow = l.flow(s.Flow)
	if l.modeOf(s.flow) == Off {
		s.released = true
		s.closeFiles()
		s.Marker.Mark(s.ID, Open)
		return
	}
	l.streams[s] = struct{}{}
	l.join(s, s.flow)
	s.flow.kinds[s.Kind].opened++
	switch {
	case s.drains():
		l.grant(s.flow)
	case s.Kind == Network:
		l.ask(s, time.Now())
	default:
		l.openRead(s)
	}
}

func (l *Loop) close(s *Stream, pos int64) {
	if s.closed || s.released {
		return
	}
	switch {
	case s.drains():
		l.closeWrite(s, pos)
	case s.Kind == Network:
		s.closed = true
		l.closeSend(s, pos)
	default:
		s.closed = true
		if pos >= 0 {
			l.read(s, pos)
		}
		l.cancel(s)
	}
	l.release(s)
}

// cancel takes back what has not been dispatched. It leaves no debt.
func (l *Loop) cancel(s *Stream) {
	s.flow.drop(s)
	l.retract(s.flow, time.Now())
	kept := s.pending[:0]
	for _, r := range s.pending {
		if r.finished {
			continue // it stood behind others: nothing more comes of it
		}
		if !r.started.IsZero() {
			kept = append(kept, r)
		} else if s.drains() && !r.meta {
			l.drained(s, r.length)
		}
	}
	s.pending = kept
}

// release lets go of a closed stream once nothing of it is in flight or waits to
// be drained.
func (l *Loop) release(s *Stream) {
	if !s.closed || s.released || len(s.pending) > 0 || s.kept {
		return
	}
	now := time.Now()
	l.endWait(s, now)
	s.released = true
	s.closeFiles()
	delete(l.streams, s)
	l.leave(s, now)
}

// closeFiles gives the descriptors back without waiting: the last close of a
// file that HDFS has deleted frees its blocks, which is device I/O, and the loop
// must not stand still for it.
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
