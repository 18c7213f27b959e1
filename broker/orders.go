package broker

import (
	"math"
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/shortest"
)

// sliceScale is the weight of an application that has its queue's whole share: the largest one. Weights are whole numbers, so
// the smallest slice is a millionth. The floors of maxApps applications are five times as large (shortest.Slices), so
// rounding does not make the floors exceed their half of the share.
const sliceScale = policy.MaxWeight

// orders is the state of the ordered queues (policy.Shortest).
type orders struct {
	queues map[string]*shortest.Queue // by path
	places map[string]shortest.Place  // by application
	at     time.Duration              // of the last update
}

// applyOrders replaces the weights of applications in ordered queues by their slices. grants belong to names, which
// are sorted by application number. b.mu is held.
func (b *Broker) applyOrders(names []string, grants []policy.Grant) {
	now := time.Since(b.created)
	o := &b.orders
	passed := now - o.at
	o.at = now
	old := o.queues
	o.queues, o.places = map[string]*shortest.Queue{}, map[string]shortest.Place{}
	members := map[string][]int{} // indexes by queue
	for i := range grants {
		order, ordered := b.policy.OrderOf(grants[i])
		switch {
		case !ordered:
		case b.options.Life(names[i]).Ended: // it only has data to write, for which nobody waits
			grants[i].Weight = max(1, order.Floor*sliceScale/100)
		default:
			members[grants[i].Queue] = append(members[grants[i].Queue], i)
		}
	}
	for path, in := range members {
		q := old[path]
		if q == nil {
			q = &shortest.Queue{}
		}
		o.queues[path] = q
		jobs := make([]shortest.Job, len(in))
		for k, i := range in {
			total, _ := b.totals.Of(names[i])
			jobs[k] = shortest.Job{Name: names[i], Weight: float64(grants[i].Weight), Moved: moved(total, passed), Progress: b.options.Progress(names[i]), Size: float64(grants[i].Size)}
		}
		slices, _ := b.policy.OrderOf(grants[in[0]])
		for k, p := range q.Update(jobs, slices) {
			grants[in[k]].Weight = max(1, int(math.Round(p.Part*sliceScale)))
			o.places[names[in[k]]] = p
		}
	}
	for path, q := range old { // a queue that is empty for a while keeps the sizes of earlier applications
		if _, there := o.queues[path]; !there && b.policy.Ordered(path) {
			q.Update(nil, shortest.Default())
			o.queues[path] = q
		}
	}
}

// moved returns the bytes that an application has moved in some time, from the rates in the nodes' last reports.
func moved(total coord.Service, passed time.Duration) float64 {
	return float64(total.Bytes) * min(passed, silentPeriods*maxPeriod).Seconds()
}
