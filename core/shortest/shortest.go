// Package shortest orders the applications of a queue, the shortest first, and gives each a slice of the queue's
// share by its rank (disk contention, section V: shortest job first with resized slices).
//
// Shortest first lowers the mean completion time, but it can starve long jobs, and it needs sizes that nobody
// knows. The order here is that of FSP (Friedman and Henderson, "Fairness and efficiency in web server
// protocols"), which HFSP brought to Hadoop (Pastorelli et al., cited by the disk contention paper as [13]): a
// virtual queue shares the same capacity evenly among the same jobs, and the real queue serves them in the order in
// which they end there. A long job does not wait forever, because its virtual end comes closer all the time; with
// the whole device for the first, no job ends later than with even shares. A floor (Slices) bounds what wrong
// sizes can do.
//
// Departures. The virtual queue's capacity is the service that the queue really had, since a share of a cluster
// has no constant rate. Sizes are estimates that change (Observation.Remaining), so finish tags are computed from
// the present estimate. An application passes another only if it is shorter beyond an error of Noise in both
// estimates, so that noise does not swap slices back and forth; once, when its estimate has become good
// (goodError), it is placed without this margin.
//
// The package is pure. Update costs O(n log n) for n applications, and O(n²) if all places change; at most
// MaxOrdered applications are ordered.
package shortest

import (
	"cmp"
	"math"
	"slices"
)

const (
	// Noise is the relative error of estimates that changes no order.
	Noise = 0.3
	// goodError is the relative error below which an estimate is good.
	goodError = 0.5
	// MaxOrdered is the largest number of applications of one queue that are ordered. Further ones have the last
	// rank together.
	MaxOrdered = 256
	// historyGain is the part by which each ended application changes the history's mean.
	historyGain = 0.2
)

// Job is the present state of an application.
type Job struct {
	Name   string
	Weight float64 // its part of the virtual queue, above 0
	// Moved is the number of bytes since the last Update, 0 or more.
	Moved float64
	// Progress is the part of the job that is done, 0 to 1. Below 0: not known.
	Progress float64
	// Size is the stated size of the whole job in bytes; 0: not known.
	Size float64
}

// Place is the result for one application.
type Place struct {
	Rank      int     // from 1
	Part      float64 // of the queue's share, 0 to 1
	Remaining Estimate
}

// Queue is the state of one queue. The zero value is empty. Virtual time is in bytes for each unit of weight: it
// is the service that a job of weight 1 would have had under even shares.
type Queue struct {
	virtual float64
	order   []*job // by rank
	byName  map[string]*job
	round   uint64
	history float64
	ended   []virtualEnd // of applications that have really ended, at most MaxOrdered
}

// virtualEnd is the end of an application in the virtual queue.
type virtualEnd struct{ at, weight float64 }

// job is an application with its virtual start.
type job struct {
	name         string
	weight       float64
	start        float64 // virtual time at which it came
	seen         Observation
	remaining    Estimate
	good, placed bool
	round        uint64
}

// finish returns the virtual finish if the remaining work is the estimate times a factor.
func (j *job) finish(factor float64) float64 {
	return j.start + (j.seen.Served+j.remaining.Bytes*factor)/j.weight
}

// Update takes the state of all applications of the queue and returns their places, in the order of jobs.
// Names must differ. Applications that are missing have ended. The slices must be valid.
func (q *Queue) Update(jobs []Job, s Slices) []Place {
	if q.byName == nil {
		q.byName = map[string]*job{}
	}
	q.round++
	moved := 0.0
	for _, j := range jobs {
		moved += q.observe(j)
	}
	q.order = slices.DeleteFunc(q.order, func(j *job) bool {
		if j.round == q.round {
			return false
		}
		q.end(j)
		return true
	})
	q.advance(moved)
	q.sort()
	parts := s.Parts(max(len(jobs), len(q.order)))
	places := make([]Place, len(jobs))
	ranks := make(map[*job]int, len(q.order))
	for i, j := range q.order {
		ranks[j] = i + 1
	}
	for i, one := range jobs {
		j := q.byName[one.Name]
		rank := ranks[j]
		if rank == 0 { // not ordered
			places[i] = Place{Rank: len(q.order) + 1, Part: parts[len(parts)-1]}
			continue
		}
		places[i] = Place{Rank: rank, Part: parts[rank-1], Remaining: j.remaining}
	}
	return places
}

