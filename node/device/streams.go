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
	s.flow.streams++
	if s.Write {
		if s.flow.writers = append(s.flow.writers, s); len(s.flow.writers) == 1 {
			l.writing++
		}
		l.grant(s.flow)
	} else {
		l.openRead(s)
	}
}

func (l *Loop) close(s *Stream, pos int64) {
	if s.closed || s.released {
		return
	}
	s.closed = true
	if s.Write {
		l.closeWrite(s, pos)
	} else {
		if pos >= 0 {
			l.read(s, pos)
		}
		l.cancel(s)
	}
	l.release(s)
}

// cancel takes back what has not been dispatched. It leaves no debt.
func (l *Loop) cancel(s *Stream) {
	f := s.flow
	for range f.drop(s) {
		l.unqueue(f)
	}
	kept := s.pending[:0]
	for _, r := range s.pending {
		if r.finished {
			continue // it stood behind others: nothing more comes of it
		}
		if !r.started.IsZero() {
			kept = append(kept, r)
		} else if s.Write && !r.meta {
			l.drained(s, r.length)
		}
	}
	s.pending = kept
}

// unqueue cancels the flow's newest queued request in the scheduler; which
// quantum a queued request stands for is open until it is dispatched.
func (l *Loop) unqueue(f *flow) {
	last := len(f.handles) - 1
	h := f.handles[last]
	f.handles = f.handles[:last]
	if err := l.sched.Cancel(h); err != nil {
		l.fault("cancel", err)
	}
}

// release lets go of a closed stream once nothing of it is in flight.
func (l *Loop) release(s *Stream) {
	if !s.closed || s.released || len(s.pending) > 0 {
		return
	}
	l.endWait(s, time.Now())
	s.released = true
	s.closeFiles()
	delete(l.streams, s)
	f := s.flow
	if s.Write {
		if f.removeWriter(s); len(f.writers) == 0 {
			l.writing--
		}
	}
	if f.last == s {
		f.last = nil
	}
	if f.streams--; f.streams == 0 {
		f.idle = time.Now()
	}
}

// closeFiles gives the descriptors back without waiting: the last close of a
// file that HDFS has deleted frees its blocks, which is device I/O, and the loop
// must not stand still for it.
func (s *Stream) closeFiles() {
	go func() {
		s.Block.Close()
		if s.Meta != nil {
			s.Meta.Close()
		}
	}()
}
