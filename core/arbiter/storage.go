package arbiter

import (
	"time"

	"penstock/core/foreign"
)

// The share of a storage service. A server of a parallel file system (a brick process) reads and
// writes for clients on other machines. This I/O never queues here, so weights cannot protect it.
// Config.Storage is the part of the device's time that this service gets before all flows
// together. The flows get what is left: all of the device while the service has no I/O.
//
// The arbiter cannot order the service's requests, but it can keep the device free for them. While
// the service uses the device, requests of flows are started one at a time, and only as many as
// fit into the flows' part of the time. So a request of the service waits for at most one quantum.
// A flow's request also starts when the service has been quiet for storageQuiet. That wait is
// needed because a client that reads one block after the other leaves gaps of about a millisecond
// (deceptive idleness, see anticipation.go). A request that starts in such a gap is not charged to
// the flows' part.
//
// How the arbiter knows of the service's I/O: the kernel counts the requests at the device, without
// owners. While no request of a flow is in flight, each request at the device is foreign. So the
// caller looks at the kernel's counters (LookDue, Look) only at such moments. While nothing of the
// service has been seen for storageCalm, the depth is as usual. But once in storageProbe, requests
// are allowed to end, and the caller looks.
//
// Reads that are at the device when a flow's request has just ended may be prefetches for it. They
// count as the service's only if they are still there, or others have come, after storageSettle.
//
// Written bytes are an exception. A server keeps them in its page cache, and the kernel writes them
// later, in its own order. As many bytes as flows have written, also in turns (Opening.Turn), count
// as theirs when the kernel writes them. Only writes beyond these bytes count as the service's.
type storage struct {
	seen    time.Duration // when I/O of the service was last seen; 0: never
	ended   time.Duration // when a flow's request last ended and none was left in flight
	looked  time.Duration // time of the last look; 0: none
	probe   time.Duration // time of the next look while the service is quiet
	at      time.Duration // when a held request may be able to start; 0 if none is held
	settled bool          // the last look is storageSettle newer than the last flow's request
	doubt   bool          // the last look found reads that may be prefetches
	last    foreign.Counters

	// debt is the time for which the flows have used the device beside the service, less their
	// part of the time since then, as of debtAt. While it is above 0, they wait.
	debt    time.Duration
	debtAt  time.Duration
	contend bool // the next request starts beside the service, and is charged

	written   int64         // bytes of flows that have not been seen in the kernel's counters yet
	writtenAt time.Duration // when a flow last wrote
}

// Activity is what the kernel counts on a device, for all its users.
type Activity struct {
	Reading, Writing int64 // requests at the device now
	Counters         foreign.Counters
}

const (
	storageQuiet  = 5 * time.Millisecond   // more than the think time of a storage client, with the network
	storageSettle = 3 * time.Millisecond   // about the time of a prefetch of some 100 KiB, and below storageQuiet
	storageCalm   = 250 * time.Millisecond // a client computes for less time between two phases of I/O
	storageProbe  = 100 * time.Millisecond // so a client that begins is found after a fraction of a second
	storageLook   = 2 * time.Millisecond   // between two looks while a request is held
	// writtenFor is how long bytes of turns may stay in a page cache: kernelAge, and the time of a long
	// writeback.
	writtenFor = kernelAge + 10*time.Second
	// maxWritten bounds the bytes of turns that are assumed to be in page caches. storageSlack is for
	// the file systems' own blocks.
	maxWritten   = 4 << 30
	storageSlack = 256 << 10
)

// LookDue reports whether the caller must look at the device's activity before it calls Decide.
func (a *Arbiter) LookDue(now time.Duration) bool {
	t := &a.storage
	switch {
	case a.cfg.Storage == 0 || len(a.running) > 0 || a.anticipation.ready == 0:
		return false
	case t.recent(now):
		return t.looked == 0 || now-t.looked >= storageLook || t.looked < t.ended
	}
	return now >= t.probe && !(t.doubt && t.settling(now))
}

// settling reports whether reads at the device may be prefetches for a flow's request.
func (t *storage) settling(now time.Duration) bool { return t.ended > 0 && now-t.ended < storageSettle }

// Look records the activity of the device. The caller looks when LookDue returns true.
func (a *Arbiter) Look(now time.Duration, seen Activity) {
	t := &a.storage
	if len(a.running) > 0 {
		return
	}
	if now-t.writtenAt > writtenFor {
		t.written = 0
	}
	settling := t.settling(now)
	others := seen.Reading > 0 && !settling
	if t.looked > 0 {
		wrote := max(0, seen.Counters.Bytes[1]-t.last.Bytes[1])
		others = others || t.settled && seen.Counters.Requests[0] > t.last.Requests[0] || wrote > t.written+storageSlack
		t.written = max(0, t.written-wrote)
	}
	others = others || seen.Writing > 0 && t.written == 0
	if t.doubt = seen.Reading > 0 && settling; !t.doubt {
		t.probe = now + storageProbe
	}
	if others {
		t.seen = now
	}
	t.looked, t.last, t.settled = now, seen.Counters, !settling
}

// recent reports whether the service has used the device recently.
func (t *storage) recent(now time.Duration) bool { return t.seen > 0 && now-t.seen < storageCalm }

// holds reports whether no request may start now, because the device is kept free for the service.
func (t *storage) holds(a *Arbiter, now time.Duration) bool {
	t.at, t.contend = 0, false
	if a.cfg.Storage == 0 {
		return false
	}
	recent := t.recent(now)
	switch {
	case !recent && now < t.probe:
		return false
	case len(a.running) > 0 && (recent || now-t.probe < a.drainTime()):
		return true // until they have ended
	case !recent && t.doubt && t.settling(now):
		t.at = t.ended + storageSettle
		return true
	case len(a.running) > 0 || t.looked == 0 || now-t.looked > storageLook:
		// Requests do not end, or the kernel's counters cannot be read.
		t.probe = now + storageProbe
		return false
	case !recent:
		return false
	}
	if quiet := max(t.seen, t.ended) + storageQuiet; now >= quiet {
		return false
	} else if t.pay(a, now); t.debt <= 0 {
		t.contend = true
		return false
	}
	t.at = now + storageLook
	return true
}

// drainTime returns how long the requests in flight may take until a look, if the device is sound.
func (a *Arbiter) drainTime() time.Duration {
	return storageProbe + 2*time.Duration(a.depth)*a.pricing.served(false, false, a.cfg.Quantum)
}

// pay reduces the debt by the flows' part of the time.
func (t *storage) pay(a *Arbiter, now time.Duration) {
	t.debt -= time.Duration(float64(now-t.debtAt) * (1 - a.cfg.Storage))
	t.debt, t.debtAt = max(0, t.debt), now
}

// started records that a flow's request starts.
func (t *storage) started(a *Arbiter, r *Request, now time.Duration) {
	if t.settled = false; !t.contend {
		return
	}
	t.contend = false
	t.pay(a, now)
	t.debt += a.pricing.served(r.Write, !r.Stream.Turn, r.Length)
}

// finished records that a flow's request has ended, in which the device moved that many bytes.
func (t *storage) finished(a *Arbiter, r *Request, moved int64, now time.Duration) {
	if len(a.running) == 0 {
		t.ended = now
	}
	if r.Write {
		t.written, t.writtenAt = min(maxWritten, t.written+moved), now
	}
}
