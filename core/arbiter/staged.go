package arbiter

import "time"

// The bytes staged ahead of readers are bounded (Config.Staged). Otherwise the kernel would drop
// pages before they are read, and fetch them again outside of the schedule. Beyond the bound, a
// flow may have at most an equal part of the bound, and all flows together at most twice the bound.
// Beyond these limits, bytes are staged only for readers at their marks, in small quanta. From one
// and a half times the bound on, these quanta are packets. So all readers make progress, whatever
// their number, with as few bytes as possible ahead of each. A flow with readers that stop reading
// takes no room from other flows.

// stagingRoom returns how many of n bytes may be staged for the stream now.
func (a *Arbiter) stagingRoom(s *Stream, n int64) int64 {
	switch {
	case s.Turn || a.staged+n <= a.cfg.Staged:
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

// fitToRoom returns how many of the n bytes that the stream wants are staged, at the moment when
// its request is dispatched. It returns at least a packet. There may have been more room when the
// request was planned, because all streams that open at once see the same room.
func (a *Arbiter) fitToRoom(s *Stream, n int64) int64 {
	if s.Kind == Network || s.Turn {
		return n
	}
	return max(a.stagingRoom(s, n), min(n, leaseFloor))
}

// setStaged sets the number of bytes that are staged, or being staged, ahead of a reader.
func (a *Arbiter) setStaged(s *Stream, bytes int64) {
	if s.Write || s.Kind == Network || s.Turn {
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
