package ipc

import (
	"net"
	"os"
	"time"
)

// spare is a descriptor that is kept for the moment when there is no other: with it a
// connection that waits is accepted and closed. So its peer has an answer at once, and
// none waits in the kernel's queue, which would be full soon.
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

// acceptPause is how long a failed accept waits for what it lacks.
const acceptPause = 50 * time.Millisecond

// refuse hangs up on the connection that could not be accepted, or waits a little.
func (s *spare) refuse(l *net.UnixListener) {
	s.close()
	defer s.take()
	began := time.Now()
	if l.SetDeadline(began.Add(acceptPause)) != nil {
		return // it is closed
	}
	defer l.SetDeadline(time.Time{})
	if c, err := l.AcceptUnix(); err == nil {
		c.Close()
		return
	}
	time.Sleep(acceptPause - time.Since(began))
}
