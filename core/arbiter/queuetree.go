package arbiter

import (
	"math"
	"time"

	"penstock/core/sfq"
)

// Queues and parts determine the weight of each flow.
//
// A flow's weight applies among the members of its queue, and a queue's weight among its siblings
// (core/sfq, queue.go). The operator's rules give both weights. While the broker's totals are in
// force, parts replace the weights at every level. A part is the entitlement of a member on this
// device; core/coord computes it from the service of all devices. So service that a member does not
// use goes to its siblings first, with and without a broker.
//
// The scheduler's weights are integers, and parts are not. At each level, one scale converts parts
// to the scheduler's weights. The scale is as large as the largest weight at the level allows. So
// the rounding error of any weight is at most two millionths of the largest one, or of 1 if all
// weights are below 1. A change of scale has no other effect, because the scheduler keeps a
// member's distance from the virtual time as service.

// Queue is a queue, given as the path from the root. It is immutable.
type Queue struct {
	levels []sfq.Level
	paths  []string // path of each level, from the root
}

// NewQueue returns a queue of at least one level.
func NewQueue(levels []sfq.Level) *Queue {
	q := &Queue{levels: levels}
	path := ""
	for _, l := range levels {
		path += "/" + l.Name
		q.paths = append(q.paths, path)
	}
	return q
}

// Name returns the name of the last level, or "" if q is nil.
func (q *Queue) Name() string {
	if q == nil || len(q.levels) == 0 {
		return ""
	}
	return q.levels[len(q.levels)-1].Name
}

// Levels returns the path from the root. The caller must not change it.
func (q *Queue) Levels() []sfq.Level { return q.levels }

// Paths returns the path of each level, such as "/a" and "/a/b". The caller must not change it.
func (q *Queue) Paths() []string { return q.paths }

// Parts are the members' entitlements on this device, computed from the broker's totals of the
// service of all devices. The keys of Flows are names of flows, and the keys of Queues are paths.
// Parts are on the scale of the weights at their level. Members without a part keep their rules'
// weights. If Flows is nil, no parts are in force.
type Parts struct {
	Flows  map[string]float64
	Queues map[string]float64
}

// leaf is a flow's place in the queue tree.
type leaf struct {
	queue       *Queue    // as set in the scheduler
	node        *treeNode // the flow is a member of this node
	weight      float64
	schedWeight int     // weight in the scheduler
	entitled    float64 // weight that would give the flow the same share among the flows at work if there were no queues
}

// queueTree is the tree of the queues that contain the device's flows.
type queueTree struct {
	root   *treeNode
	byPath map[string]*treeNode
	all    []*treeNode
	parts  Parts
	round  uint64 // number of the call of measure
}

// treeNode is a queue, or the root.
type treeNode struct {
	path        string
	parent      *treeNode // nil for the root
	flows       int       // number of flows in this node and below
	weight      float64
	schedWeight int
	scale       int     // factor of the members' weights
	largest     float64 // largest weight of a member when the scale was chosen
	at          int     // index in queueTree.all

	round        uint64  // call of measure in which weightAtWork was computed
	weightAtWork float64 // sum of the weights of the members at work
}

func newQueueTree() queueTree {
	return queueTree{root: &treeNode{scale: 1, weight: 1}, byPath: map[string]*treeNode{}}
}

// SetParts puts parts in force. The zero value puts the rules' weights back in force.
func (a *Arbiter) SetParts(p Parts) {
	a.tree.parts = p
	a.reweigh()
}

// newLeaf returns the initial place of a new flow.
func (l *queueTree) newLeaf(f *flow) leaf {
	return leaf{node: l.root, weight: 1, schedWeight: 1, entitled: 1}
}

// weightOf returns a flow's weight at its level: its part, or its rule's weight.
func (l *queueTree) weightOf(f *flow) float64 {
	if part := l.parts.Flows[f.name]; part > 0 {
		return part
	}
	return float64(max(f.rule.Weight, 1))
}

func (l *queueTree) weightOfQueue(path string, rule int) float64 {
	if part := l.parts.Queues[path]; part > 0 && l.parts.Flows != nil {
		return part
	}
	return float64(rule)
}

// enter puts a flow into the node of its rule's queue. It creates the node if necessary.
func (l *queueTree) enter(f *flow) {
	want := f.rule.Queue
	at := l.root
	if want != nil {
		for i, rule := range want.levels {
			next := l.byPath[want.paths[i]]
			if next == nil {
				next = &treeNode{path: want.paths[i], parent: at, scale: 1, at: len(l.all)}
				l.byPath[next.path] = next
				l.all = append(l.all, next)
			}
			next.weight = l.weightOfQueue(next.path, rule.Weight)
			at = next
		}
	}
	if at == f.leaf.node {
		return
	}
	for up := at; up != nil; up = up.parent {
		up.flows++
	}
	l.detach(f.leaf.node)
	f.leaf.node = at
}

// leave removes a flow from its node.
func (l *queueTree) leave(f *flow) {
	l.detach(f.leaf.node)
	f.leaf.node = l.root
}

