package device

import "time"

// stock is what a tick finds of the device as a whole: who has used it lately, and
// how fast it was while it was used. Weights count as far as they claim something: a
// heavy flow that writes a line of its log now and then takes room from nobody.
type stock struct {
	lazy    spills
	writing float64 // weight of those that have more of a backlog than each may have anyway
	weight  float64 // of those that have used the device lately, by how much of the time

	soon   int     // flows that mostly come back at once (expect.go), or more than there are
	recent []*flow // those that have used the device lately, themselves

	moved int64   // bytes since the last tick
	bytes float64 // moving average of a tick with a request, from 0 on
	seen  float64 // how far from 0 it has come, 0..1
}

// spills is who has something waiting that need not be drained yet.
type spills struct {
	weight float64 // of all of them
	using  float64 // of those that have more than half of their part
	others int64   // bytes that are kept for the rest: twice what they have
}

const (
	// drainTime is how long a flow's share of the device may take for its backlog
	// beyond what each may have. When the share becomes a small one, so much of the
	// device's time may go to what was written before. lazyTime is the same for what
	// waits without being drained.
	drainTime = 8 * time.Second
	lazyTime  = 12 * time.Second

	// kernelAge is when the kernel writes by itself at the latest: after
	// vm.dirty_expire_centisecs, when it looks, as they mostly are.
	kernelAge = 35 * time.Second

	lessening = 0.4             // of what a flow drains, by which each of its two bounds may sink
	recently  = 2 * time.Second // a flow that had a request so long ago still contends
	stockGain = 0.03            // of a tick in the averages: some 3 s
	busyGain  = 0.1             // of one with a request, in how busy a flow is: who begins claims all of it soon
)

// takeStock looks at all flows.
func (l *Loop) takeStock(now time.Time) {
	s := &l.stock
	l.flatten(now)
	clear(s.recent)
	s.lazy, s.writing, s.weight, s.soon, s.recent = spills{}, 0, 0, 0, s.recent[:0]
	enough := l.cfg.Backlog / 2
	for _, f := range l.flows {
		if f.lazy > 0 {
			s.lazy.weight += f.among
		}
		if f.backlog-min(f.lazy, f.lazyRoom) > enough {
			s.writing += f.among
		}
		if len(f.ready) > 0 || f.inFlight > 0 {
			f.used = now
			f.busy += busyGain * (1 - f.busy)
		} else {
			f.busy -= stockGain * f.busy
		}
		if f.listed = f.recent(now); f.listed {
			s.weight += f.claims()
			s.recent = append(s.recent, f)
			if l.soonBack(f) {
				s.soon++
			}
		}
	}
	for _, f := range l.flows {
		if f.spills = 2*f.lazy > f.portion(l.cfg.Lazy, s.lazy.weight); f.spills {
			s.lazy.using += f.among
		} else {
			s.lazy.others += 2 * f.lazy
		}
	}
	if s.moved > 0 || len(l.running) > 0 {
		s.bytes += stockGain * (float64(s.moved) - s.bytes)
		s.seen += stockGain * (1 - s.seen)
		s.moved = 0
	}
}

// rate is the device's bytes a second while it had requests, lately; 0 if it had none yet.
func (s *stock) rate() float64 {
	if s.seen <= 0 {
		return 0
	}
	return s.bytes / s.seen / tickPeriod.Seconds()
}

// drains is what the flow's share of the device, beside those who have used it
// lately, drains in some time; 0 where nobody knows yet.
func (l *Loop) drains(f *flow, in time.Duration) int64 {
	others := l.stock.weight
	if f.listed {
		others -= f.claims()
	}
	share := f.among / (f.among + max(0, others))
	return int64(l.stock.rate() * share * in.Seconds())
}

// claims is the flow's weight by how much of the time it has wanted the device, lately.
func (f *flow) claims() float64 { return f.among * f.busy }

// portion is the flow's of bytes that flows of so much weight divide, itself among them.
func (f *flow) portion(bytes int64, weight float64) int64 {
	return int64(float64(bytes) * f.among / max(weight, f.among))
}

// lazyPart is the flow's of what may wait on the device: its weight's part and, if it uses
// that, of what others leave of theirs.
func (l *Loop) lazyPart(f *flow) int64 {
	s := &l.stock.lazy
	part := f.portion(l.cfg.Lazy, s.weight)
	if f.spills {
		part = max(part, f.portion(l.cfg.Lazy-s.others, s.using))
	}
	return part
}

// SetRoom changes Config.Dirty and Config.Lazy.
func (l *Loop) SetRoom(dirty, lazy int64) {
	l.send(event{kind: evCall, call: func() {
		l.cfg.Dirty, l.cfg.Lazy = max(l.cfg.Backlog, dirty), max(leaseFloor, lazy)
	}})
}

// recent tells whether the flow has used the device lately.
func (f *flow) recent(now time.Time) bool { return !f.used.IsZero() && now.Sub(f.used) < recently }
