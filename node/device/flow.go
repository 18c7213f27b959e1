package device

import (
	"slices"
	"time"

	"penstock/core/limit"
	"penstock/core/sfq"
)

// flow is one application's queue at the device.
//
// The scheduler says whose turn it is; which of the flow's ready requests then
// goes is decided here, at that moment (take), so that consecutive quanta of
// one file go out together and the flow's own files do not make the disk seek
// between them. Costs that differ are settled when the request completes.
type flow struct {
	name    string
	id      sfq.Flow
	rule    Rule
	ready   []*request // what the flow wants done, oldest first
	offers  []offer    // of them, what the scheduler knows of, oldest first
	last    *Stream    // whose request went last
	run     int64      // bytes served of last in a row
	wrote   bool       // that was a write
	streams int
	writers []*Stream // with a backlog, or open
	writing int       // of them, open
	backlog int64
	idle    time.Time // when the last stream left

	lazy     int64         // of the backlog, bytes of kind intermediate that are not queued
	room     int64         // what its backlog may be (bound), and
	lazyRoom int64         // what of lazy may wait (lazyBound)
	spills   bool          // more than half of its part waited at the last tick (stock)
	early    int64         // bytes that drainInTime may queue
	kept     int           // closed streams that have some
	inFlight int           // requests that were started for it
	used     time.Time     // when it last had a request
	part     float64       // on the scale of weights, of what all devices give (SetParts); 0: none
	weight   int           // the scheduler's: rule and part (weigh)
	queue    *Queue        // that it is in; nil: none
	scale    int           // Loop.scale when it was put there
	among    float64       // the weight as if there were no queues, on the scale of rules (flatten)
	asked    time.Time     // since when something is offered to the scheduler; zero: nothing is
	wanted   time.Duration // how long something was, before that
	busy     float64       // part of the ticks with one, lately (stock); 1 at first
	soon     float64       // part of its returns that came soon, lately
	listed   bool          // among the recent ones (stock)

	limit  *limit.Bucket // nil: none
	due    time.Time     // when the limit lets the next request go
	held   bool          // it waits for that
	heldAt int           // its place among those that do

	kinds     [kinds]account
	resident  int64 // bytes read that needed no device
	behind    int64 // bytes that the kernel moved for the flow, unscheduled
	requests  int64
	forced    int64         // minimum quanta let through after MaxWait
	wouldWait time.Duration // observe: what enforcing would have delayed
	waits     int64

	limitWaits   int64 // requests that waited for the limit
	dropped      int64 // lazy files deleted before they were drained
	droppedBytes int64
}

// take picks the ready request that goes next and removes it: the next one of
// the file that was served last, for at most run bytes in a row, else the oldest, of
// reads and writes in turn. Somebody waits for a read; a backlog may be seconds long, so
// one of its quanta goes for each run of reads.
func (f *flow) take(maxRun int64) *request {
	pick := -1
	reads := slices.IndexFunc(f.ready, func(r *request) bool { return !r.write })
	if f.last != nil && f.run < maxRun && !(f.wrote && reads >= 0) {
		pick = slices.IndexFunc(f.ready, func(r *request) bool { return r.stream == f.last })
	}
	if pick < 0 {
		pick = slices.IndexFunc(f.ready, func(r *request) bool { return r.write != f.wrote })
	}
	r := f.ready[max(0, pick)]
	f.ready = slices.Delete(f.ready, max(0, pick), max(0, pick)+1)
	if r.stream != f.last {
		f.last, f.run = r.stream, 0
	}
	f.run += r.length
	f.wrote = r.write
	return r
}

// drop removes a stream's requests that have not been dispatched and gives them,
// oldest first. The scheduler is told by retract.
func (f *flow) drop(s *Stream) (dropped []*request) {
	kept := f.ready[:0]
	for _, r := range f.ready {
		if r.stream == s {
			dropped = append(dropped, r)
		} else {
			kept = append(kept, r)
		}
	}
	clear(f.ready[len(kept):])
	f.ready = kept
	if f.last == s {
		f.last = nil
	}
	return dropped
}

// remove takes one request out of those that are ready.
func (f *flow) remove(r *request) {
	if i := slices.Index(f.ready, r); i >= 0 {
		f.ready = slices.Delete(f.ready, i, i+1)
	}
}

func (f *flow) removeWriter(s *Stream) {
	if i := slices.Index(f.writers, s); i >= 0 {
		f.writers = slices.Delete(f.writers, i, i+1)
	}
}
