package device

import (
	"slices"
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

// wants is the queue that a flow belongs into: its rule's; none while parts are in force, or
// where the scheduler knows no queues.
func (l *Loop) wants(f *flow) *Queue {
	if _, ok := l.sched.(sfq.Queues); !ok || l.parts != nil {
		return nil
	}
	return f.rule.Queue
}

// enqueue puts a flow where it belongs. Only the topmost queues are beside flows whose weights
// have a scale.
func (l *Loop) enqueue(f *flow) {
	want := l.wants(f)
	if want == f.queue && (want == nil || f.scale == l.scale) {
		return
	}
	var way []sfq.Level
	if want != nil {
		way = slices.Clone(want.levels)
		way[0].Weight = min(way[0].Weight*l.scale, sfq.MaxWeight)
	}
	if err := l.sched.(sfq.Queues).SetQueue(f.id, way); err != nil {
		l.fault("put "+f.name+" into queue "+want.Name(), err)
		return
	}
	l.leaveQueue(f)
	if f.queue, f.scale = want, l.scale; want != nil {
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

// flatten finds what each flow weighs among all that are at work, as if there were no queues,
// on the scale of rules: the product, down from the root, of each part among those at work beside it. Room goes by
// that; who is served next does not.
func (l *Loop) flatten(now time.Time) {
	var inside map[string]float64 // weight of who is at work in a queue, by its path
	if l.queued > 0 {
		inside = map[string]float64{}
	}
	for _, f := range l.flows {
		f.among = f.entitled()
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
		f.among = part * weight
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
