package sfq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Queues: hierarchical start-time fair queueing (Goyal, Guo, Vin, "A hierarchical CPU
// scheduler for multimedia operating systems", OSDI 1996, section 3). Each queue is an SFQ
// over its members, flows and further queues, with a virtual time of its own that moves
// when it is served, and is to its parent what a flow is: one weight, one start tag, and all
// that its members were served for its service. So the rules of sfqd hold at each level as
// they stand, and what a member does not use goes to the others in its queue, and only what
// a queue does not use to its siblings. A product of the weights down from the root, one
// number a flow, gives an idle member's part to everybody.
//
// The root is queue 0, and flows that nobody put anywhere are in it. Queues come with the
// first flow that names them and go with the last one, and the last request that was
// charged to them.

// Bounds of queues.
const (
	MaxLevels    = 17  // between the root and a flow: 16 of queues, and a group in them
	MaxQueueName = 512 // bytes
)

// Level is a queue on the way from the root to a flow: its name and its weight among its
// siblings.
type Level struct {
	Name   string
	Weight int
}

// Queues is what a Scheduler is as well if it knows queues: sfq, sfqd and sfqd2.
type Queues interface {
	// SetQueue says which queue a flow is in, by the way from the root; an empty way is the
	// root itself. The weights hold from now on for all that is in these queues. A flow may
	// change its queue at any time: its queued requests go with it, what is outstanding stays
	// charged, and is corrected, where it was, and what the flow is behind or ahead among its
	// old siblings it is among the new ones. Errors: ErrUnknownFlow, ErrWeight,
	// ErrQueue, ErrTooManyQueues.
	SetQueue(f Flow, way []Level) error
	// Share is the part of the service, above 0 and up to 1, that a flow is due beside all
	// that have something queued, whether it has or not; 0 if the flow is unknown.
	Share(f Flow) float64
}

// The errors of SetQueue beside those of a Scheduler.
var (
	ErrQueue         = fmt.Errorf("sfq: a flow's queue has at most %d levels above it, each with a name of 1 to %d bytes: shorten its path", MaxLevels, MaxQueueName)
	ErrTooManyQueues = errors.New("sfq: no room for another queue: put flows into fewer queues, or raise Config.MaxQueues")
)

// root is the member that stands for the whole scheduler. Members are flows, from 0, and
// queues, whose numbers are below 0: queue q is ^q.
const root = Flow(-1)

// tree is the queues of a scheduler.
type tree struct {
	queues    []queue // the root first
	freeQueue []int32 // last in, first out
	named     map[place]int32
	at        places
	maxQueues int
}

type place struct {
	parent int32
	name   string
}

// queue is an SFQ over its members, and a member of its parent.
type queue struct {
	flow[flowTags] // its weight and tags; nothing is queued in it directly
	v              tag
	period         uint64 // busy period, from 1
	ready          heap   // members that have something queued,
	weights        int64  // and the sum of their weights
	members        int
	name           string
}

func (t *tree) plant(maxQueues int) {
	t.maxQueues = maxQueues
	t.named = map[place]int32{}
	t.queues = []queue{{period: 1, ready: heap{places: &t.at}}}
	t.queues[0].weight, t.queues[0].tags.parent = 1, none
}

// member returns a flow or a queue as its parent sees it. The pointer holds until the next
// AddFlow or SetQueue.
func (s *sfqd) member(id Flow) *flow[flowTags] {
	if id >= 0 {
		return &s.flows[id]
	}
	return &s.queues[^id].flow
}

func (s *sfqd) SetQueue(f Flow, way []Level) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if len(way) > MaxLevels {
		return ErrQueue
	}
	to, known := int32(0), true
	for i, l := range way {
		if l.Name == "" || len(l.Name) > MaxQueueName {
			return ErrQueue
		}
		if l.Weight < 1 || l.Weight > MaxWeight {
			return ErrWeight
		}
		if !known {
			continue
		}
		var q int32
		if q, known = s.named[place{to, l.Name}]; known {
			to = q
		} else if len(s.named)+len(way)-i > s.maxQueues {
			return ErrTooManyQueues
		}
	}
	to = 0
	for _, l := range way {
		q, known := s.named[place{to, l.Name}]
		if known {
			s.reweigh(^Flow(q), int32(l.Weight))
		} else {
			q = s.open(to, l)
		}
		to = q
	}
	if from := fl.tags.parent; from != to {
		s.move(f, from, to)
	}
	return nil
}

