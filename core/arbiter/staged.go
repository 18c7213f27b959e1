package arbiter

import "time"

// What is staged ahead of readers has a bound (Config.Staged). Otherwise the page cache would drop
// pages before their readers come, and they would be fetched twice, the second time outside of the
// schedule. Past the bound only readers at their marks are staged for, in small quanta, and past
// twice the bound in packets. So all of them go on, however many there are, with as little as
// possible ahead of each.

// stageable returns how many of n bytes may be staged for the stream now.
func (a *Arbiter) stageable(s *Stream, n int64) int64 {
	switch {
	case a.staged+n <= a.cfg.Staged:
		return n
	case s.next-s.pos >= leaseFloor:
		return 0
	case a.staged < 2*a.cfg.Staged:
		return min(n, firstStage)
	}
	return min(n, leaseFloor)
}

// fitting returns how many of the n bytes that the stream wants are staged now that its turn has
// come: at least a packet. There may have been more room when it was looked at, as all streams that
// open at once find the same room.
func (a *Arbiter) fitting(s *Stream, n int64) int64 {
	if s.Kind == Network {
		return n
	}
	return max(a.stageable(s, n), min(n, leaseFloor))
}

// setStaged notes how many bytes are staged, or being staged, ahead of a reader.
func (a *Arbiter) setStaged(s *Stream, bytes int64) {
	if s.Write || s.Kind == Network {
		return
	}
	bytes = max(0, bytes)
	a.staged += bytes - s.ahead
	s.ahead = bytes
}

// shortOf notes that there is no room to stage for a stream.
func (a *Arbiter) shortOf(s *Stream) {
	if !s.short {
		s.short = true
		a.shorts = append(a.shorts, s)
	}
}

// stageShort looks again at streams for which there was no room, while there is some. It runs at
// every tick.
func (a *Arbiter) stageShort(now time.Duration) {
	looked := 0
	for n := len(a.shorts); looked < n && a.staged < a.cfg.Staged; looked++ {
		s := a.shorts[looked]
		if s.short = false; !s.closed && !s.over {
			a.stage(s, now)
		}
	}
	n := copy(a.shorts, a.shorts[looked:])
	clear(a.shorts[n:])
	a.shorts = a.shorts[:n]
}
