package device

import (
	"fmt"
	"slices"
	"time"
)

// Who is governed and how: flows and their rules, modes, and what the agent is
// told of a mark.

// flow finds or makes the flow of that name; where the bound is reached and every
// flow has streams it is the unattributed one.
func (l *Loop) flow(name string) *flow {
	if f := l.flows[name]; f != nil {
		return f
	}
	if len(l.flows) >= l.cfg.MaxFlows-1 && name != UnattributedFlow && !l.forgetIdlest() {
		return l.flow(UnattributedFlow)
	}
	f, rule := &flow{name: name, idle: time.Now(), busy: 1}, l.policy(name)
	f.rule, f.part = rule, l.parts[name]
	f.weight = l.whole(f)
	f.among = f.entitled()
	id, err := l.sched.AddFlow(f.weight)
	if err != nil { // the bound above is the scheduler's own: a fault of ours
		l.fault("add flow "+name, err)
		panic(fmt.Sprintf("device %s: no flow for %s: %v", l.Name, name, err))
	}
	f.id = id
	l.flows[name] = f
	l.byID[id] = f
	if l.top(f) > l.largest() {
		l.reweigh()
	} else {
		l.weigh(f)
	}
	if f.queue != nil {
		l.flatten(f.idle)
	}
	l.setRule(f, rule, f.idle)
	return f
}

// forgetIdlest makes room for one flow: of those without a stream the one goes
// whose last stream left first.
func (l *Loop) forgetIdlest() bool {
	var idlest *flow
	for name, f := range l.flows {
		if f.streams == 0 && name != UnattributedFlow && (idlest == nil || f.idle.Before(idlest.idle)) {
			idlest = f
		}
	}
	return idlest != nil && l.forgetFlow(idlest)
}

// forgetFlow ends the account of a flow without streams. A request that it paid
// for and that has another flow's stream now may still be at the device.
func (l *Loop) forgetFlow(f *flow) bool {
	if f.inFlight > 0 {
		return false
	}
	if err := l.sched.RemoveFlow(f.id); err != nil {
		return false
	}
	l.leaveQueue(f)
	delete(l.flows, f.name)
	delete(l.byID, f.id)
	l.stock.recent = slices.DeleteFunc(l.stock.recent, func(other *flow) bool { return other == f })
	return true
}

func (l *Loop) apply(mode Mode, policy Policy) {
	now := time.Now()
	if mode != l.mode {
		l.restartWaits()
	}
	l.mode, l.policy = mode, policy
	for _, f := range l.flows {
		l.setRule(f, policy(f.name), now)
	}
	l.reweigh()
	for s := range l.streams {
		if l.modeOf(s.flow) == Off {
			l.forget(s)
		} else {
			l.tell(s)
		}
	}
}

// forget stops governing a stream that stays open in the DataNode. It may be
// called again while a request of the stream is still in flight.
func (l *Loop) forget(s *Stream) {
	if !s.closed {
		s.sent = Open
		s.Marker.Mark(s.ID, Open)
		if s.drains() {
			s.flow.writing--
		}
	}
	s.closed = true
	switch {
	case s.drains():
		l.cancel(s)
		l.skipRest(s)
	case s.Kind == Network:
		l.closeSend(s, -1)
	default:
		l.cancel(s)
	}
	l.release(s)
}

func (l *Loop) modeOf(f *flow) Mode { return min(l.mode, f.rule.Mode) }

// tell sends the stream's mark where it differs from what the agent knows.
func (l *Loop) tell(s *Stream) {
	if s.closed {
		return // gone, or not governed any more
	}
	mark := s.mark
	if l.modeOf(s.flow) != Enforce || l.stuck {
		mark = Open
	}
	if mark >= 0 && mark != s.sent {
		s.sent = mark
		s.Marker.Mark(s.ID, mark)
	}
}
