package device

import "time"

// age looks at what time alone changes; it runs at every tick.
func (l *Loop) age(now time.Time) {
	if l.cfg.Network {
		l.freeSlots(now)
	}
	late := false
	for r := range l.running {
		late = late || now.Sub(r.started) > l.cfg.MaxWait
	}
	if late != l.stuck {
		l.stick(late)
	}
	l.takeStock(now)
	for s := range l.streams {
		if s.lazy() {
			l.ageLazy(s, now)
		} else if !s.unflushed.IsZero() && now.Sub(s.unflushed) > l.cfg.FlushAge {
			l.drain(s, true, now)
		}
		if s.closed {
			continue
		}
		if s.starved && !s.flow.full() {
			l.more(s, now)
		}
		if !s.waiting.IsZero() && now.Sub(s.waiting) > l.cfg.MaxWait && l.modeOf(s.flow) == Enforce && !l.stuck {
			l.force(s, now)
		}
	}
	for name, f := range l.flows {
		l.lessen(f, now)
		if f.lazy > 0 {
			l.relieve(f, now) // its bound may have become less
			l.drainInTime(f, now)
		}
		if f.streams == 0 && name != UnattributedFlow && now.Sub(f.idle) > idleFlowAge {
			l.forgetFlow(f)
		}
	}
}

// more asks for what the flow's queue had no room for.
func (l *Loop) more(s *Stream, now time.Time) {
	s.starved = false
	if s.Kind == Network {
		l.ask(s, now)
	} else {
		l.stage(s)
	}
}

// force lets a minimum quantum through for a stream that has waited too long,
// whatever its flow's share says. The flow keeps the debt.
func (l *Loop) force(s *Stream, now time.Time) {
	if s.Write || s.Kind == Network {
		s.flow.forced++
		s.waiting = now
		s.mark = s.pos + leaseFloor
		l.tell(s)
		return
	}
	if len(s.pending) == 0 && s.starved {
		n := min(firstStage, s.To-s.next)
		s.next += n
		s.pending = append(s.pending, &request{stream: s, file: s.Block, offset: s.next - n, length: n, end: s.next, queued: now})
	}
	if len(s.pending) == 0 || !s.pending[0].started.IsZero() {
		return // its quantum is at the device
	}
	if len(l.running) >= l.sched.Depth()+maxAside {
		return // each request in flight is a thread
	}
	s.flow.forced++
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
		f.remove(r)
		l.retract(f, now)
	}
	r.cost = l.costs.price(false, true, r.length).tag
	l.charge(s.flow, r.cost)
	r.taken = r.length
	l.chargeLimit(s.flow, now, r.taken)
	l.start(r, now)
}

// stick opens all marks of a device that does not answer: its streams then meet
// the device's state by themselves, as they would natively. It takes them back
// once no request is late.
func (l *Loop) stick(late bool) {
	l.stuck = late
	if late {
		l.log.Error("the device has not answered a request in time: its streams are let through until it does", "bound", l.cfg.MaxWait)
	} else {
		l.log.Info("the device answers again")
		l.restartWaits()
	}
	for s := range l.streams {
		l.tell(s)
	}
}

// restartWaits lets the time that streams have waited begin anew, when it was
// not enforcement that made it long.
func (l *Loop) restartWaits() {
	now := time.Now()
	for s := range l.streams {
		if !s.waiting.IsZero() {
			s.waiting = now
		}
	}
}
