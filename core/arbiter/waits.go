package arbiter

import "time"

// Waiting, for estimates of slowdowns (package slowdown). Two accounts are kept for each flow of a disk:
//
//   - How long its streams are open, and how long they wait: a reader at its mark, a writer while the backlog of its flow
//     is full. The writers of a flow share one bound, and a writer in a pipeline waits where the pipeline is slowest. So
//     while one of a flow's writers waits, all count as waiting.
//   - How long the device was contended: the flow had a request, and other flows had the device. If the flow has some of
//     the requests in flight, the others' part of them counts. A request that continues the flow's previous one, and
//     needs a seek because another flow's came between, is longer by a seek; STFM does the same for rows of memory.
//
// Both cost a few additions for each request.

// waitAccount is the account of one flow. Its durations only grow.
type waitAccount struct {
	at        time.Duration // up to which the account is settled
	slots     float64       // Arbiter.slotTime at that time
	streams   time.Duration // sum over streams of the time for which they were open
	waited    time.Duration // sum over streams of the time for which they waited
	contended time.Duration
	file      File  // of the flow's last request
	end       int64 // of that request
}

// Waits is the waiting of one flow. Durations only grow.
type Waits struct {
	Streams   time.Duration // sum over streams of the time for which they were open
	Waited    time.Duration // of this, the time for which they waited at their marks
	Contended time.Duration // time for which the flow had a request and the device served other flows
}

// noteSlots adds the time since the last change of the requests in flight to slotTime. It is called before each change.
func (a *Arbiter) noteSlots(now time.Duration) {
	if now == a.slotAt {
		return
	}
	if n := len(a.running); n > 0 {
		a.slotTime += float64(now-a.slotAt) / float64(n)
	}
	a.slotAt = now
}

// settleWaits brings a flow's account up to now. It is called before each change of what the account depends on.
func (a *Arbiter) settleWaits(f *flow, now time.Duration) {
	w := &f.waitAccount
	passed := now - w.at
	if passed <= 0 || a.cfg.Network {
		w.at, w.slots = now, a.slotTime
		return
	}
	w.at = now
	waiting := f.stalled - f.stalledWriters
	if f.stalledWriters > 0 {
		waiting += max(f.writing, f.stalledWriters)
	}
	open := f.reading + f.writing
	w.streams += passed * time.Duration(open)
	w.waited += passed * time.Duration(min(waiting, open))
	if f.announced > 0 || f.inFlight > 0 {
		a.noteSlots(now)
		w.contended += passed
		if f.inFlight > 0 {
			w.contended -= min(time.Duration(float64(f.inFlight)*(a.slotTime-w.slots)), passed)
		}
	}
	w.slots = a.slotTime
}

// noteSeek adds the seek that a completed request needed because of other flows. goesOn reports whether it began where the
// device's previous request ended.
func (a *Arbiter) noteSeek(r *Request, goesOn bool, moved int64) {
	w := &r.flow.waitAccount
	if !goesOn && w.file == r.File() && w.end == r.Offset {
		w.contended += a.pricing.served(r.Write, false, moved) - a.pricing.served(r.Write, true, moved)
	}
	w.file, w.end = r.File(), r.Offset+r.Length
}

// settleRequests is settleWaits before the flow's requests change.
func (a *Arbiter) settleRequests(f *flow, now time.Duration) {
	a.noteSlots(now)
	a.settleWaits(f, now)
}

// Waits returns the waiting of a flow so far; it is empty if there is no such flow.
func (a *Arbiter) Waits(now time.Duration, flow string) Waits {
	f := a.flows[flow]
	if f == nil {
		return Waits{}
	}
	return a.waitsOf(f, now)
}

func (a *Arbiter) waitsOf(f *flow, now time.Duration) Waits {
	a.settleRequests(f, now)
	w := &f.waitAccount
	return Waits{Streams: w.streams, Waited: w.waited, Contended: w.contended}
}
