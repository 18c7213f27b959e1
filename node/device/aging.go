package device

import "time"

// age looks at what time alone changes; it runs at every tick.
func (l *Loop) age(now time.Time) {
	for r := range l.running {
		if !l.stuck && now.Sub(r.started) > l.cfg.MaxWait {
			l.stick()
			break
		}
	}
	for s := range l.streams {
		if s.closed {
			continue
		}
		if s.Write && !s.unflushed.IsZero() && now.Sub(s.unflushed) > l.cfg.FlushAge {
			l.drain(s, true)
		}
		if !s.waiting.IsZero() && now.Sub(s.waiting) > l.cfg.MaxWait && l.modeOf(s.flow) == Enforce {
			l.force(s, now)
		}
	}
	for name, f := range l.flows {
		if f.streams == 0 && name != UnattributedFlow && now.Sub(f.idle) > idleFlowAge {
			if err := l.sched.RemoveFlow(f.id); err == nil {
				delete(l.flows, name)
				delete(l.byID, f.id)
			}
		}
	}
}

// force lets a minimum quantum through for a stream that has waited too long,
// whatever its flow's share says. The flow keeps the debt.
func (l *Loop) force(s *Stream, now time.Time) {
	s.flow.forced++
	if s.Write {
		s.waiting = now
		s.mark = s.pos + leaseFloor
		l.tell(s)
		return
	}
	if len(s.pending) == 0 || !s.pending[0].started.IsZero() {
		return // its quantum is at the device
	}
	s.waiting = now
	r := s.pending[0]
	if r.length > firstStage && !r.meta {
		head := *r
		head.length = firstStage
		head.end = head.offset + firstStage
		r.offset += firstStage
		r.length -= firstStage
		s.pending = append([]*request{&head}, s.pending...)
		r = &head
	} else {
		f := s.flow
		for i, ready := range f.ready {
			if ready == r {
				f.ready = append(f.ready[:i], f.ready[i+1:]...)
				l.unqueue(f)
				break
			}
		}
	}
	l.charge(s.flow, l.cost(false, r.length))
	l.start(r, now)
}

// stick opens all marks of a device that does not answer: its streams then meet
// the device's state by themselves, as they would natively.
func (l *Loop) stick() {
	l.stuck = true
	l.log.Error("the device has not answered a request in time: its streams are let through until it does", "bound", l.cfg.MaxWait)
	for s := range l.streams {
		l.tell(s)
	}
}

func (l *Loop) unstick() {
	l.stuck = false
	l.log.Info("the device answers again")
	for s := range l.streams {
		l.tell(s)
	}
}