// detach subtracts a flow from a node and the nodes above it, and removes empty nodes.
func (l *queueTree) detach(at *treeNode) {
	for ; at.parent != nil; at = at.parent {
		if at.flows--; at.flows > 0 {
			continue
		}
		delete(l.byPath, at.path)
		last := len(l.all) - 1
		moved := l.all[last]
		l.all[at.at], moved.at = moved, at.at
		l.all = l.all[:last]
	}
}

// inForce reports whether any flow is in a queue.
func (l *queueTree) inForce() bool { return len(l.all) > 0 }

// reweigh computes the weights of all flows, and chooses the scale of each level.
func (a *Arbiter) reweigh() {
	l := &a.tree
	for _, f := range a.all {
		l.enter(f)
		f.leaf.weight = l.weightOf(f)
	}
	l.root.largest = 0
	for _, at := range l.all {
		at.largest = 0
	}
	for _, f := range a.all {
		f.leaf.node.largest = max(f.leaf.node.largest, f.leaf.weight)
	}
	for _, at := range l.all {
		at.parent.largest = max(at.parent.largest, at.weight)
	}
	a.chooseScale(l.root)
	for _, at := range l.all {
		a.chooseScale(at)
	}
	for _, f := range a.all {
		a.applyWeights(f)
	}
}

// chooseScale chooses the scale of a level.
func (a *Arbiter) chooseScale(at *treeNode) {
	at.scale = 1
	if a.tree.parts.Flows == nil {
		return
	}
	for at.scale = a.cfg.WeightScale; at.scale > 1 && at.largest*float64(at.scale) > sfq.MaxWeight; {
		at.scale /= 2
	}
}

func (at *treeNode) toSchedWeight(weight float64) int {
	return int(min(max(math.Round(weight*float64(at.scale)), 1), sfq.MaxWeight))
}

// weigh sets the weight of a new flow.
func (a *Arbiter) weigh(f *flow) {
	l := &a.tree
	known := len(l.all)
	l.enter(f)
	f.leaf.weight = l.weightOf(f)
	if at := f.leaf.node; len(l.all) != known || f.leaf.weight > at.largest {
		a.reweigh()
	} else {
		a.applyWeights(f)
	}
	l.entitle(f, false)
}

// applyWeights sets a flow's queue and weights in the scheduler, if they have changed.
func (a *Arbiter) applyWeights(f *flow) {
	c := &f.leaf
	moved := c.queue != f.rule.Queue
	for at := c.node; at.parent != nil; at = at.parent {
		if whole := at.parent.toSchedWeight(at.weight); whole != at.schedWeight {
			at.schedWeight, moved = whole, true
		}
	}
	if moved {
		var path []sfq.Level
		if q := f.rule.Queue; q != nil {
			path = make([]sfq.Level, len(q.levels))
			at := c.node
			for i := len(path) - 1; i >= 0; i-- {
				path[i] = sfq.Level{Name: q.levels[i].Name, Weight: at.schedWeight}
				at = at.parent
			}
		}
		if err := a.sched.SetQueue(f.id, path); err != nil {
			a.fault("put "+f.name+" into queue "+f.rule.Queue.Name(), err)
		} else {
			c.queue = f.rule.Queue
		}
	}
	if whole := c.node.toSchedWeight(c.weight); whole != c.schedWeight {
		c.schedWeight = whole
		if err := a.sched.SetWeight(f.id, whole); err != nil {
			a.fault("set weight of "+f.name, err)
		}
	}
	if !a.tree.inForce() {
		c.entitled = c.weight
	}
}

// measure computes each flow's entitlement among all flows at work. The entitlement is the weight
// of the flow's topmost queue (or of the flow, if it is in no queue), multiplied at each lower
// level, down to the flow, by the member's part of the weights at work there. The bounds of
// backlogs and the choice of the flow to idle for depend on entitlements. The order of dispatch
// does not.
func (l *queueTree) measure(a *Arbiter, now time.Duration) {
	l.round++
	for _, f := range a.active {
		if !f.atWork(now) {
			continue
		}
		weight := f.leaf.weight
		for at := f.leaf.node; at != nil; at = at.parent {
			counted := at.round == l.round
			if !counted {
				at.round, at.weightAtWork = l.round, 0
			}
			at.weightAtWork += weight
			if counted {
				break // this node is already counted at its parent
			}
			weight = at.weight
		}
	}
	for _, f := range a.active {
		l.entitle(f, f.atWork(now))
	}
}

// entitle sets a flow's entitlement. counted is set if the flow is among those at work.
func (l *queueTree) entitle(f *flow, counted bool) {
	part, weight := 1.0, f.leaf.weight
	for at := f.leaf.node; at.parent != nil; at = at.parent {
		working := 0.0
		if at.round == l.round {
			working = at.weightAtWork
		}
		if !counted {
			working += weight
		}
		part *= weight / working
		weight, counted = at.weight, at.round == l.round
	}
	f.leaf.entitled = part * weight
}
