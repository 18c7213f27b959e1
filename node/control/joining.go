package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"penstock/node/control/join"
)

// This file joins the connections between the machine's containers (package join). A joined connection is not a hold: it is
// faster. The file is here because joining changes the system, and because a held connection must not be joined.

// Joining says which connections between containers are joined.
type Joining struct {
	Dir    string   // folder where the programs are pinned
	Cgroup string   // folder of the cgroup (v2) whose sockets may be joined; empty: the root
	Ports  []uint16 // servers' ports; none: all
}

func (j *Joining) equals(other *Joining) bool {
	return j.Dir == other.Dir && j.Cgroup == other.Cgroup && slices.Equal(j.Ports, other.Ports)
}

// joining is the state of the joining. Control's mu protects it.
type joining struct {
	join    *join.Join // nil: nothing is joined
	config  Joining
	leaving chan struct{} // is closed when the last join has put everything back; nil: there was none
	tried   time.Time     // when Start has failed
	mistake error         // why
	swept   time.Time     // when putBackJoined last looked
}

// applyJoining begins or ends to join connections.
func (c *Control) applyJoining(want *Joining) {
	s := &c.joining
	if s.join != nil && (want == nil || !want.equals(&s.config)) {
		// The connections use TCP at once. To put everything back takes seconds.
		old, done := s.join, make(chan struct{})
		s.join, s.leaving = nil, done
		c.joined.Store(nil)
		go func() {
			defer close(done)
			c.noteEnd(old.Close())
		}()
	}
	if want == nil {
		c.putBackJoined(time.Now())
		return
	}
	if s.join != nil {
		return
	}
	if time.Since(s.tried) < retryAfter {
		c.status.Error = s.mistake.Error()
		return
	}
	if !s.left() {
		return // the next Apply tries again
	}
	config := join.Config{Dir: want.Dir, Cgroup: want.Cgroup, Ports: slices.Clone(want.Ports), Journal: c.journal, Log: c.options.Log}
	var err error
	if config.Cgroup == "" {
		config.Cgroup, err = join.Root()
	}
	if err == nil {
		s.join, err = join.Start(context.Background(), config)
	}
	if err != nil {
		s.tried, s.mistake = time.Now(), err
		c.note(err)
		return
	}
	s.config = *want
	s.config.Ports = config.Ports
	c.joined.Store(s.join)
}

// left reports whether the last join has put back what it could.
func (s *joining) left() bool {
	if s.leaving == nil {
		return true
	}
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}

// putBackJoined puts back what an earlier joining, also that of a crashed daemon, has left because readers had not read all
// joined bytes. It does not wait, and tries again every retryAfter while the journal has the change.
func (c *Control) putBackJoined(now time.Time) {
	s := &c.joining
	if !s.left() || now.Sub(s.swept) < retryAfter {
		return
	}
	s.swept = now
	var targets []string
	for _, change := range c.journal.Changes() {
		if change.Mechanism == join.Mechanism {
			targets = append(targets, change.Target)
		}
	}
	if len(targets) == 0 {
		return
	}
	done := make(chan struct{})
	s.leaving = done
	go func() {
		defer close(done)
		for _, target := range targets {
			c.noteEnd(c.journal.PutBack(join.Mechanism, target))
		}
	}()
}

// noteEnd logs the error of an end of joining. One about unread bytes is expected, and is logged once until an end succeeds.
func (c *Control) noteEnd(err error) {
	switch unread := errors.Is(err, join.ErrUnread); {
	case err == nil:
		c.unread.Store(false)
	case !unread:
		c.options.Log.Error("end the joining of connections", "error", err)
	case !c.unread.Swap(true):
		c.options.Log.Warn("the joining of connections has ended, but not everything is put back yet", "error", err, "again_in", retryAfter)
	}
}

// closeJoining ends the joining and waits until everything is put back.
func (c *Control) closeJoining() {
	c.joining.swept = time.Now() // the journal puts back what is left when it is closed
	c.applyJoining(nil)
	if c.joining.leaving != nil {
		<-c.joining.leaving
	}
}
