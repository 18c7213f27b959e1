package device

import (
	"time"

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
	handles []sfq.Handle // of the queued requests, oldest first
	ready   []*request   // submitted to the scheduler, oldest first
	last    *Stream      // whose request went last
	run     int64        // bytes served of last in a row
	streams int
	writers []*Stream
	backlog int64
	idle    time.Time // when the last stream left

	bytes     [2]int64 // by direction, what the device has done
	resident  int64    // bytes read that needed no device
	behind    int64    // bytes that the kernel moved for the flow, unscheduled
	service   int64    // cost
	requests  int64
	forced    int64         // minimum quanta let through after MaxWait
	wouldWait time.Duration // observe: what enforcing would have delayed
	waits     int64
}

// take picks the ready request that goes next and removes it: the next one of
// the file that was served last, for at most run bytes in a row, else the
// oldest.
func (f *flow) take(maxRun int64) *request {
	pick := 0
	if f.last != nil && f.run < maxRun {
		for i, r := range f.ready {
			if r.stream == f.last {
				pick = i
				break
			}
		}
	}
	r := f.ready[pick]
	f.ready = append(f.ready[:pick], f.ready[pick+1:]...)
	if r.stream != f.last {
		f.last, f.run = r.stream, 0
	}
	f.run += r.length
	return r
}

// drop removes a stream's requests that have not been dispatched and gives
// how many there were.
func (f *flow) drop(s *Stream) (n int) {
	kept := f.ready[:0]
	for _, r := range f.ready {
		if r.stream == s {
			n++
		} else {
			kept = append(kept, r)
		}
	}
	clear(f.ready[len(kept):])
	f.ready = kept
	if f.last == s {
		f.last = nil
	}
	return n
}

func (f *flow) removeWriter(s *Stream) {
	for i, w := range f.writers {
		if w == s {
			f.writers = append(f.writers[:i], f.writers[i+1:]...)
			return
		}
	}
}
