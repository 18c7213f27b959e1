package sim

import (
	"fmt"
	"time"

	"penstock/core/sfq"
	"penstock/testbed/disk"
)

// spindle is a physical disk: the testbed's model on the virtual clock, with one scheduler
// before it or, where virtual datanodes share it, one for each of them.
type spindle struct {
	engine *Engine
	disk   *disk.Virtual
	users  []*device
	flying []flight // by reference
	free   []uint64
	waking time.Duration // when the disk is looked at next; below 0: not at all
	look   func()
}

// flight is a request from its submission to its end.
type flight struct {
	device *device
	stream *stream
	handle sfq.Handle
	cost   int64
	bytes  int64
	since  time.Duration // of its dispatch
	out    bool          // dispatched
}

func newSpindle(e *Engine, m disk.Model) *spindle {
	s := &spindle{engine: e, disk: disk.NewVirtual(m), waking: -1}
	s.look = func() {
		if s.waking == e.Now() { // else a request that ended before was seen meanwhile
			s.waking = -1
			s.collect()
		}
	}
	return s
}

// take gives a flight a reference.
func (s *spindle) take(f flight) uint64 {
	if n := len(s.free); n > 0 {
		ref := s.free[n-1]
		s.free = s.free[:n-1]
		s.flying[ref] = f
		return ref
	}
	s.flying = append(s.flying, f)
	return uint64(len(s.flying) - 1)
}

func (s *spindle) drop(ref uint64) {
	s.flying[ref] = flight{}
	s.free = append(s.free, ref)
}

func (s *spindle) wake() {
	due, any := s.disk.Due()
	if !any || s.waking == time.Duration(due) {
		return
	}
	s.waking = time.Duration(due)
	s.engine.At(s.waking, s.look)
}

// collect books what has ended and lets the schedulers go on.
func (s *spindle) collect() {
	now := s.engine.Now()
	for {
		ended, any := s.disk.Take(int64(now))
		if !any {
			break
		}
		fl := s.flying[ended.Ref]
		s.drop(ended.Ref)
		if err := fl.device.sched.Complete(fl.handle, fl.cost); err != nil {
			panic(fmt.Sprintf("sim: complete: %v", err))
		}
		fl.device.ended(fl, time.Duration(ended.Service), now)
	}
	for _, d := range s.users {
		d.kick()
	}
	s.wake()
}
