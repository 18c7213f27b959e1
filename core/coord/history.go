package coord

import (
	"slices"
	"time"
)

// HistoryWindow is the length of one window of a History.
const HistoryWindow = 30 * time.Second

const (
	// maxWindows is the number of windows whose rates a History keeps.
	maxWindows = 60
	// A window counts as kept if the application had at least keptPart of the guaranteed rate.
	keptPart = 0.95
	// A window in which the application had less counts as broken if it could have moved more for at least
	// hungryPart of the window. Otherwise it wanted less.
	hungryPart = 0.9
)

// History records how often a guaranteed total rate was kept. Its zero value is ready for use.
type History struct {
	Kept, Broken int     // windows
	Last         []int64 // bytes per second of the last windows that count, the newest last; at most maxWindows

	began, noted time.Duration // of the window, and of the last call
	started      bool
	owed, moved  float64       // bytes in this window
	hungry       time.Duration // in this window
}

// Note records the guaranteed rate and the rate that was reached, in bytes per second, as they have been since the last
// call. hungry reports whether the application could have moved more.
func (h *History) Note(now time.Duration, guaranteed, reached int64, hungry bool) {
	if !h.started || now < h.noted || now-h.noted > HistoryWindow { // nothing is known about a gap
		h.restart(now)
		return
	}
	passed := now - h.noted
	h.noted = now
	h.owed += float64(guaranteed) * passed.Seconds()
	h.moved += float64(reached) * passed.Seconds()
	if hungry {
		h.hungry += passed
	}
	length := now - h.began
	if length < HistoryWindow {
		return
	}
	switch {
	case h.moved >= keptPart*h.owed:
		h.Kept++
	case h.hungry.Seconds() >= hungryPart*length.Seconds():
		h.Broken++
	default: // the application wanted less
		h.restart(now)
		return
	}
	if len(h.Last) == maxWindows {
		h.Last = slices.Delete(h.Last, 0, 1)
	}
	h.Last = append(h.Last, int64(h.moved/length.Seconds()))
	h.restart(now)
}

// restart begins a window.
func (h *History) restart(now time.Duration) {
	h.began, h.noted, h.started, h.owed, h.moved, h.hungry = now, now, true, 0, 0, 0
}
