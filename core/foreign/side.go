package foreign

import "penstock/core/cost"

const (
	pageBytes  = 4 << 10   // size of the smallest request
	smallBytes = 64 << 10  // smaller requests do not belong to a stream
	pieceBytes = 512 << 10 // usual size of a stream's request, before it is learnt

	learnBytes  = 1 << 20 // minimum bytes of an interval from which pieces are learnt
	learnPart   = 0.1     // largest part of foreign requests in such an interval
	fewerPieces = 0.3     // gain if there are fewer pieces than estimated
	morePieces  = 0.005   // gain if there are more pieces than estimated, some of which may be small foreign requests
)

// directionEstimate is the estimate for reads or writes.
type directionEstimate struct {
	bytes, requests counterLead
	pieces          float64 // kernel requests per byte of the caller
	learnt          bool
	unmatched       float64 // foreign requests whose bytes may still count as in flight

	// reported are the bytes that were reported as foreign and that the caller did not claim later.
	// reclaimed are the bytes that the caller claimed and that are not yet subtracted from a
	// result.
	reported, reclaimed float64

	byteRate, rate float64 // of foreign I/O, per nanosecond
}

func newDirectionEstimate() directionEstimate { return directionEstimate{pieces: 1.0 / pieceBytes} }

// interval contains the increases since the last call of the device's and the caller's counters,
// and the caller's bytes and requests in flight now.
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

// claim returns the bytes to report: the bytes found, minus bytes that the caller claimed after
// they were reported.
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

// lowerCost returns the cost per time if only the requests that must be small are random.
func (s *directionEstimate) lowerCost(c *cost.Coefficients) float64 {
	small := max(0, s.rate-s.byteRate/smallBytes)
	stream := min(s.rate-small, s.byteRate/pieceBytes)
	return float64(small*float64(c.Random.Fixed)) + float64(stream*float64(c.Sequential.Fixed)) +
		float64(s.byteRate/(1<<20)*float64(c.Sequential.PerMiB))
}

// counterLead is the part of the device counter's lead over the caller's counter that is not
// foreign. The two counters are not read at the same moment, so the lead may be negative, down to
// the amount that was in flight.
type counterLead struct{ by, flying float64 }

// move adds the difference of the two counters' increases. It returns the foreign part of the lead,
// or the amount that the caller claims beyond the amount in flight.
func (a *counterLead) move(more, flying float64) (others, claimed float64) {
	a.by += more
	others = max(0, a.by-flying)
	claimed = max(0, -a.by-max(flying, a.flying))
	a.by += claimed - others
	a.flying = flying
	return others, claimed
}
