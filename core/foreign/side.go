package foreign

import "penstock/core/cost"

const (
	pageBytes  = 4 << 10   // the least that a request has
	smallBytes = 64 << 10  // smaller requests are no stream's
	pieceBytes = 512 << 10 // a usual request of a stream, until it is learnt

	learnBytes  = 1 << 20 // a look at which the device did less teaches nothing about pieces
	learnPart   = 0.1     // nor does one at which others may have made so much of the requests
	fewerPieces = 0.3     // how quickly they are taken to have become fewer
	morePieces  = 0.005   // likewise more: these may be small requests of others
)

// side is one direction.
type directionEstimate struct {
	bytes, requests counterLead
	pieces          float64 // requests that the kernel makes of a byte of the caller's
	learnt          bool
	unmatched       float64 // requests found whose bytes may still be taken for what is in flight

	// Bytes that a look called others' and the caller did not claim later, and
	// those that it claimed and that no later look has given back yet.
	reported, reclaimed float64

	byteRate, rate float64 // others', a nanosecond
}

func newDirectionEstimate() directionEstimate { return directionEstimate{pieces: 1.0 / pieceBytes} }

// seen is what has happened since the last look: what the device did, what of
// that the caller claims, and what the caller has in flight now.
type interval struct {
	deviceBytes, deviceRequests float64 // bytes, requests
	ownBytes, ownRequests       float64
	flyingBytes, flyingRequests float64
}

// look returns the bytes and requests that were others'. Bytes are exact in the
// long run, and requests depend on a guess of pieces, so requests count when there
// are bytes for them.
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

// learn takes the number of pieces from looks at which others did nothing.
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

// claim returns the bytes to report of those found: less those that the caller
// claimed after they were reported.
func (s *directionEstimate) claim(found float64) int64 {
	s.reclaimed = min(s.reclaimed, s.reported)
	back := min(s.reclaimed, found)
	s.reclaimed -= back
	s.reported += found - 2*back
	return int64(min(found-back, 1<<62))
}

// most prices each request as one at a new place: cost a time.
func (s *directionEstimate) upperCost(c *cost.Coefficients) float64 {
	return float64(s.rate*float64(c.Random.Fixed)) + float64(s.byteRate/(1<<20)*float64(c.Random.PerMiB))
}

// least prices so only those that must be small, and the rest as streams.
func (s *directionEstimate) lowerCost(c *cost.Coefficients) float64 {
	small := max(0, s.rate-s.byteRate/smallBytes)
	stream := min(s.rate-small, s.byteRate/pieceBytes)
	return float64(small*float64(c.Random.Fixed)) + float64(stream*float64(c.Sequential.Fixed)) +
		float64(s.byteRate/(1<<20)*float64(c.Sequential.PerMiB))
}

// ahead is what the device's counter is ahead of the caller's by, as far as that
// is not others'. The two are not read at the same moment, so it may also be
// behind, by what was in flight.
type counterLead struct{ by, flying float64 }

// move adds what the device did more than the caller, and returns what is others'
// of it, or else what the caller claims beyond what was in flight.
func (a *counterLead) move(more, flying float64) (others, claimed float64) {
	a.by += more
	others = max(0, a.by-flying)
	claimed = max(0, -a.by-max(flying, a.flying))
	a.by += claimed - others
	a.flying = flying
	return others, claimed
}
