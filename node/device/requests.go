package device

import (
	"time"

	"penstock/core/sfq"
)

// A request's way: queued, dispatched, settled.

// submit queues one quantum.
func (l *Loop) submit(r *request, now time.Time) {
	f := r.stream.flow
	l.arrives(r, now)
	r.queued = now
	r.cost = min(sfq.MaxCost, l.costs.price(r.write, true, r.length).tag)
	r.stream.pending = append(r.stream.pending, r)
	if f.full() {
		l.fault("submit", sfq.ErrTooManyRequests)
		l.leaveToKernel(r, now)
		return
	}
	f.ready = append(f.ready, r)
	l.offer(f, now)
}

// full tells whether the flow's queue has no more room. Readers and senders then ask
// for nothing until it has (age): they stand at their marks. What has been written is
// there and has to go.
func (f *flow) full() bool { return len(f.ready) >= maxQueued }

// leaveToKernel gives up a quantum for which the flow's queue has no room: it
// goes as it would have natively, and is charged.
func (l *Loop) leaveToKernel(r *request, now time.Time) {
	s := r.stream
	l.behind(s, r.length, now)
	r.started, r.finished = now, true
	if s.drains() && !r.meta {
		l.drained(s, r.length)
	}
	s.advance()
}

// dispatch hands requests to the device as long as the scheduler lets it.
func (l *Loop) dispatch() {
	l.paced = time.Time{}
	kept := false
	for {
		now := time.Now()
		if l.pace != nil && l.sched.Waiting() > 0 && l.sched.Outstanding() < l.sched.Depth() {
			if wait := l.pace.Wait(l.clock(now)); wait > 0 {
				l.paced = now.Add(wait)
				break
			}
		}
		slots := l.slots(now)
		if kept = slots < l.sched.Depth(); kept && l.sched.Outstanding() >= slots {
			break
		}
		d, ok := l.sched.Next()
		if !ok {
			break
		}
		f := l.byID[d.Flow]
		taken := f.offers[0].bytes
		f.offers = f.offers[1:]
		f.asks(now)
		r := f.take(l.cfg.Run)
		r.handle, r.kept = d.Handle, kept
		if f.limit != nil {
			r.taken = r.length
			l.chargeLimit(f, now, r.taken-taken)
		}
		l.start(r, now)
		l.offer(f, now)
		if !l.cfg.Network && !r.write && !r.stream.closed {
			l.stage(r.stream) // the next one has to queue before this one ends
		}
	}
	if l.control != nil && l.sched.Waiting() > 0 && (!kept || l.sched.Outstanding() >= l.sched.Depth()) {
		l.control.Limited()
	}
}

func (l *Loop) start(r *request, now time.Time) {
	r.started, r.flow = now, r.stream.flow
	r.stream.inFlight++
	r.flow.inFlight++
	l.running[r] = struct{}{}
	if l.cfg.Network {
		l.allow(r, now)
		return
	}
	l.costs.started(r, now)
	go func() { l.results <- work(r) }()
}

// finish settles a completed request and moves its stream on.
func (l *Loop) finish(r result) {
	req, s := r.request, r.request.stream
	f, now := req.flow, time.Now()
	delete(l.running, req)
	s.inFlight--
	f.inFlight--
	f.used = now
	req.finished = true
	if r.err != nil {
		l.fault("device request", r.err)
	}
	actual := l.costs.finished(r, now)
	l.settle(req, actual.tag)
	l.correctLimit(req, r.bytes, now)
	if r.err == nil { // else the flow has paid for the device's time and got nothing
		l.bookDone(r, actual.service)
	}
	if r.io {
		if l.control != nil && !req.kept {
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
		l.grant(s.flow)
	} else if !s.closed {
		if r.err != nil {
			s.done = s.To // the DataNode will meet the same error by itself
		}
		l.stage(s)
	}
	l.release(s)
}

// bookDone puts what a request did into the account.
func (l *Loop) bookDone(r result, service int64) {
	req, f := r.request, r.request.flow
	if l.stock.moved += r.bytes; r.bytes > 0 {
		f.requests++
		f.book(req.stream.Kind, req.write, r.bytes, service)
	}
	if !req.write {
		f.resident += max(0, req.length-r.bytes)
	} else if !r.io {
		f.behind += r.bytes
	}
}

// settle tells the scheduler what a request has really cost.
func (l *Loop) settle(r *request, actual int64) {
	switch {
	case r.handle == 0: // let through outside of the queue, and charged then
		if more := actual - r.cost; more > 0 {
			l.charge(r.flow, more)
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
