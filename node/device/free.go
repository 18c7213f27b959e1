package device

import (
	"sync"
	"sync/atomic"
)

// freeFlag says whether the device is free, so that small reads need not wait for their marks. The loop sets
// it, and connections read it.
type freeFlag struct {
	is       atomic.Bool
	mu       sync.Mutex
	watchers map[chan<- struct{}]int
}

// set sets the flag. If the device stops being free, set signals the watchers; it does not wait for
// them.
func (f *freeFlag) set(free bool) {
	if f.is.Load() == free {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.is.Store(free); free {
		return
	}
	for w := range f.watchers {
		select {
		case w <- struct{}{}:
		default: // a signal is there already
		}
	}
}

// Free reports whether small reads need not wait for their marks.
func (l *Loop) Free() bool { return l.free.is.Load() && l.Alive() }

// WatchFree makes the loop signal the channel, which should hold one element, when the device stops
// being free. A channel may be given several times. The returned function ends one of these.
func (l *Loop) WatchFree(stopped chan<- struct{}) (end func()) {
	f := &l.free
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == nil {
		f.watchers = map[chan<- struct{}]int{}
	}
	f.watchers[stopped]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.watchers[stopped]--; f.watchers[stopped] <= 0 {
			delete(f.watchers, stopped)
		}
	}
}
