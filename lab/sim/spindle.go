package sim

import (
	"time"

	"penstock/core/arbiter"
	"penstock/lab/disk"
)

// spindle is a physical disk: the laboratory's model on the virtual clock. It has one arbiter or,
// if virtual datanodes share it, one arbiter for each datanode.
type spindle struct {
	engine *Engine
	disk   *disk.Virtual
	users  []*device
	flying []flight // by Ref of the disk's requests
	free   []uint64
	waking time.Duration // time of the scheduled call of collect; below 0: no call is scheduled
	look   func()
}

// flight is a request at the disk.
type flight struct {
	device  *device
	stream  *stream
	request *arbiter.Request
	since   time.Duration
}

func newSpindle(e *Engine, m disk.Model) *spindle {
	s := &spindle{engine: e, disk: disk.NewVirtual(m), waking: -1}
	s.look = func() {
		if s.waking == e.Now() { // otherwise wake has scheduled a call at another time
			s.waking = -1
			s.collect()
		}
	}
	return s
}

// start submits a request to the disk.
func (s *spindle) start(d *device, of *stream, r *arbiter.Request) {
	fl := flight{device: d, stream: of, request: r, since: s.engine.Now()}
	var ref uint64
	if n := len(s.free); n > 0 {
		ref = s.free[n-1]
		s.free = s.free[:n-1]
		s.flying[ref] = fl
	} else {
		ref = uint64(len(s.flying))
		s.flying = append(s.flying, fl)
	}
	s.disk.Submit(int64(fl.since), of.op, of.offset+r.Offset, r.Length, ref)
}

func (s *spindle) wake() {
	due, any := s.disk.Due()
	if !any || s.waking == time.Duration(due) {
		return
	}
	s.waking = time.Duration(due)
	s.engine.At(s.waking, s.look)
}

// collect accounts for requests that have ended, and then calls their arbiters.
func (s *spindle) collect() {
	now := s.engine.Now()
	for {
		ended, any := s.disk.Take(int64(now))
		if !any {
			break
		}
		fl := s.flying[ended.Ref]
		s.flying[ended.Ref] = flight{}
		s.free = append(s.free, ended.Ref)
		fl.device.ended(fl, time.Duration(ended.Service))
	}
	for _, d := range s.users {
		if d.due {
			d.due = false
			d.turn()
		}
	}
	s.wake()
}
