package coord

import (
	"time"

	"penstock/core/slowdown"
)

// Waits is how the streams of an application waited for a device in one period (arbiter.Waits), and its part of the device.
type Waits struct {
	Streams, Waited time.Duration // sums over streams of the time for which they were open, and for which they waited
	Contended       time.Duration // time for which the application had a request and the device served others
	Served, All     time.Duration // device time of the application, and of all applications
}

// AddWaits adds an application's waiting for one device to its report. length is that of the period, above 0.
func (s *Service) AddWaits(w Waits, length time.Duration) {
	mean := func(sum time.Duration) int64 {
		return int64(min(max(1000*sum.Seconds()/length.Seconds(), 0), MaxStreams))
	}
	s.Streams = min(s.Streams+mean(w.Streams), MaxStreams)
	s.Waiting = min(s.Waiting+mean(min(w.Waited, w.Streams)), s.Streams)
	s.Hindered = min(s.Hindered+mean(slowdown.Hindered(w.Streams, w.Waited, w.Contended, length)), s.Waiting)
	if w.Streams <= 0 && w.Served <= 0 {
		return
	}
	rate := func(service time.Duration) int64 {
		return int64(min(max(service.Seconds()/length.Seconds(), 0), 1) * Second) // a device gives at most a second per second
	}
	s.Touched = min(s.Touched+rate(w.All), MaxRate)
	s.Used = min(s.Used+rate(min(w.Served, w.All)), s.Touched)
}