// observe takes the state of one application and returns its service since the last one.
func (q *Queue) observe(now Job) float64 {
	j := q.byName[now.Name]
	if j == nil {
		if len(q.order) >= MaxOrdered {
			return 0
		}
		j = &job{name: now.Name, start: q.virtual, seen: Observation{Progress: -1, First: -1}}
		q.byName[now.Name] = j
		q.order = append(q.order, j)
	} else {
		j.seen.Served += max(0, now.Moved)
	}
	j.round, j.weight = q.round, max(now.Weight, 1e-9)
	if now.Progress >= 0 && now.Progress <= 1 {
		if j.seen.First < 0 || now.Progress < j.seen.First { // an application that tries again starts its progress again
			j.seen.First = now.Progress
		}
		j.seen.Progress = now.Progress
	}
	j.seen.Size, j.seen.History = max(0, now.Size), q.history
	j.remaining = j.seen.Remaining()
	return max(0, now.Moved)
}

// end forgets an application that has ended.
func (q *Queue) end(j *job) {
	delete(q.byName, j.name)
	if len(q.ended) == MaxOrdered {
		q.ended = q.ended[1:]
	}
	q.ended = append(q.ended, virtualEnd{j.start + j.seen.Served/j.weight, j.weight})
	if q.history == 0 {
		q.history = j.seen.Served
	} else {
		q.history += historyGain * (j.seen.Served - q.history)
	}
}

// advance moves the virtual time by the service of all applications. Those that have ended virtually take nothing
// more there. Those that have really ended, but not virtually, still take their part.
func (q *Queue) advance(moved float64) {
	ends := slices.Clone(q.ended)
	weights := 0.0
	for _, j := range q.order {
		ends = append(ends, virtualEnd{j.finish(1), j.weight})
	}
	ends = slices.DeleteFunc(ends, func(e virtualEnd) bool { return e.at <= q.virtual })
	slices.SortStableFunc(ends, func(a, b virtualEnd) int { return cmp.Compare(a.at, b.at) })
	for _, e := range ends {
		weights += e.weight
	}
	for _, e := range ends {
		needs := (e.at - q.virtual) * weights
		if needs > moved {
			q.virtual += moved / weights
			break
		}
		moved, q.virtual, weights = moved-needs, e.at, weights-e.weight
	}
	q.ended = slices.DeleteFunc(q.ended, func(e virtualEnd) bool { return e.at <= q.virtual || len(q.order) == 0 })
}

// sort brings the applications into their order. New ones and those whose estimates have become good are placed by
// their estimates; the others move only beyond the noise.
func (q *Queue) sort() {
	var place []*job
	stay := q.order[:0:0]
	for _, j := range q.order {
		good := j.remaining.Error <= goodError
		if !j.placed || good && !j.good {
			place = append(place, j)
		} else {
			stay = append(stay, j)
		}
		j.placed, j.good = true, j.good || good
	}
	// An estimate of r means a true value of r/(1+Noise) to r/(1-Noise). Of those that no other one must precede, whatever the noise, the first in the old order is next. Comparing neighbours only would keep
	// a chain of applications, each within the noise of the next, in the wrong order for ever.
	for i := range stay {
		first := math.Inf(1) // the earliest end, at the latest, of those that are left
		for _, j := range stay[i:] {
			first = min(first, j.finish(1/(1-Noise)))
		}
		k := i
		for stay[k].finish(1/(1+Noise)) > first {
			k++
		}
		j := stay[k]
		copy(stay[i+1:k+1], stay[i:k])
		stay[i] = j
	}
	slices.SortStableFunc(place, func(a, b *job) int { return cmp.Compare(a.finish(1), b.finish(1)) })
	for _, j := range place {
		at := len(stay)
		for at > 0 && j.finish(1) < stay[at-1].finish(1) {
			at--
		}
		stay = slices.Insert(stay, at, j)
	}
	q.order = stay
}
