package coordination

import (
	"math"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"penstock/core/limit"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/core/sfq"
	"penstock/wire/cluster"
)

// rightOf reads a right; ok is false if the right is not valid. If the broker sends no path of
// queues, or one that no scheduler would accept, the result has no Queues, and its Weight is the
// application's weight among all applications.
func rightOf(r *cluster.Right) (right Right, ok bool) {
	if r.GetLimit() > math.MaxInt64 {
		return Right{}, false
	}
	right = Right{Weight: r.GetWeight(), Limit: int64(r.GetLimit()), Order: int(min(r.GetOrder(), policy.MaxRules))}
	if r.GetReserve() <= limit.MaxRate {
		promise := reserve.Rate{Bytes: int64(r.GetReserve()), Part: r.GetReservePart(), Strict: r.GetReserveStrict()}
		if promise.Validate() == nil { // a promise that is not valid is none
			right.Reserve = promise
		}
	}
	if goal := time.Duration(r.GetLatencyMs()) * time.Millisecond; policy.CheckLatency(goal) == nil { // one out of range is none
		right.Latency = goal
	}
	if r.GetTotalReserve() <= limit.MaxRate && r.GetTotalLimit() <= limit.MaxRate {
		right.Total = policy.Total{Reserve: int64(r.GetTotalReserve()), Limit: int64(r.GetTotalLimit())}
	}
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

// whole converts a weight to the whole number that a scheduler needs; false if the weight is out of
// range.
func whole(weight float64) (int, bool) {
	if !(weight > 0 && weight <= sfq.MaxWeight) {
		return 0, false
	}
	return max(1, int(math.Round(weight))), true
}

// rights are the policy's grants for applications, by name. They outlive entries: an application
// that is idle for a while still has its limit when it becomes active again, even if the broker
// is unreachable by then. Beyond the bound, rights without an entry are removed, the least
// recently used first.
type rights struct {
	most   int // at least the maximum number of entries
	byName *simplelru.LRU[string, Right]
	lapsed bool // limits are left out
}

func newRights(most int) rights {
	byName, _ := simplelru.NewLRU[string, Right](most, nil) // fails only for a size below 1
	return rights{most: most, byName: byName}
}

// of returns the right in force.
func (r *rights) of(name string) (Right, bool) {
	right, known := r.byName.Peek(name)
	if r.lapsed {
		right = right.withoutLimits()
	}
	return right, known
}

// set stores the right of an entry.
func (r *rights) set(name string, right Right, isEntry func(name string) bool) {
	if !r.byName.Contains(name) {
		r.makeRoom(isEntry)
	}
	r.byName.Add(name, right)
}

// makeRoom removes the oldest right without an entry if there is no room for another one.
func (r *rights) makeRoom(isEntry func(name string) bool) {
	for n := r.byName.Len(); n > 0 && r.byName.Len() >= r.most; n-- {
		if oldest, _, _ := r.byName.GetOldest(); isEntry(oldest) {
			r.used(oldest)
		} else {
			r.byName.Remove(oldest)
		}
	}
}

// used marks a right as the most recently used.
func (r *rights) used(name string) { r.byName.Get(name) }

func (r *rights) all() map[string]Right {
	all := make(map[string]Right, r.byName.Len())
	for _, name := range r.byName.Keys() {
		all[name], _ = r.of(name)
	}
	return all
}
