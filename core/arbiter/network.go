package arbiter

import (
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/limit"
)

// The network device. The daemon does not send anything itself. A request is the permission to send
// a quantum. The scheduler dispatches a request once the earlier quanta have had their time at the
// device's rate. The request raises the stream's mark. It ends when the agent reports that the
// quantum is sent, or when the stream closes.
//
// The shares divide the rate. The depth bounds the quanta in flight if the network is slower than
// the rate. A slow receiver must not hold a slot. So a quantum that is not sent within slotWait
// gives its slot back, and a stream has permission for at most a few quanta ahead of its position.

const (
	networkQuantum = 256 << 10
	networkAhead   = 4
	networkDepth   = 64
	paceCredit     = 5 * time.Millisecond // compensates for late calls of Decide
	paceDebt       = time.Second          // for bytes sent without permission
	slotWait       = 200 * time.Millisecond
)

// networkDefaults fills in the defaults that differ from a disk's.
func (c *Config) networkDefaults() {
	setDefault(&c.Algorithm, "sfqd")
	setDefault(&c.Quantum, networkQuantum)
	setDefault(&c.Ahead, networkAhead)
	setDefault(&c.FixedDepth, networkDepth)
	line := cost.Line{PerMiB: 10 * time.Millisecond} // without a rate, only bytes count
	if c.Rate > 0 {
		line.PerMiB = min(cost.PerMiBMax, max(cost.PerMiBMin, time.Duration(float64(1<<20)/float64(c.Rate)*float64(time.Second))))
		same := cost.Coefficients{Random: line, Sequential: line}
		c.Cost = cost.Model{Read: same, Write: same}
	}
	c.Depth = depth.Config{Read: depth.Line(line)}
}

// pacer enforces the rate of a network device.
type pacer struct {
	rate        *limit.Bucket // nil if there is no rate
	unscheduled *limit.Bucket // the part of the rate that unpermitted bytes can use up
	at          time.Duration // when the rate allows the next request; 0 if no request waits
}

// newPacer returns the pacer of a device. In the long run, bytes sent without permission use up at
// most three quarters of the rate.
func newPacer(c *Config) (p pacer, err error) {
	if !c.Network || c.Rate == 0 {
		return p, nil
	}
	if p.rate, err = limit.New(limit.Config{Rate: c.Rate, Credit: paceCredit, Debt: paceDebt}); err != nil {
		return p, err
	}
	p.unscheduled, err = limit.New(limit.Config{Rate: max(limit.MinRate, c.Rate/4*3), Credit: 2 * paceDebt, Debt: 2 * paceDebt})
	return p, err
}

func (p *pacer) wait(now time.Duration) time.Duration {
	if p.rate == nil {
		return 0
	}
	return p.rate.Wait(now)
}

// requestSend finds the next quantum that the sender wants, and sends the stream's mark.
func (a *Arbiter) requestSend(s *Stream, now time.Duration) {
	if a.pacer.rate == nil {
		s.mark = Open
		a.sendMark(s)
		return
	}
	quantum := a.quantum(s.flow)
	s.want = 0
	if s.next < s.To && s.next < s.pos+int64(a.cfg.Ahead)*quantum {
		s.want = min(quantum, s.To-s.next)
	}
	s.mark = max(s.mark, s.done)
	if s.done >= s.To {
		s.mark = Open
	}
	a.updateReady(s, now)
	a.updateWait(s, now)
	a.sendMark(s)
}

// permit permits the stream to send the quantum of a request.
func (a *Arbiter) permit(r *Request, now time.Duration) {
	s := r.Stream
	s.sending = append(s.sending, r)
	s.pending = s.pending[:0]
	a.pacer.rate.Charge(now, r.Length) // dispatch has waited for the rate
	s.done = max(s.done, r.Offset+r.Length)
	a.requestSend(s, now)
}

// sendProgress records the sender's progress.
func (a *Arbiter) sendProgress(s *Stream, pos int64, now time.Duration) {
	if pos = min(pos, s.To); pos <= s.pos {
		return
	}
	s.countStreamed(pos - s.pos)
	if a.pacer.rate == nil {
		bytes := pos - s.pos
		s.flow.book(s.Kind, s.Write, bytes, a.pricing.price(s.Write, true, bytes).service)
		s.next, s.done = pos, pos
	}
	s.pos = pos
	unasked := max(0, pos-s.next) // the sender did not wait: in observe mode, or while the daemon was down
	s.next = max(s.next, pos)
	s.done = max(s.done, pos)
	ended := 0
	for ended < len(s.sending) && s.sending[ended].Offset+s.sending[ended].Length <= pos {
		a.finishSend(s.sending[ended], s.sending[ended].Length, now)
		ended++
	}
	n := copy(s.sending, s.sending[ended:])
	clear(s.sending[n:])
	s.sending = s.sending[:n]
	if unasked > 0 {
		a.bookUnpermitted(s, unasked, now)
	}
	if !s.closed {
		a.requestSend(s, now)
	}
}

// bookUnpermitted accounts for bytes that were sent without permission, by a stream in observe mode
// or a stream that was let through. These bytes used a part of the rate that other flows then lack.
// Because they do not wait for their turn, they must not use up the whole rate.
func (a *Arbiter) bookUnpermitted(s *Stream, bytes int64, now time.Duration) {
	a.bookUnscheduled(s, bytes, now)
	if a.pacer.unscheduled.Wait(now) == 0 {
		a.pacer.unscheduled.Charge(now, bytes)
		a.pacer.rate.Charge(now, bytes)
	}
}

// finishSend ends a request. bytes is the part of it that was sent.
func (a *Arbiter) finishSend(r *Request, bytes int64, now time.Duration) {
	f := r.flow
	if r.index > 0 {
		a.removeRunning(r, now)
	} else {
		r.Stream.inFlight--
		f.inFlight--
		f.draining -= direction(r.Write)
	}
	price := price{}
	if bytes > 0 {
		price = a.pricing.price(r.Write, true, bytes)
		f.requests++
		f.book(r.Stream.Kind, r.Write, bytes, price.service)
	}
	if !r.settled {
		a.settleCost(r, price.tag)
	}
	a.takeLimit(f, bytes-r.Length, now)
	a.settleStrict(r, price.service, now)
	a.settleReserve(f, r, bytes, price.service, now)
	a.pacer.rate.Charge(now, bytes-r.Length)
	*r = Request{}
	a.spare = append(a.spare, r)
}

// closeSend ends a stream. Bytes that the stream was permitted to send and did not send are not
// charged.
func (a *Arbiter) closeSend(s *Stream, pos int64, now time.Duration) {
	if pos >= 0 {
		a.sendProgress(s, pos, now)
	}
	s.want = 0
	a.updateReady(s, now)
	for _, r := range s.sending {
		a.finishSend(r, min(r.Length, max(0, s.pos-r.Offset)), now)
	}
	s.sending = nil
}

// freeSlots frees the slots of quanta that are not sent in time.
func (a *Arbiter) freeSlots(now time.Duration) {
	for i := 0; i < len(a.running); {
		r := a.running[i]
		if now-r.started < slotWait {
			i++
			continue
		}
		a.settleCost(r, r.cost)
		r.settled = true
		a.removeRunning(r, now)
		r.Stream.inFlight++ // the request still belongs to the stream, and ends with it
		r.flow.inFlight++
		r.flow.draining += direction(r.Write)
	}
}
