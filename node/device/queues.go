package device

import (
	"time"

	"penstock/core/sfq"
)

// Queues: a flow's weight may be one among those of its queue, whose weight is one among its
// siblings' (core/sfq, Queues). While parts are in force there are none here: the broker has
// made one weight a flow of them.

// Queue is where a flow stands: the way from the root. It is never changed once it is made.
type Queue struct {
	levels []sfq.Level
	paths  []string // of each level, from the root
	flat   float64
}

// NewQueue makes a queue of at least one level. flat is what the flow weighs among all, as if
// there were no queues, while it may not be in them; 0: its rule's weight.
func NewQueue(levels []sfq.Level, flat float64) *Queue {
	q := &Queue{levels: levels, flat: flat}
	path := ""
	for _, l := range levels {
		path += "/" + l.Name
		q.paths = append(q.paths, path)
	}
	return q
}

// Name is the last level's; empty if q is nil.
func (q *Queue) Name() string {
	if q == nil || len(q.levels) == 0 {
		return ""
	}
	return q.levels[len(q.levels)-1].Name
}

// Levels is the way from the root, not to be changed.
func (q *Queue) Levels() []sfq.Level { return q.levels }

// enqueue puts a flow into its rule's queue, or out of it while parts are in force.
func (l *Loop) enqueue(f *flow) {
	want := f.rule.Queue
	if l.parts != nil {
		want = nil
	}
	queues, ok := l.sched.(sfq.Queues)
	if want == f.queue || !ok {
		return
	}
	var way []sfq.Level
	if want != nil {
		for _, level := range want.levels {
			level.Weight = min(level.Weight*l.cfg.WeightScale, sfq.MaxWeight)
			way = append(way, level)
		}
	}
	if err := queues.SetQueue(f.id, way); err != nil {
		l.fault("put "+f.name+" into queue "+want.Name(), err)
		return
	}
	l.leaveQueue(f)
	if f.queue = want; want != nil {
		l.queued++
	}
}

// leaveQueue counts a flow out.
func (l *Loop) leaveQueue(f *flow) {
	if f.queue != nil {
		l.queued--
	}
	f.queue = nil
}

// flatten finds what each flow weighs among all that are at work, as if there were no queues:
// the product, down from the root, of each part among those at work beside it. Room goes by
// that; who is served next does not.
func (l *Loop) flatten(now time.Time) {
	var inside map[string]float64 // weight of who is at work in a queue, by its path
	if l.queued > 0 {
		inside = map[string]float64{}
	}
	for _, f := range l.flows {
		f.among = float64(f.weight)
		if f.queue == nil || !f.atWork(now) {
			continue
		}
		weight := f.among
		for i := len(f.queue.levels) - 1; i >= 0; i-- {
			before := inside[f.queue.paths[i]]
			if inside[f.queue.paths[i]] += weight; before > 0 {
				break // the queue itself is counted
			}
			weight = float64(f.queue.levels[i].Weight)
		}
	}
	for _, f := range l.flows {
		if f.queue == nil {
			continue
		}
		part, weight, counted := 1.0, f.among, f.atWork(now)
		for i := len(f.queue.levels) - 1; i >= 0; i-- {
			all := inside[f.queue.paths[i]]
			if !counted {
				all += weight
			}
			part *= weight / all
			weight, counted = float64(f.queue.levels[i].Weight), inside[f.queue.paths[i]] > 0
		}
		f.among = part * weight * float64(l.cfg.WeightScale)
	}
}

// atWork tells whether the flow has, or had lately, something for the device.
func (f *flow) atWork(now time.Time) bool {
	return len(f.ready) > 0 || f.inFlight > 0 || f.backlog > 0 || f.recent(now)
}

// outweighs tells whether a flow with nothing queued has outweighing times the weight of all
// who wait together.
func (l *Loop) outweighs(f *flow, waits int) bool {
	if l.queued == 0 {
		return f.weight >= outweighing*waits
	}
	return l.sched.(sfq.Queues).Share(f.id)*(outweighing+1) >= outweighing
}
