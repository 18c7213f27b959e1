package control

import (
	"context"
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
			if err := old.Close(); err != nil {
				c.options.Log.Error("end the joining of connections", "error", err)
			}
		}()
	}
	if want == nil || s.join != nil {
		return
	}
	if time.Since(s.tried) < retryAfter {
		c.status.Error = s.mistake.Error()
		return
	}
	if s.leaving != nil {
		select {
		case <-s.leaving:
		default:
			return // the next Apply tries again
		}
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

// closeJoining ends the joining and waits until everything is put back.
func (c *Control) closeJoining() {
	c.applyJoining(nil)
	if c.joining.leaving != nil {
		<-c.joining.leaving
	}
}
