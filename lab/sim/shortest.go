package sim

import (
	"time"

	"penstock/core/shortest"
)

const (
	// reordering is the time between two updates of an ordered queue (rightsInterval in package broker).
	reordering = 500 * time.Millisecond
	// polling is the time between two requests for the jobs' progress (period in package applications).
	polling = 5 * time.Second
	// sliceScale is the weight of a job that has the whole share of its queue.
	sliceScale = 100
)

// orderer is the part of the broker that orders a queue with all jobs by their remaining work. It knows the bytes
// that applications have moved from the nodes' reports and, with wayShortest, their progress from the
// ResourceManager. With waySized, it knows the jobs' sizes instead.
type orderer struct {
	cluster  *Cluster
	yarn     *yarn
	slices   shortest.Slices
	sized    bool
	queue    shortest.Queue
	progress []float64
	moved    []int64 // at the last update
	polled   time.Duration
}

func newOrderer(c *Cluster, y *yarn, s shortest.Slices, sized bool) *orderer {
	o := &orderer{cluster: c, yarn: y, slices: s, sized: sized, polled: -polling}
	o.progress, o.moved = make([]float64, len(c.apps)), make([]int64, len(c.apps))
	c.After(0, o.update)
	return o
}

// update orders the jobs, and gives their applications weights by rank. Nodes get them with their next answers.
func (o *orderer) update() {
	c := o.cluster
	c.After(reordering, o.update)
	poll := c.Now()-o.polled >= polling
	if poll {
		o.polled = c.Now()
	}
	var jobs []shortest.Job
	var apps []*App
	for _, j := range o.yarn.jobs { // submitted and not done
		a := j.app
		if j.background {
			continue
		}
		moved := a.read + a.written
		one := shortest.Job{Name: a.Name, Weight: 1, Moved: float64(moved - o.moved[a.index]), Progress: -1}
		o.moved[a.index] = moved
		if o.sized {
			one.Size = float64(j.moves(min(o.yarn.spec.Replication, c.disks)))
		} else {
			if poll {
				o.progress[a.index] = j.progress()
			}
			one.Progress = o.progress[a.index]
		}
		jobs, apps = append(jobs, one), append(apps, a)
	}
	for i, p := range o.queue.Update(jobs, o.slices) {
		apps[i].Weight = max(p.Part*sliceScale, 0.01)
	}
}

// moves returns the bytes that a job reads from and writes to disks.
func (w *work) moves(replication int) int64 {
	all := w.input + w.output*int64(replication)
	if w.reduces > 0 {
		all += 2 * w.shuffle
		if part(w.shuffle, 0, w.reduces) > mergeOver {
			all += 2 * w.shuffle
		}
	}
	return all
}

// progress returns a job's progress as MapReduce's application master computes it: a twentieth each for set-up and
// clean-up, and the rest for maps and, if there are some, for reduces, in equal parts.
func (j *job) progress() float64 {
	const ends, tasks = 0.05, 0.9
	mean := func(all []*task) (p float64) {
		for _, t := range all {
			p += t.progress() / float64(len(all))
		}
		return p
	}
	if len(j.reduces) == 0 {
		return ends + tasks*mean(j.maps)
	}
	return ends + tasks/2*mean(j.maps) + tasks/2*mean(j.reduces)
}

// progress returns how much of a task is done, 0 to 1: its finished steps, and the part of the present step.
func (t *task) progress() float64 {
	steps := 2.0 // read, write
	switch {
	case t.state == done:
		return 1
	case t.state == waiting || t.step == 0:
		return 0
	case t.reduce:
		steps = 4 // fetch, two for the merge, write
	case t.in == 0:
		steps = 1
	}
	finished := float64(t.step - 1)
	if !t.reduce && t.in == 0 {
		finished = float64(t.step - 2)
	}
	now, all := 0.0, 0.0
	for _, s := range t.streams {
		now, all = now+float64(s.pos), all+float64(s.size)
	}
	if all > 0 {
		finished += now / all
	}
	return min(1, max(0, finished/steps))
}
