package device

import (
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/limit"
)

// The network device. What is sent is no I/O of ours: a request is the leave to
// send a quantum. It is dispatched by the same scheduler, when the quanta before it
// have had their time at the device's rate; that raises the stream's mark, and it
// is complete when the agent reports its end as sent, or the stream closes.
//
// The rate is what divides; the depth bounds what is out where the network is slower
// than its rate says. A receiver may be slow, and must not hold a slot: a quantum that
// is not sent in slotWait gives its slot back, and the stream gets no further ones
// than a few ahead of where it is.

const (
	networkQuantum = 256 << 10
	networkAhead   = 4
	networkDepth   = 64
	paceCredit     = 5 * time.Millisecond // for a loop that is called late
	paceDebt       = time.Second          // of what was sent without leave
	slotWait       = 200 * time.Millisecond
)

// NetworkName is the name of the network device.
const NetworkName = "network"

// networkDefaults fills in what a network device has otherwise than a disk.
func (c *Config) networkDefaults() {
	setDefault(&c.Algorithm, "sfqd")
	setDefault(&c.Quantum, networkQuantum)
	setDefault(&c.Ahead, networkAhead)
	setDefault(&c.FixedDepth, networkDepth)
	line := cost.Line{PerMiB: 10 * time.Millisecond} // of a rate nobody knows; bytes are what counts then
	if c.Rate > 0 {
		line.PerMiB = min(cost.PerMiBMax, max(cost.PerMiBMin, time.Duration(float64(1<<20)/float64(c.Rate)*float64(time.Second))))
		same := cost.Coefficients{Random: line, Sequential: line}
		c.Cost = cost.Model{Read: same, Write: same}
	}
	c.Depth = depth.Config{Read: depth.Line(line)}
}

// pace is the bucket that a device with a rate has; unheld bounds how much of it goes
// to those who do not ask, to three quarters and to every other second of a burst.
func (c *Config) pace() (pace, unheld *limit.Bucket, err error) {
	if !c.Network || c.Rate == 0 {
		return nil, nil, nil
	}
	if pace, err = limit.New(limit.Config{Rate: c.Rate, Credit: paceCredit, Debt: paceDebt}); err != nil {
		return nil, nil, err
	}
	unheld, err = limit.New(limit.Config{Rate: max(limit.MinRate, c.Rate/4*3), Credit: 2 * paceDebt, Debt: 2 * paceDebt})
	return pace, unheld, err
}

// drains tells whether the loop writes out what the stream has written.
func (s *Stream) drains() bool { return s.Write && s.Kind != Network }

// ask queues the next quanta and tells the sender how far it may go.
func (l *Loop) ask(s *Stream, now time.Time) {
	if l.pace == nil {
		s.mark = Open
		l.tell(s)
		return
	}
	quantum := l.quantum(s.flow)
	window := s.pos + int64(l.cfg.Ahead)*quantum
	for s.next < s.To && s.next < window {
		if s.starved = s.flow.full(); s.starved {
			break
		}
		n := min(quantum, s.To-s.next)
		s.next += n
		l.submit(&request{stream: s, write: s.Write, offset: s.next - n, length: n, end: s.next}, now)
	}
	s.mark = max(s.mark, s.done)
	if s.done >= s.To {
		s.mark = Open
	}
	l.observeWait(s, now)
	l.tell(s)
}

// allow dispatches a request: the stream may send it.
func (l *Loop) allow(r *request, now time.Time) {
	s := r.stream
	l.pace.Take(l.clock(now), r.length) // dispatch has waited for it
	s.done = max(s.done, r.end)
	l.ask(s, now)
}

// sent takes the sender's progress.
func (l *Loop) sent(s *Stream, pos int64) {
	now := time.Now()
	if pos = min(pos, s.To); pos <= s.pos {
		return
	}
	s.pass(pos - s.pos)
	if l.pace == nil {
		bytes := pos - s.pos
		s.flow.book(s.Kind, s.Write, bytes, l.costs.price(s.Write, true, bytes).service)
		s.next, s.done = pos, pos
	}
	s.pos = pos
	unasked := max(0, pos-s.next) // nobody held it: observed, or the daemon was away
	s.next = max(s.next, pos)
	s.done = max(s.done, pos)
	early := 0
	for _, r := range s.pending {
		if r.end > pos {
			break
		}
		if r.finished {
			continue
		}
		if r.started.IsZero() {
			early++
			unasked += r.length
			s.flow.remove(r)
		} else {
			l.finishSend(r, r.length, now)
		}
		r.finished = true
	}
	if early > 0 {
		l.retract(s.flow, now)
	}
	if unasked > 0 {
		l.unasked(s, unasked, now)
	}
	s.advance()
	if !s.closed {
		l.ask(s, now)
	}
}

// unasked books what was sent without leave, by a stream that is observed or was let
// through. It took of the rate what the others do not have; but as it asks nobody, it
// may not take all that they have.
func (l *Loop) unasked(s *Stream, bytes int64, now time.Time) {
	l.behind(s, bytes, now)
	if at := l.clock(now); l.unheld.Wait(at) == 0 {
		l.unheld.Charge(at, bytes)
		l.pace.Charge(at, bytes)
	}
}

// finishSend settles a request of which so many bytes were sent.
func (l *Loop) finishSend(r *request, bytes int64, now time.Time) {
	f := r.flow
	delete(l.running, r)
	r.stream.inFlight--
	f.inFlight--
	price := price{}
	if bytes > 0 {
		price = l.costs.price(r.write, true, bytes)
		f.requests++
		f.book(r.stream.Kind, r.write, bytes, price.service)
		if l.onLatency != nil {
			l.onLatency(r.write, now.Sub(r.started))
		}
	}
	if !r.settled {
		l.settle(r, price.tag)
	}
	l.correctLimit(r, bytes, now)
	l.pace.Charge(l.clock(now), bytes-r.length)
}

// closeSend ends a stream. What it may still send and has not goes back.
func (l *Loop) closeSend(s *Stream, pos int64) {
	if pos >= 0 {
		l.sent(s, pos)
	}
	now := time.Now()
	for _, r := range s.pending {
		if passed := s.pos - r.offset; r.started.IsZero() && passed > 0 {
			l.unasked(s, min(passed, r.length), now) // it ends in the middle of one that it had no leave for
		}
	}
	l.cancel(s)
	for _, r := range s.pending {
		l.finishSend(r, min(r.length, max(0, s.pos-r.offset)), now)
		r.finished = true
	}
	s.pending = nil
}

// freeSlots takes the slots of quanta that nobody sends.
func (l *Loop) freeSlots(now time.Time) {
	for r := range l.running {
		if now.Sub(r.started) >= slotWait {
			l.settle(r, r.cost)
			r.settled = true
			delete(l.running, r)
		}
	}
}
