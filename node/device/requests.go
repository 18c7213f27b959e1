package device

import "time"

// A request's way: queued, dispatched, settled.

// submit queues one quantum.
func (l *Loop) submit(r *request, now time.Time) {
	f := r.stream.flow
	r.queued = now
	r.cost = l.costs.price(r.write, l.costs.guess(r)).tag
	r.stream.pending = append(r.stream.pending, r)
	h, err := l.sched.Submit(f.id, r.cost, 0)
	if err != nil {
		// The flow's queue is full. The quantum is left to the kernel, as it
		// would have been natively, and charged.
		l.fault("submit", err)
		l.behind(f, r.write, r.length)
		r.started, r.finished = now, true
		if r.write && !r.meta {
			l.drained(r.stream, r.length)
		}
		r.stream.advance()
		return
	}
	f.handles = append(f.handles, h)
	f.ready = append(f.ready, r)
}

// dispatch hands requests to the device as long as the scheduler lets it.
func (l *Loop) dispatch() {
	for {
		d, ok := l.sched.Next()
		if !ok {
			break
		}
		f := l.byID[d.Flow]
		f.handles = f.handles[1:]
		r := f.take(l.cfg.Run)
		r.handle = d.Handle
		l.start(r, time.Now())
		if !r.write && !r.stream.closed {
			l.stage(r.stream) // the next one has to queue before this one ends
		}
	}
	if l.control != nil && l.sched.Waiting() > 0 {
		l.control.Limited()
	}
}

func (l *Loop) start(r *request, now time.Time) {
	r.started = now
	r.stream.inFlight++
	l.running[r] = struct{}{}
	l.costs.started(r, now)
	go func() { l.results <- work(r) }()
}

// finish settles a completed request and moves its stream on.
func (l *Loop) finish(r result) {
	req, s := r.request, r.request.stream
	f := s.flow
	delete(l.running, req)
	s.inFlight--
	req.finished = true
	if r.err != nil {
		l.fault("device request", r.err)
	}
	actual := l.costs.finished(r, time.Now())
	l.settle(req, actual.tag)
	if r.bytes > 0 {
		f.requests++
		f.service += actual.service
		f.bytes[direction(req.write)] += r.bytes
	}
	if !req.write {
		f.resident += max(0, req.length-r.bytes)
	} else if !r.io {
		f.behind += r.bytes
	}
	if r.io {
		if l.control != nil {
			l.control.Observe(req.write, r.bytes, r.latency)
		}
		if l.onLatency != nil {
			l.onLatency(req.write, r.latency)
		}
	}
	s.advance()
	if req.write {
		if !req.meta {
			l.drained(s, req.length)
		}
		l.grant(f)
	} else if !s.closed {
		if r.err != nil {
			s.done = s.To // the DataNode will meet the same error by itself
		}
		l.stage(s)
	}
	l.release(s)
}

// settle tells the scheduler what a request has really cost.
func (l *Loop) settle(r *request, actual int64) {
	switch {
	case r.handle == 0: // let through outside of the queue, and charged then
		if more := actual - r.cost; more > 0 {
			l.charge(r.stream.flow, more)
		}
	case actual > 0:
		if err := l.sched.Complete(r.handle, actual); err != nil {
			l.fault("complete", err)
		}
	default:
		if err := l.sched.Cancel(r.handle); err != nil { // nothing to do for it: nothing to pay
			l.fault("complete", err)
		}
	}
}

func direction(write bool) int {
	if write {
		return 1
	}
	return 0
}
