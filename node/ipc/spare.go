package ipc

import (
	"os"
	"time"
)

// spare is a descriptor in reserve for when no other descriptor is free. It is used to accept and
// close a waiting connection. So the peer gets an answer at once, and the kernel's queue does not
// fill up.
type spare struct{ f *os.File }

func newSpare() *spare {
	s := &spare{}
	s.take()
	return s
}

func (s *spare) take() {
	if f, err := os.Open(os.DevNull); err == nil {
		s.f = f
	}
}

func (s *spare) close() {
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
}

// acceptPause is the pause after a failed accept.
const acceptPause = 50 * time.Millisecond

// refuse frees the spare descriptor, accepts the waiting connection with it and closes the
// connection. If no connection can be accepted, it pauses.
func (s *spare) refuse(l port) {
	s.close()
	defer s.take()
	began := time.Now()
	if l.SetDeadline(began.Add(acceptPause)) != nil {
		return // the listener is closed
	}
	defer l.SetDeadline(time.Time{})
	if c, err := l.Accept(); err == nil {
		c.Close()
		return
	}
	time.Sleep(acceptPause - time.Since(began))
}
