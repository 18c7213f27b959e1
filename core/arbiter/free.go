package arbiter

import (
	"time"

	"penstock/core/cost"
	"penstock/core/foreign"
)

// Free devices. The daemon's answer to a small read costs the reader a round trip, which is a third of the time of
// the read itself. While nobody competes for the device, the answer is always yes. So a device can be *free*: a small
// read there (at most smallRead bytes) does not wait for its mark. It passes, and the daemon stages its range as
// always. The arbiter decides whether the device is free:
//
//   - For freeAfter, no flow used the device within freeAfter after another flow had used it last. So at most one flow
//     has used the device in that time. A flow uses the device when it opens a stream, makes progress, or has a
//     request, also if all its bytes are in the page cache: whether a passing read needed the device is known only
//     later.
//   - For freeAfter, no flow with a limit has used the device.
//   - For freeAfter, the mode was enforce, no strict rate was in force, the device was not stuck, and its speed was
//     known.
//   - For freeAfter, no stream was unverified for longer than a tick and until the next one. The flow of an unverified (Asked)
//     stream is a claim: it counts as no use at first, because it is mostly verified at once as the flow that uses the device
//     already. After 100 to 200 ms it counts as a use by another flow, whatever it claims. It counts for at most 3.2 s.
//
// So a device stops being free at the first use by a second flow, and becomes free again only after a pause. The arbiter
// keeps only the last flow and two times for this, however many flows appear and vanish.
//
// If a passing reader fetches its pages before the daemon looks, the daemon finds them in the page cache. Whether they
// were there before cannot be seen in the cache: a page that is being read counts as present. The kernel's counters
// of the device show what was read: Observe charges the bytes that the device has read beyond the daemon's requests to the flows
// whose passing readers found their ranges resident, at most as many as they found. So a flow that reads fast is
// charged like any other.
//
// IBIS has no free devices: there, every request waits for its turn.

const (
	freeAfter = 2 * time.Second
	// metaAhead is how much the kernel reads at the beginning of a checksum file: every reader reads the header.
	metaAhead = 16 << 10
	// mostParts bounds the random requests that one charge counts.
	mostParts = 1 << 16
	// maxClaimTicks bounds the ticks for which an unverified stream counts, so that one which is never verified does not count
	// forever.
	maxClaimTicks = 32
)

// free is the state of the decision and of the account of passing reads.
type free struct {
	is    bool
	at    time.Duration // the device may be free from then on; 0 before the first tick
	last  *flow         // the flow that used the device last; nil if there was none
	used  time.Duration // when last used the device
	reads int64         // passing reads so far

	claims [maxClaimTicks]int // Asked streams that were opened in the last ticks and are not verified yet, by Stream.claimedIn
	tick   int                // number of the present tick, from 1

	begun    bool
	assigned int64 // bytes of the kernel's counter beyond the daemon's requests that are assigned already
	requests int64 // read requests of the kernel's counter beyond the daemon's, at the last call
	spare    int64 // of these, the last call's ones that no charge has needed
	settled  time.Duration
}

// passed are the bytes that passing readers found in the page cache and may have fetched themselves, in parts of
// files. kind is that of the last reader.
type passed struct {
	bytes, parts  int64
	due, dueParts int64 // of these, to be charged in the present call of settlePassing
	kind          Kind
}

// Free reports whether small reads need not wait.
func (a *Arbiter) Free() bool { return a.free.is }

// use records that a flow uses the device.
func (a *Arbiter) use(f *flow, now time.Duration) {
	k := &a.free
	if f.limit != nil || k.last != nil && k.last != f && now-k.used < freeAfter {
		a.bar(now)
	}
	k.last, k.used = f, now
}

// beginClaim records an Asked stream that begins.
func (a *Arbiter) beginClaim(s *Stream) {
	if s.Asked {
		s.claimedIn = max(a.free.tick, 1)
		a.free.claims[s.claimedIn%maxClaimTicks]++
	}
}

// endClaim records that a stream is verified.
func (a *Arbiter) endClaim(s *Stream) {
	if k := &a.free; s.claimedIn > 0 && k.tick-s.claimedIn < maxClaimTicks {
		k.claims[s.claimedIn%maxClaimTicks]--
	}
	s.claimedIn = 0
}

// ageClaims bars the device if a stream is unverified for longer than a tick. It runs once at every tick.
func (a *Arbiter) ageClaims(now time.Duration) {
	k := &a.free
	k.tick = max(k.tick, 1) + 1
	k.claims[k.tick%maxClaimTicks] = 0
	for age := 2; age < maxClaimTicks && age < k.tick; age++ {
		if k.claims[(k.tick-age)%maxClaimTicks] > 0 {
			a.bar(now)
			return
		}
	}
}

// useOf records that the stream's flow uses the device. The flow of an Asked stream is not known yet, and Reassign
// records it.
func (a *Arbiter) useOf(s *Stream, now time.Duration) {
	if !s.Asked {
		a.use(s.flow, now)
	}
}

// bar ends the time in which the device is free. It begins again after freeAfter at the earliest.
func (a *Arbiter) bar(now time.Duration) { a.free.is, a.free.at = false, now+freeAfter }

