package sfq

// Queues implement hierarchical start-time fair queueing (Goyal, Guo and Vin, "A hierarchical CPU
// scheduler for multimedia operating systems", OSDI 1996, section 3). Each queue is an SFQ over its
// members, which are flows and further queues. It has its own virtual time, which progresses while
// the queue is served. To its parent, a queue looks like a flow: it has one weight and one start
// tag, and all service of its members counts as its own. So the rules of sfq.go apply unchanged at
// each level. Service that a member does not use goes to the other members of its queue. Only
// service that the whole queue does not use goes to the queue's siblings. The alternative is one
// weight for each flow, the product of the weights on its path. The unused service of an idle
// member would then go to all flows.
//
// The root is queue 0. It contains the flows that are in no other queue. A queue exists from the
// first flow that names it until its last flow and its last outstanding request are gone.

// Limits of queues.
const (
	MaxLevels    = 17  // between the root and a flow: 16 queues and a group
	MaxQueueName = 512 // bytes
)

// Level is a queue on the path from the root to a flow. Weight is its weight among its siblings.
type Level struct {
	Name   string
	Weight int
}

// root is the root queue as a member. Flows have member numbers from 0 on, and queue q has the
// number ^q, which is negative.
const root = Flow(-1)

const none = int32(-1) // parent of the root

// tree holds the queues of a scheduler.
type tree struct {
	queues    []queue // the root is the first one
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
	busyPeriod  uint64 // number of the busy period, from 1
	ready       heap   // the ready members
	weights     int64  // sum of the weights of the ready members
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

// member returns a flow or queue as its parent sees it. The pointer is valid until the next AddFlow
// or SetQueue.
func (s *Scheduler) member(id Flow) *member {
	if id >= 0 {
		return &s.flows[id].member
	}
	return &s.queues[^id].member
}

// ready reports whether a member has a request to dispatch.
func (s *Scheduler) ready(id Flow) bool {
	if id >= 0 {
		return s.flows[id].cost > 0
	}
	return len(s.queues[^id].ready.entries) > 0
}

// SetQueue puts a flow into the queue with the given path from the root. An empty path means the
// root. The weights of the path apply at once to all flows in these queues. A flow may move at any
// time. Its outstanding requests stay charged to the old queue and are corrected there. In the new
// queue, the flow is ahead of or behind v by the same service as in the old one. Errors:
// ErrUnknownFlow, ErrWeight, ErrQueue, ErrTooManyQueues.
func (s *Scheduler) SetQueue(f Flow, path []Level) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if len(path) > MaxLevels {
		return ErrQueue
	}
	to, known := int32(0), true
	for i, l := range path {
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
		} else if len(s.byName)+len(path)-i > s.maxQueues {
			return ErrTooManyQueues
		}
	}
	to = 0
	for _, l := range path {
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

func (s *Scheduler) newQueue(parent int32, l Level) int32 {
	q := int32(len(s.queues))
	if n := len(s.freeQueue); n > 0 {
		q, s.freeQueue = s.freeQueue[n-1], s.freeQueue[:n-1]
	} else {
		s.queues = append(s.queues, queue{ready: heap{heapPositions: &s.positions}})
		s.positions.admit(^Flow(q))
	}
	at := &s.queues[q]
	at.member = member{weight: int32(l.Weight), parent: parent} // busy period 0: the tags are void
	at.busyPeriod, at.name = 1, l.Name
	s.byName[queueKey{parent, l.Name}] = q
	s.queues[parent].members++
	return q
}

// move moves a flow to another queue. There, a ready flow goes last among members with equal start
// tags.
func (s *Scheduler) move(f Flow, from, to int32) {
	fl := &s.flows[f]
	s.resetIfStale(&fl.member)
	ready := fl.cost > 0
	if ready {
		if to > 0 && !s.ready(^Flow(to)) { // before f leaves: until then, f may keep a queue busy that contains both from and to
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

// leaveQueue removes one member from a queue, and then the queues that are empty.
func (s *Scheduler) leaveQueue(q int32) {
	s.queues[q].members--
	for q > 0 && s.queues[q].members == 0 {
		above := s.queues[q].parent
		s.removeIfEmpty(q)
		q = above
	}
}

// removeIfEmpty removes a queue that has no members and no outstanding requests.
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
