package sfq

// Queues: hierarchical start-time fair queueing (Goyal, Guo, Vin, "A hierarchical CPU
// scheduler for multimedia operating systems", OSDI 1996, section 3). Each queue is an SFQ
// over its members, flows and further queues, with a virtual time of its own that moves
// when it is served, and is to its parent what a flow is: one weight, one start tag, and all
// that its members were served for its service. So the rules of sfq.go hold at each level as
// they stand. What a member does not use goes to the others in its queue, and only what
// a queue does not use to its siblings. A product of the weights down from the root, one
// number a flow, would give an idle member's part to everybody.
//
// The root is queue 0. Flows that were put into no other queue are in it. Queues come with the
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

// root is the member that stands for the whole scheduler. Members are flows, from 0, and
// queues, whose numbers are below 0: queue q is ^q.
const root = Flow(-1)

const none = int32(-1) // the root's parent

// tree is the queues of a scheduler.
type tree struct {
	queues    []queue // the root first
	freeQueue []int32 // last in, first out
	byName    map[queueKey]int32
	positions heapPositions
	maxQueues int
}

type queueKey struct {
	parent int32
	name   string
}

// queue is an SFQ over its members, and a member of its parent.
type queue struct {
	member
	v           tag
	busyPeriod  uint64 // its busy period, from 1
	ready       heap   // ready members,
	weights     int64  // and the sum of their weights
	outstanding int
	members     int
	name        string
}

func (t *tree) initTree(maxQueues int) {
	t.maxQueues = maxQueues
	t.byName = map[queueKey]int32{}
	t.queues = []queue{{busyPeriod: 1, ready: heap{heapPositions: &t.positions}}}
	t.queues[0].weight, t.queues[0].parent = 1, none
}

// member returns a flow or a queue as its parent sees it. The pointer holds until the next
// AddFlow or SetQueue.
func (s *Scheduler) member(id Flow) *member {
	if id >= 0 {
		return &s.flows[id].member
	}
	return &s.queues[^id].member
}

// ready reports whether a member has something to dispatch.
func (s *Scheduler) ready(id Flow) bool {
	if id >= 0 {
		return s.flows[id].cost > 0
	}
	return len(s.queues[^id].ready.entries) > 0
}

// SetQueue says which queue a flow is in, by the way from the root; an empty way is the
// root itself. The weights hold from now on for all that is in these queues. A flow may
// change its queue at any time: what is outstanding stays charged, and is corrected, where
// it was, and what the flow is behind or ahead among its old siblings it is among the new
// ones. Errors: ErrUnknownFlow, ErrWeight, ErrQueue, ErrTooManyQueues.
func (s *Scheduler) SetQueue(f Flow, way []Level) error {
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
		if q, known = s.byName[queueKey{to, l.Name}]; known {
			to = q
		} else if len(s.byName)+len(way)-i > s.maxQueues {
			return ErrTooManyQueues
		}
	}
	to = 0
	for _, l := range way {
		q, known := s.byName[queueKey{to, l.Name}]
		if known {
			s.reweigh(^Flow(q), int32(l.Weight))
		} else {
			q = s.newQueue(to, l)
		}
		to = q
	}
	if from := fl.parent; from != to {
		s.move(f, from, to)
	}
	return nil
}

// open makes a queue.
func (s *Scheduler) newQueue(parent int32, l Level) int32 {
	q := int32(len(s.queues))
	if n := len(s.freeQueue); n > 0 {
		q, s.freeQueue = s.freeQueue[n-1], s.freeQueue[:n-1]
	} else {
		s.queues = append(s.queues, queue{ready: heap{heapPositions: &s.positions}})
		s.positions.admit(^Flow(q))
	}
	at := &s.queues[q]
	at.member = member{weight: int32(l.Weight), parent: parent} // void, as those of a new flow
	at.busyPeriod, at.name = 1, l.Name
	s.byName[queueKey{parent, l.Name}] = q
	s.queues[parent].members++
	return q
}

// move takes a flow to another queue. If it is ready it is the last one there among equal
// start tags.
func (s *Scheduler) move(f Flow, from, to int32) {
	fl := &s.flows[f]
	s.resetIfStale(&fl.member)
	ready := fl.cost > 0
	if ready {
		if to > 0 && !s.ready(^Flow(to)) { // before f is away: it may be what keeps a queue above both busy
			s.begin(^Flow(to))
		}
		cost := fl.cost
		fl.cost = 0
		s.updateReady(f)
		fl.cost = cost
		s.seq++
		fl.seq = s.seq
	}
	fl.rebase(s.queues[from].v, s.queues[to].v, fl.weight, fl.weight)
	fl.parent, fl.busyPeriod = to, s.queues[to].busyPeriod
	s.queues[to].members++
	if ready {
		s.updateReady(f)
		s.endBusyPeriod(from)
	}
	s.leaveQueue(from)
}

// part ends one membership in a queue, and forgets queues that are empty.
func (s *Scheduler) leaveQueue(q int32) {
	s.queues[q].members--
	for q > 0 && s.queues[q].members == 0 {
		above := s.queues[q].parent
		s.removeIfEmpty(q)
		q = above
	}
}

// vanish forgets a queue that has no members and no outstanding requests.
func (s *Scheduler) removeIfEmpty(q int32) {
	at := &s.queues[q]
	if q == 0 || at.members > 0 || at.outstanding > 0 || at.weight == 0 {
		return
	}
	delete(s.byName, queueKey{at.parent, at.name})
	s.queues[at.parent].members--
	at.weight, at.name = 0, ""
	s.freeQueue = append(s.freeQueue, q)
}
