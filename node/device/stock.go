package device

import "time"

// stock is what a tick finds of the device as a whole: who has used it lately, and
// how fast it was while it was used.
type stock struct {
	lazy   int64 // flows of which something waits that is not to be drained yet
	weight int   // of the flows that have used the device lately, together

	moved      int64   // bytes since the last tick
	bytes, use float64 // moving averages: bytes a tick, and the part of ticks with a request
}

const (
	recently  = 2 * time.Second // a flow that had a request so long ago still contends
	stockGain = 0.03            // of a tick in the averages: some 3 s
)

// take looks at all flows.
func (l *Loop) takeStock(now time.Time) {
	s := &l.stock
	s.lazy, s.weight = 0, 0
	for _, f := range l.flows {
		if f.lazy > 0 {
			s.lazy++
		}
		if len(f.ready) > 0 || f.inFlight > 0 {
			f.used = now
		}
		if f.recent(now) {
			s.weight += f.rule.Weight
		}
	}
	used := 0.0
	if s.moved > 0 || len(l.running) > 0 {
		used = 1
	}
	s.bytes += stockGain * (float64(s.moved) - s.bytes)
	s.use += stockGain * (used - s.use)
	s.moved = 0
}

// rate is the device's bytes a second while it had requests; 0 if it had none yet.
func (s *stock) rate() float64 {
	if s.use <= 0 {
		return 0
	}
	return s.bytes / s.use / tickPeriod.Seconds()
}

// recent tells whether the flow has used the device lately.
func (f *flow) recent(now time.Time) bool { return !f.used.IsZero() && now.Sub(f.used) < recently }