// measureFree decides whether the device is free. It runs at every tick.
func (a *Arbiter) measureFree(now time.Duration) {
	k := &a.free
	for _, r := range a.running {
		if now-r.started >= tickPeriod && !r.Stream.Asked {
			a.use(r.flow, now)
		}
	}
	for _, f := range a.active {
		if f.backlog > f.deferred || f.readySince > 0 && now-f.readySince >= tickPeriod {
			a.use(f, now)
		}
	}
	_, known := a.pricing.tracker.Healthy()
	if k.at == 0 || a.cfg.Network || a.cfg.Storage > 0 || a.cfg.Peer || a.mode != Enforce || a.stuck || a.strict.rest != nil || !known {
		a.bar(now)
	}
	k.is = now >= k.at
}

// applyFree decides whether the device is free when a policy has come into force.
func (a *Arbiter) applyFree(now time.Duration) {
	k := &a.free
	if k.last != nil && a.flows[k.last.name] == k.last && k.last.limit != nil && now-k.used < freeAfter {
		a.bar(now)
	}
	a.measureFree(now)
}

// foundResident records bytes of a read that were in the page cache when the daemon looked.
func (s *Stream) foundResident(f *flow, bytes int64) {
	switch {
	case bytes <= 0:
	case s.Passing:
		p := &f.passed[0]
		p.bytes += bytes
		p.parts++
		p.kind = s.Kind
	default:
		f.resident += bytes
	}
}

// beginPassing records a passing read that begins.
func (a *Arbiter) beginPassing(s *Stream) {
	if !s.Passing {
		return
	}
	a.free.reads++
	switch {
	case s.Meta == nil:
	case s.meta.next < s.meta.end: // the rest is staged
		s.foundResident(s.flow, metaAhead)
	default:
		s.foundResident(s.flow, metaAhead+2*pageBytes)
	}
}

// settlePassing charges what passing readers have fetched themselves, by the kernel's counters of the device and by
// the bytes of the requests in flight. A read that the device ends after a call is found by the next one.
//
// A flow is charged only for what the device can have done. Its parts count as at most as many random requests as the
// kernel has counted beyond the daemon's own, in this call's time or, if they were not needed, in the last one's. All flows
// together are charged at most the time since the last call, less that of the daemon's own requests.
func (a *Arbiter) settlePassing(device, flying foreign.Counters, now time.Duration) {
	k := &a.free
	lead := device.Bytes[0] - a.pricing.own.Bytes[0] - a.pricing.kernelRead
	requests := device.Requests[0] - a.pricing.own.Requests[0]
	if !k.begun || lead < k.assigned {
		k.begun, k.assigned, k.requests, k.spare, k.settled = true, lead, requests, 0, now
	}
	fresh, elapsed := max(0, requests-k.requests), now-k.settled
	k.requests, k.settled = requests, now
	left, parts := lead-k.assigned-flying.Bytes[0], int64(0)
	for _, f := range a.all {
		for i := len(f.passed) - 1; i >= 0; i-- { // the older ones first
			parts += f.passed[i].assign(&left)
		}
	}
	most := fresh + k.spare
	k.spare = min(fresh, max(0, most-parts))
	a.chargePassed(parts, most, elapsed, now)
	for _, f := range a.all {
		f.resident += f.passed[1].bytes
		f.passed[1], f.passed[0] = f.passed[0], passed{}
	}
	if left > 0 {
		k.assigned += left // foreign
	}
}

// assign takes the bytes that are to be charged from left, and returns the number of their parts.
func (p *passed) assign(left *int64) int64 {
	p.due, p.dueParts = max(0, min(p.bytes, *left)), 0
	if p.due > 0 {
		p.dueParts = min(max(1, p.parts*p.due/p.bytes), mostParts)
	}
	p.bytes, p.parts, *left = p.bytes-p.due, p.parts-p.dueParts, *left-p.due
	return p.dueParts
}

// chargePassed charges the assigned bytes. parts is the number of their parts, of which at most requests were requests of the
// device. elapsed is the time since the last call.
func (a *Arbiter) chargePassed(parts, requests int64, elapsed, now time.Duration) {
	if parts == 0 {
		return
	}
	p, scale := &a.pricing, a.pricing.tracker.Scale(false)
	work := 0.0 // by the model
	for _, f := range a.all {
		for i := range f.passed {
			if d := &f.passed[i]; d.due > 0 {
				if parts > requests {
					d.dueParts = max(1, int64(float64(d.dueParts)*float64(requests)/float64(parts)))
				}
				work += float64(float64(d.dueParts) * float64(p.of(false, false, d.due/d.dueParts)))
			}
		}
	}
	room := max(0, float64(elapsed)/scale-float64(p.work)-float64(p.unscheduledWork))
	part := 1.0
	if work > room {
		part = room / work
	}
	for _, f := range a.all {
		for i := len(f.passed) - 1; i >= 0; i-- {
			d := &f.passed[i]
			if d.due == 0 {
				continue
			}
			price := p.unscheduledParts(d.due, d.dueParts, part)
			f.unscheduled += d.due
			f.book(d.kind, false, d.due, price.service)
			a.chargeUnscheduled(f, price.tag)
			a.takeLimit(f, d.due, now)
			a.payOverdue(f, d.due, price.service, now)
		}
	}
}

// unscheduledParts returns a part, 0 to 1, of the price of bytes that the kernel has read in parts of files, each as a random
// request.
func (p *pricing) unscheduledParts(bytes, parts int64, part float64) (sum price) {
	each := p.price(false, false, bytes/parts)
	n := float64(float64(parts) * part)
	p.kernelRead += bytes
	p.foreign.Moved(false, bytes)
	p.unscheduledWork = min(p.unscheduledWork+time.Duration(n*float64(p.of(false, false, bytes/parts))), cost.Max)
	return price{tag: int64(n * float64(each.tag)), service: int64(n * float64(each.service))}
}