// open makes a queue.
func (s *sfqd) open(parent int32, l Level) int32 {
	q := int32(len(s.queues))
	if n := len(s.freeQueue); n > 0 {
		q, s.freeQueue = s.freeQueue[n-1], s.freeQueue[:n-1]
	} else {
		s.queues = append(s.queues, queue{ready: heap{places: &s.at}})
		s.at.admit(^Flow(q))
	}
	at := &s.queues[q]
	at.flow = flow[flowTags]{weight: int32(l.Weight), tags: flowTags{parent: parent}} // void, as those of a new flow
	at.period, at.name = 1, l.Name
	s.named[place{parent, l.Name}] = q
	s.queues[parent].members++
	return q
}

// move takes a flow to another queue, with what it has queued.
func (s *sfqd) move(f Flow, from, to int32) {
	fl := &s.flows[f]
	t := s.valid(fl)
	if fl.queued > 0 {
		if len(s.queues[to].ready.entries) == 0 { // before f is away: it may be what keeps a queue above both busy
			s.begin(^Flow(to))
		}
		s.queues[from].unready(f, fl.weight)
		s.place(^Flow(from))
	}
	t.rebase(s.queues[from].v, s.queues[to].v, fl.weight, fl.weight)
	t.parent, t.period = to, s.queues[to].period
	s.queues[to].members++
	if fl.queued > 0 {
		s.place(f)
		s.rest(from)
	}
	s.part(from)
}

// set puts a member that has something queued where it belongs.
func (q *queue) set(e entry, weight int32) {
	if !q.ready.has(e.flow) {
		q.weights += int64(weight)
	}
	q.ready.set(e)
}

// unready takes out a member that has nothing queued, if it is there.
func (q *queue) unready(id Flow, weight int32) {
	if q.ready.has(id) {
		q.weights -= int64(weight)
		q.ready.remove(id)
	}
}

// part ends a membership.
func (s *sfqd) part(q int32) {
	s.queues[q].members--
	for q > 0 && s.queues[q].members == 0 {
		above := s.queues[q].tags.parent
		s.vanish(q)
		q = above
	}
}

// vanish forgets a queue that has no members, and none of whose requests is out.
func (s *sfqd) vanish(q int32) {
	at := &s.queues[q]
	if q == 0 || at.members > 0 || at.outstanding > 0 || at.weight == 0 {
		return
	}
	delete(s.named, place{at.tags.parent, at.name})
	s.queues[at.tags.parent].members--
	at.weight, at.name = 0, ""
	s.freeQueue = append(s.freeQueue, q)
}

func (s *sfqd) Share(f Flow) float64 {
	if _, err := s.flow(f); err != nil {
		return 0
	}
	share := 1.0
	for id := f; id != root; {
		m := s.member(id)
		q := &s.queues[m.tags.parent]
		weights := q.weights
		if !q.ready.has(id) {
			weights += int64(m.weight)
		}
		share *= float64(m.weight) / float64(weights)
		id = ^Flow(m.tags.parent)
	}
	return share
}

// path is a queue's names from the root on, for people.
func (s *sfqd) path(q int32) string {
	var names []string
	for ; q > 0; q = s.queues[q].tags.parent {
		names = append(names, s.queues[q].name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

func (s *sfqd) dumpQueues() string {
	var b strings.Builder
	for q := range s.queues {
		at := &s.queues[q]
		if q == 0 || at.weight == 0 {
			continue
		}
		fmt.Fprintf(&b, "queue %s: weight %d, v %s", s.path(int32(q)), at.weight, at.v)
		switch {
		case at.tags.period != s.queues[at.tags.parent].period:
			b.WriteString(", tags void")
		case len(at.ready.entries) == 0:
			fmt.Fprintf(&b, ", F %s", finish(&at.flow))
		default:
			fmt.Fprintf(&b, ", S %s", start(&at.flow))
		}
		fmt.Fprintf(&b, ", outstanding %d, members %d\n", at.outstanding, at.members)
	}
	return b.String()
}
