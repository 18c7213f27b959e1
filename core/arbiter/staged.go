package arbiter

import "time"

// Staged bytes ahead of readers are bounded (Config.Staged). Otherwise the page cache would drop
// pages before they are read, and they would be fetched again outside of the schedule. Beyond the
// bound, a flow may have at most an equal part of it, and all flows together twice the bound.
// Beyond that, only readers at their marks are staged for, in small quanta, and from one and a half
// of the bound on in packets. So all readers go on, whatever their number, with as little as
// possible ahead of each, and a flow whose readers do not read on takes no room from others.

// stagingRoom returns how many of n bytes may be staged for the stream now.
func (a *Arbiter) stagingRoom(s *Stream, n int64) int64 {
	switch {
	case a.staged+n <= a.cfg.Staged:
		return n
	case a.staged+n <= 2*a.cfg.Staged && s.flow.staged+n <= a.cfg.Staged/max(1, a.stagedFlows):
		return n
	case s.next-s.pos >= leaseFloor:
		return 0
	case a.staged < a.cfg.Staged+a.cfg.Staged/2:
		return min(n, firstStage)
	}
	return min(n, leaseFloor)
}

// fitToRoom returns how many of the n bytes that the stream wants are staged now that its turn has
// come: at least a packet. There may have been more room when the request was planned, as all
// streams that open at once see the same room.
func (a *Arbiter) fitToRoom(s *Stream, n int64) int64 {
	if s.Kind == Network {
		return n
	}
	return max(a.stagingRoom(s, n), min(n, leaseFloor))
}

// setStaged records how many bytes are staged, or being staged, ahead of a reader.
func (a *Arbiter) setStaged(s *Stream, bytes int64) {
	if s.Write || s.Kind == Network {
		return
	}
	bytes = max(0, bytes)
	a.staged += bytes - s.ahead
	a.stagedFor(s.flow, bytes-s.ahead)
	s.ahead = bytes
}

// stagedFor adds to the bytes staged ahead of a flow's readers.
func (a *Arbiter) stagedFor(f *flow, more int64) {
	was := f.staged > 0
	f.staged += more
	switch is := f.staged > 0; {
	case is && !was:
		a.stagedFlows++
	case was && !is:
		a.stagedFlows--
	}
}

// maxRetries bounds the streams that are retried in one tick.
const maxRetries = 16

// waitForRoom queues a stream for which there is no room to stage.
func (a *Arbiter) waitForRoom(s *Stream) {
	if s.roomIndex == 0 {
		a.roomSeq++
		s.roomSeq = a.roomSeq
		a.roomQueue.set(s)
	}
}

// retryStaging retries streams for which there was no room. It runs at every tick.
func (a *Arbiter) retryStaging(now time.Duration) {
	for n := min(a.roomQueue.len(), maxRetries); n > 0; n-- {
		s := a.roomQueue.first()
		if a.roomQueue.remove(s); !s.closed {
			a.stage(s, now)
		}
	}
}
