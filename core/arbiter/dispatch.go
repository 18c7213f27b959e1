package arbiter

import (
	"time"

	"penstock/core/sfq"
)

// A request is created from the demand of a stream, and started, when the scheduler selects its
// flow. When the request ends, its cost is settled.

// nextOf returns the next request of a stream. bytes is 0 if the stream wants no request.
func (a *Arbiter) nextOf(s *Stream) (meta bool, off, bytes int64) {
	quantum := a.quantum(s.flow)
	switch {
	case s.drains():
		if end := a.drainEnd(s); end > s.next {
			return false, s.next, end - s.next
		}
		if s.closed && s.next == s.pos {
			return true, s.meta.next, min(quantum, s.meta.end-s.meta.next)
		}
		return false, 0, 0
	case s.meta.next < s.meta.end:
		return true, s.meta.next, min(quantum, s.meta.end-s.meta.next)
	}
	return false, s.next, min(quantum, s.want)
}

// updateReady adds the stream to its flow's queue if it wants a request, and removes it otherwise.
func (a *Arbiter) updateReady(s *Stream, now time.Duration) {
	_, _, bytes := a.nextOf(s)
	f := s.flow
	if bytes > 0 && s.queued.index == 0 {
		a.arrives(f, s.Write, now)
	}
	f.ready.set(s, bytes > 0)
	a.announce(f, now)
}

// makeRequest creates the next request of a stream. The request has no more bytes than most.
func (a *Arbiter) makeRequest(s *Stream, most int64) *Request {
	meta, off, bytes := a.nextOf(s)
	cut := bytes > most || !meta && off > 0 && off == s.cutTo // also the rest of a quantum
	if bytes > most && !meta {
		s.cutTo = off + most
	}
	bytes = min(bytes, most)
	r := a.newRequest()
	*r = Request{Stream: s, Meta: meta, Write: s.Write, Offset: off, Length: bytes, flow: s.flow, index: r.index, cut: cut}
	end := int64(-1)
	switch {
	case meta:
		s.meta.next += bytes
		if s.meta.next >= s.meta.end {
			end = s.From // the first mark implies that the checksums are staged
			if s.Write {
				end = s.pos
			}
		}
	case s.drains():
		a.noteRequested(s, bytes)
		end = s.next
	default:
		bytes = a.fitToRoom(s, bytes)
		r.Length = bytes
		s.next += bytes
		s.want -= bytes
		s.ramp = min(2*s.ramp, a.cfg.Quantum)
		end = s.next
		a.setStaged(s, s.next-s.pos)
	}
	r.piece = s.addPending(end, false)
	return r
}

func (a *Arbiter) newRequest() *Request {
	if n := len(a.spare); n > 0 {
		r := a.spare[n-1]
		a.spare = a.spare[:n-1]
		return r
	}
	return new(Request)
}

// dispatch starts requests as far as the depth, the pacer and the scheduler allow.
func (a *Arbiter) dispatch(now time.Duration) {
	a.pacer.at = 0
	kept := false
	for {
		starved := a.forced.candidate(a, now)
		if a.anticipation.ready == 0 && starved == nil {
			a.endIdle(now) // no other flow wants the device
			break
		}
		if starved == nil && a.storage.holds(a, now) {
			a.endIdle(now)
			kept = true
			break
		}
		if len(a.running) < a.depth {
			if wait := a.pacer.wait(now); wait > 0 {
				a.pacer.at = now + wait
				break
			}
		}
		slots := a.depth
		switch wait := a.strictWait(now); {
		case a.reservedDue(now) || a.latencyDue() && wait <= strictCredit: // priority does not beat strict rates for long
			a.endIdle(now)
		case wait > 0 && starved == nil:
			a.endIdle(now)
			a.delayStrict(now+wait, now)
			return
		default:
			if slots = a.slots(now); starved == nil && a.awaitsOvertaken(now) {
				slots = 0
			}
		}
		if a.latency.slice > 0 {
			slots = min(slots, a.latency.depth)
		}
		if kept = slots < a.depth; len(a.running) >= slots {
			break
		}
		if starved != nil {
			a.force(starved, now)
			continue
		}
		most := a.nextSlice(now)
		if most == 0 && (!a.latencyDue() || a.reservedDue(now)) {
			kept = true
			break // the end of a request will cause the next call
		}
		var t sfq.Ticket
		var first, next, owed, ok bool // first: a small read with a goal; next: such a read, or the next slice of a quantum
		reserved := false
		if !a.owesSlice() {
			t, reserved = a.nextReserved(now)
		}
		if !reserved && (a.latency.slice > 0 || a.latencyDue()) {
			t, first, owed, next = a.nextByLatency()
		}
		if !reserved && !next {
			if t, ok = a.sched.Next(); !ok {
				break
			}
		}
		f := a.byID[t.Flow()]
		run := a.cfg.Run
		if first {
			run = 0 // the small read goes, and not a stream that has a run
		}
		if first || most == 0 {
			most = smallRead
		}
		s := f.ready.take(run, a.cfg.RunTime, now)
		r := a.makeRequest(s, most)
		if first {
			f.latency.credit -= a.pricing.served(r.Write, false, r.Length)
		}
		if r.back = r.cut && a.latency.interrupted; first || r.back {
			a.latency.interrupted = first
		}
		a.noteSlice(r, next, s.small(), reserved)
		r.ticket, r.cost, r.skipLatency, r.reserved = t, t.Cost(), kept, reserved || owed
		a.startRequest(r, now)
	}
	a.endStrictIdle(now)
	if a.control != nil && a.anticipation.ready > 0 && (!kept || len(a.running) >= a.depth) {
		a.control.Limited()
	}
}

