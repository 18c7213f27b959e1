package policy

import (
	"time"

	"penstock/core/reserve"
)

// Deadline is the time by which an application should have ended. The broker derives a guaranteed rate from it, if
// the application's forecast is certain enough (package deadline). At most one of the fields is set.
type Deadline struct {
	After time.Duration // since the application was submitted, MinDeadline to MaxDeadline; 0: none
	At    int64         // in Unix ms; 0: none
}

// The range of Deadline.After. Within the least time, no forecast would be possible.
const (
	MinDeadline = time.Minute
	MaxDeadline = 30 * 24 * time.Hour
)

// The range of Deadline.At, as years.
const firstYear, lastYear = 2020, 2200

// String returns the deadline as in a policy; empty: none.
func (d Deadline) String() string {
	switch {
	case d.After != 0:
		return d.After.String()
	case d.At != 0:
		return time.UnixMilli(d.At).UTC().Format(time.RFC3339)
	}
	return ""
}

// By returns the deadline of an application in Unix ms. submitted is when it was submitted, in Unix ms; 0: not known. ok is false if the
// deadline depends on that and it is not known.
func (d Deadline) By(submitted int64) (unixMs int64, ok bool) {
	if d.At != 0 {
		return d.At, true
	}
	return submitted + d.After.Milliseconds(), submitted > 0
}

func (r *Rule) validateDeadline(add func(field, format string, args ...any)) {
	d := r.Deadline
	if d == (Deadline{}) {
		return
	}
	year := time.UnixMilli(d.At).UTC().Year()
	switch {
	case d.After != 0 && (d.After < MinDeadline || d.After > MaxDeadline):
		add("deadline", "deadline %v: use %v to %v after the submission, or a time such as 2026-11-25T18:00:00Z", d.After, MinDeadline, MaxDeadline)
	case d.At != 0 && (year < firstYear || year > lastYear):
		add("deadline", "deadline %v: use a time of the years %d to %d", d, firstYear, lastYear)
	case r.Total.Reserve > 0:
		add("deadline", "deadline and total_reserve: the guaranteed rate comes from the forecast or from the rule, not from both")
	case r.Bandwidth == BandwidthReserve:
		add("deadline", "deadline and bandwidth: reserve: the guaranteed rate comes from the forecast or from the allocated bandwidth, not from both")
	case r.Reserve != (reserve.Rate{}):
		add("deadline", "deadline and reserve: guarantee a rate of each device or an end, not both")
	}
}
