package foreign

import "penstock/core/cost"

const (
	pageBytes  = 4 << 10   // the smallest request
	smallBytes = 64 << 10  // smaller requests do not belong to a stream
	pieceBytes = 512 << 10 // a usual request of a stream, before the size is learnt

	learnBytes  = 1 << 20 // least bytes of an interval from which pieces are learnt
	learnPart   = 0.1     // largest part of foreign requests in such an interval
	fewerPieces = 0.3     // gain if there are fewer pieces
	morePieces  = 0.005   // gain if there are more, which may be small foreign requests
)

// directionEstimate is the estimate for reads or writes.
type directionEstimate struct {
	bytes, requests counterLead
	pieces          float64 // requests of the kernel per byte of the caller
	learnt          bool
	unmatched       float64 // foreign requests whose bytes may still count as in flight

	// Bytes that were reported as foreign and not claimed by the caller later, and bytes that the
	// caller claimed and that were not yet subtracted from a later result.
	reported, reclaimed float64

	byteRate, rate float64 // of foreign I/O, per nanosecond
}

func newDirectionEstimate() directionEstimate { return directionEstimate{pieces: 1.0 / pieceBytes} }

// interval is what happened since the last call: the device's counts, the caller's, and what the
// caller has in flight now.
type interval struct {
	deviceBytes, deviceRequests float64 // bytes, requests
	ownBytes, ownRequests       float64
	flyingBytes, flyingRequests float64
}

// update returns the foreign bytes and requests of an interval. Bytes are exact in the long run.
// Requests depend on the estimate of pieces, so they count only as far as there are bytes for them.
func (s *directionEstimate) update(n interval) (bytes, requests float64) {
	bytes, claimed := s.bytes.move(n.deviceBytes-n.ownBytes, n.flyingBytes)
	s.reclaimed += claimed
	s.learn(n, bytes)
	requests, _ = s.requests.move(n.deviceRequests-max(n.ownRequests, n.ownBytes*s.pieces), max(n.flyingRequests, n.flyingBytes*s.pieces))
	requests += s.unmatched
	matched := min(requests, bytes/pageBytes)
	s.unmatched = min(requests-matched, max(0, s.bytes.by)/pageBytes)
	return bytes, max(matched, bytes/pieceBytes)
}

// learn updates the number of pieces from an interval without relevant foreign I/O.
func (s *directionEstimate) learn(n interval, others float64) {
	theirs := others / pageBytes
	if n.deviceBytes-others < learnBytes || theirs > learnPart*n.deviceRequests {
		return
	}
	pieces := (n.deviceRequests - theirs) / (n.deviceBytes - others)
	gain := morePieces
	switch {
	case !s.learnt:
		gain = 1
	case pieces < s.pieces:
		gain = fewerPieces
	}
	s.pieces += float64(gain * (pieces - s.pieces))
	s.learnt = true
}

// claim returns the bytes to report: those found, less those that the caller claimed after they
// were reported.
func (s *directionEstimate) claim(found float64) int64 {
	s.reclaimed = min(s.reclaimed, s.reported)
	back := min(s.reclaimed, found)
	s.reclaimed -= back
	s.reported += found - 2*back
	return int64(min(found-back, 1<<62))
}

// upperCost returns the cost per time if all requests are random.
func (s *directionEstimate) upperCost(c *cost.Coefficients) float64 {
	return float64(s.rate*float64(c.Random.Fixed)) + float64(s.byteRate/(1<<20)*float64(c.Random.PerMiB))
}

// lowerCost returns the cost per time if only those requests are random that must be small.
func (s *directionEstimate) lowerCost(c *cost.Coefficients) float64 {
	small := max(0, s.rate-s.byteRate/smallBytes)
	stream := min(s.rate-small, s.byteRate/pieceBytes)
	return float64(small*float64(c.Random.Fixed)) + float64(stream*float64(c.Sequential.Fixed)) +
		float64(s.byteRate/(1<<20)*float64(c.Sequential.PerMiB))
}

// counterLead is the lead of the device's counter over the caller's that is not foreign. The two
// are not read at the same moment, so it may be negative, down to what was in flight.
type counterLead struct{ by, flying float64 }

// move adds the difference of the increases, and returns what is foreign of it, or what the caller
// claims beyond what was in flight.
func (a *counterLead) move(more, flying float64) (others, claimed float64) {
	a.by += more
	others = max(0, a.by-flying)
	claimed = max(0, -a.by-max(flying, a.flying))
	a.by += claimed - others
	a.flying = flying
	return others, claimed
}