// startRequest starts a request at the device.
func (a *Arbiter) startRequest(r *Request, now time.Duration) {
	s, f := r.Stream, r.flow
	r.started = now
	a.useOf(s, now)
	f.ready.charge(s, r.Length, r.cost)
	a.takeLimit(f, r.Length, now)
	r.served = int64(a.pricing.served(r.Write, true, r.Length))
	a.takeReserve(f, r, now)
	a.takeStrict(f, r, now)
	a.storage.started(a, r, now)
	a.settleRequests(f, now)
	s.inFlight++
	f.inFlight++
	f.draining += direction(r.Write)
	a.running = append(a.running, r)
	r.index = len(a.running)
	a.started++
	r.number = a.started
	if a.cfg.Network {
		a.permit(r, now)
		return
	}
	a.pricing.started(r, now)
	a.expect(r)
	a.act(Action{Kind: Start, Stream: s, Request: r})
	if s.Write || s.closed {
		if a.updateReady(s, now); s.Write && f.users.parked > 0 && !f.granting {
			a.drainTail(f, now)
		}
	} else {
		a.stage(s, now) // the next request must be ready before this one ends
	}
}

// removeRunning removes a request from the requests in flight.
func (a *Arbiter) removeRunning(r *Request, now time.Duration) {
	a.settleRequests(r.flow, now)
	last := len(a.running) - 1
	moved := a.running[last]
	a.running[last] = nil
	a.running = a.running[:last]
	if moved != r {
		a.running[r.index-1] = moved
		moved.index = r.index
	}
	r.index = 0
	r.Stream.inFlight--
	r.flow.inFlight--
	r.flow.draining -= direction(r.Write)
	if r.flow.used = now; !r.Stream.Asked {
		r.flow.reserve.used = now
	}
	a.activate(r.flow, now)
}

// Done records the end of a request. The caller must not use the request afterwards.
func (a *Arbiter) Done(now time.Duration, r *Request, result Result) {
	s, f := r.Stream, r.flow
	a.removeRunning(r, now)
	a.noteOvertaken(r, result.Moved, now)
	a.storage.finished(a, r, result.Moved+result.Earlier, now)
	if !s.Asked {
		a.use(f, now)
	}
	if result.Err != nil {
		a.fault("device request", result.Err)
	}
	if r.Write && result.Earlier > 0 { // no bytes were written beyond the end of the file
		if written, ok := r.File().Written(); ok {
			result.Earlier = max(0, min(result.Earlier, written-r.Offset))
		}
	}
	price := a.pricing.finished(r, result, a.depth, now)
	if result.Moved > 0 && !s.Turn {
		a.noteSeek(r, a.pricing.goesOn, result.Moved)
	}
	a.settleCost(r, price.tag)
	a.takeLimit(f, result.Moved+result.Earlier-r.Length, now)
	service := min(price.service, int64(now-r.started)) // while a slow device recovers, prices are too high
	a.settleStrict(r, service, now)
	a.settleReserve(f, r, result.Moved+result.Earlier, service, now)
	if r.forced {
		a.payOverdue(f, result.Moved, service, now)
	}
	if result.Err == nil { // after an error, the flow is charged for device time but got no bytes
		a.bookDone(r, result, price.service)
	}
	if result.Latency > 0 && result.Err == nil && a.control != nil && !r.skipLatency && !r.forced && !s.Turn {
		a.control.Observe(r.Write, result.Moved, result.Latency)
	}
	if i := r.piece - s.first; i >= 0 && i < int64(len(s.pending)) {
		s.pending[i].finished = true
	}
	s.advance()
	switch {
	case r.Write:
		if !r.Meta {
			s.out -= r.Length
			s.addUndrained(-r.Length)
			a.backlog.all -= r.Length
		}
		a.updateReady(s, now)
		a.grantParked(s.flow, now)
	case !s.closed:
		if result.Err != nil {
			s.done = s.To // the reader's process gets the same error itself
		}
		if r.forced {
			a.forced.ended(a, s, now)
		}
		a.stage(s, now)
	}
	if r.forced {
		a.forced.inFlight--
		if result.Moved == 0 && result.Err == nil {
			a.forced.refund(a.packetTime(r.Length))
		}
	}
	a.release(s, now)
	index := r.index
	*r = Request{index: index}
	a.spare = append(a.spare, r)
}

// bookDone adds a request's I/O to the accounts.
func (a *Arbiter) bookDone(r *Request, result Result, service int64) {
	f, bytes := r.flow, result.Moved+result.Earlier
	if a.backlog.moved += bytes; bytes > 0 {
		f.requests++
		f.book(r.Stream.Kind, r.Write, bytes, service)
	}
	if r.Write {
		f.unscheduled += result.Earlier
	} else {
		r.Stream.foundResident(f, max(0, r.Length-bytes))
	}
}

// settleCost corrects a request's charge to its actual cost, in the scheduler and in the flow's
// queue of streams.
func (a *Arbiter) settleCost(r *Request, actual int64) {
	if err := a.sched.Settle(r.ticket, actual); err != nil {
		a.fault("settle", err)
	}
	if r.Stream.flow == r.flow {
		r.flow.ready.charge(r.Stream, 0, actual-r.cost)
	}
}
