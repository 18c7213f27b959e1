package coordination

import (
	"math"

	"penstock/core/sfq"
	"penstock/wire/cluster"
)

// rightOf reads a right whose weight and limit are checked. A way that no scheduler would take
// is none: the weight among all then stands for it.
func rightOf(r *cluster.Right) Right {
	right := Right{Weight: r.GetWeight(), Limit: int64(r.GetLimit())}
	own, ok := whole(r.GetOwn())
	if !ok || len(r.GetQueues()) > sfq.MaxLevels {
		return right
	}
	var levels []sfq.Level
	for _, l := range r.GetQueues() {
		weight, ok := whole(l.GetWeight())
		if !ok || l.GetQueue() == "" || len(l.GetQueue()) > sfq.MaxQueueName {
			return right
		}
		levels = append(levels, sfq.Level{Name: l.GetQueue(), Weight: weight})
	}
	right.Own, right.Queues = own, levels
	return right
}

// whole reads a scheduler's weight.
func whole(weight float64) (int, bool) {
	if !(weight > 0 && weight <= sfq.MaxWeight) {
		return 0, false
	}
	return max(1, int(math.Round(weight))), true
}
