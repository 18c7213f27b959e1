package coordination

import (
	"container/list"
	"math"

	"penstock/core/sfq"
	"penstock/wire/cluster"
)

// rightOf reads a right; ok is false if it is none. A way that no scheduler would take is none:
// then, and of a broker that tells none, the weight among all stands for it.
func rightOf(r *cluster.Right) (right Right, ok bool) {
	if r.GetLimit() > math.MaxInt64 {
		return Right{}, false
	}
	right = Right{Weight: r.GetWeight(), Limit: int64(r.GetLimit())}
	flat := right.Weight > 0 && right.Weight <= 1e12
	own, ok := whole(r.GetOwn())
	if !ok || len(r.GetQueues()) > sfq.MaxLevels {
		return right, flat
	}
	var levels []sfq.Level
	for _, l := range r.GetQueues() {
		weight, ok := whole(l.GetWeight())
		if !ok || l.GetQueue() == "" || len(l.GetQueue()) > sfq.MaxQueueName {
			return right, flat
		}
		levels = append(levels, sfq.Level{Name: l.GetQueue(), Weight: weight})
	}
	right.Weight, right.Queues = float64(own), levels
	return right, true
}

// whole reads a scheduler's weight.
func whole(weight float64) (int, bool) {
	if !(weight > 0 && weight <= sfq.MaxWeight) {
		return 0, false
	}
	return max(1, int(math.Round(weight))), true
}

// rights are what the policy gives applications, by name. They outlive entries: an application
// that has nothing to do for a while still has its limit when it begins again, though the broker
// may be away by then. Past the bound those go that are no entries, the one that was longest ago first.
type rights struct {
	most   int // at least as many as there may be entries
	byName map[string]*list.Element
	recent *list.List // of *granted, the latest used first
}

type granted struct {
	name  string
	right Right
}

func newRights(most int) rights {
	return rights{most: most, byName: map[string]*list.Element{}, recent: list.New()}
}

func (r *rights) of(name string) (Right, bool) {
	el := r.byName[name]
	if el == nil {
		return Right{}, false
	}
	return el.Value.(*granted).right, true
}

// set notes an entry's right.
func (r *rights) set(name string, right Right, isEntry func(name string) bool) {
	if el := r.byName[name]; el != nil {
		el.Value.(*granted).right = right
		r.recent.MoveToFront(el)
		return
	}
	for n := r.recent.Len(); n > 0 && r.recent.Len() >= r.most; n-- {
		last := r.recent.Back()
		if old := last.Value.(*granted).name; isEntry(old) {
			r.recent.MoveToFront(last)
		} else {
			r.recent.Remove(last)
			delete(r.byName, old)
		}
	}
	r.byName[name] = r.recent.PushFront(&granted{name, right})
}

// used puts a right behind all others on the way out.
func (r *rights) used(name string) {
	if el := r.byName[name]; el != nil {
		r.recent.MoveToFront(el)
	}
}

func (r *rights) all() map[string]Right {
	all := make(map[string]Right, len(r.byName))
	for name, el := range r.byName {
		all[name] = el.Value.(*granted).right
	}
	return all
}
