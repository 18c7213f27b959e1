package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/lab/disk"
)

const (
	// window is the number of quanta that a task's stream has in flight: the device serves one of them
	// while the other waits.
	window = 2
	// fetchers is the number of map outputs that a reduce fetches at a time. 5 is MapReduce's
	// default.
	fetchers = 5
	// mergeOver is the size, in bytes, above which a reduce merges its input on the disk.
	mergeOver = 256 << 20
)

// yarn gives slots to tasks and runs the tasks. A map reads a block, on the block's node if
// possible, and spills its output. A reduce fetches the maps' output, merges it on its disk, and
// writes to HDFS, each block on several nodes. In a job without reduces, maps write to HDFS.
//
// Slots are shared as in YARN's fair scheduler: among queues and, within a queue, among its jobs.
// So a job with many tasks does not keep the slots from later jobs. A reduce asks for a slot when
// all maps of its job are done (MapReduce's slow start at 1), so no reduce holds a slot while maps
// wait.
type yarn struct {
	cluster *Cluster
	spec    MapReduceSpec
	rand    *rand.Rand
	jobs    []*job // submitted and not done, oldest first
	all     []int  // numbers of all places
	free    []int  // free slots, by place
	queues  map[string]*queue
	left    []int // number of jobs that are not done, by application
	wanted  int   // number of foreground jobs that are not done
}

// queue is a queue of YARN.
type queue struct {
	running int // running tasks
	slots   int // bound on running tasks; 0: no bound
}

type job struct {
	*work
	rand    *rand.Rand
	app     *App
	queue   *queue
	maps    []*task
	reduces []*task
	local   [][]*task // place -> maps that have a replica there
	any     []*task   // maps that wait for a slot, oldest first
	ready   []*task   // reduces that wait for a slot, oldest first
	left    int       // maps that are not done
	toGo    int       // tasks that are not done
	running int
	spilt   []int64 // bytes of map output, by place
	ended   func(time.Duration)

	submitted time.Duration
}

type state uint8

const (
	waiting state = iota
	running
	done
)

type task struct {
	job      *job
	number   int
	reduce   bool
	state    state
	replicas []int // of a map's block
	in, out  int64
	at       int // place
	step     int
	attempt  int
	streams  []*stream
	open     int
	fetch    []piece
}

type piece struct {
	at    int
	bytes int64
}

func newYarn(c *Cluster, s MapReduceSpec, seed uint64) *yarn {
	y := &yarn{cluster: c, spec: s, rand: rand.New(rand.NewPCG(seed, 77)), free: make([]int, len(c.places)),
		queues: map[string]*queue{}, left: make([]int, len(c.apps))}
	for i := range y.free {
		y.all = append(y.all, i)
		y.free[i] = s.Slots
	}
	return y
}

// add submits a job. Its random values depend only on the seed and the job, so it has the same
// blocks regardless of the other jobs.
func (y *yarn) add(w *work, app *App, at time.Duration, seed uint64, ended func(time.Duration)) {
	c := y.cluster
	name := cmp.Or(w.queue, app.Name)
	q := y.queues[name]
	if q == nil {
		q = &queue{}
		y.queues[name] = q
	}
	if w.slots > 0 {
		q.slots = w.slots
	}
	j := &job{work: w, app: app, queue: q, rand: rand.New(rand.NewPCG(seed, uint64(w.index)<<8|7)), local: make([][]*task, len(c.places)),
		spilt: make([]int64, len(c.places)), left: w.maps, toGo: w.maps + w.reduces, ended: ended, submitted: at}
	where := w.on
	if where == nil {
		for n := range c.places {
			if w.spread == 0 || j.rand.Float64() < w.spread {
				where = append(where, n)
			}
		}
		if len(where) == 0 {
			where = []int{j.rand.IntN(len(c.places))}
		}
	}
	for i := range w.maps {
		t := &task{job: j, number: i, in: part(w.input, i, w.maps)}
		if w.reduces > 0 {
			t.out = part(w.shuffle, i, w.maps)
		} else {
			t.out = part(w.output, i, w.maps)
		}
		if w.input > 0 {
			t.replicas = y.replicas(j, where[j.rand.IntN(len(where))], where)
		}
		j.maps = append(j.maps, t)
		j.offer(t)
	}
	for i := range w.reduces {
		t := &task{job: j, number: i, reduce: true, in: part(w.shuffle, i, w.reduces), out: part(w.output, i, w.reduces)}
		j.reduces = append(j.reduces, t)
		j.offer(t)
	}
	y.left[app.index]++
	if !w.background {
		y.wanted++
	}
	c.At(at, func() {
		y.jobs = append(y.jobs, j)
		y.spread()
	})
}

// part returns the i-th of n parts of bytes.
func part(bytes int64, i, n int) int64 {
	p := bytes / int64(n)
	if int64(i) < bytes%int64(n) {
		p++
	}
	return p
}

// offer adds a task to those that wait for a slot.
func (j *job) offer(t *task) {
	t.state = waiting
	if t.reduce {
		j.ready = append(j.ready, t)
		return
	}
	j.any = append(j.any, t)
	for _, r := range t.replicas {
		j.local[r] = append(j.local[r], t)
	}
}

// replicas returns places on different disks for the replicas of a block. The first replica is at
// the place "first"; the other places are drawn at random from the list "of".
func (y *yarn) replicas(j *job, first int, of []int) []int {
	c := y.cluster
	r := []int{first}
	for tries := 0; len(r) < y.spec.Replication && tries < 8*y.spec.Replication; tries++ {
		n := of[j.rand.IntN(len(of))]
		if !c.places[n].node.gone && !slices.ContainsFunc(r, func(o int) bool { return c.places[o].disk == c.places[n].disk }) {
			r = append(r, n)
		}
	}
	return r
}

// spread gives free slots to tasks, one slot per node in turn.
func (y *yarn) spread() {
	n := len(y.free)
	begin := y.rand.IntN(n)
	for some := true; some; {
		some = false
		for i := range n {
			some = y.assign((begin+i)%n) || some
		}
	}
}

// assign gives one slot of a place to a task, and reports whether a task took it.
func (y *yarn) assign(at int) bool {
	if y.free[at] == 0 || y.cluster.places[at].node.gone {
		return false
	}
	var best *job
	for _, j := range y.jobs {
		if !j.some() || j.queue.slots > 0 && j.queue.running >= j.queue.slots {
			continue
		}
		if best == nil || y.spec.Order == orderFair && j.before(best) {
			best = j
		}
	}
	if best == nil {
		return false
	}
	y.begin(best.take(at), at)
	return true
}

// before reports whether a job's next task goes before the next task of an older job: its queue has
// fewer running tasks or, if both are in the same queue, the job itself has fewer.
func (j *job) before(older *job) bool {
	if j.queue != older.queue {
		return j.queue.running < older.queue.running
	}
	return j.running < older.running
}

// some reports whether the job has a task that can use a slot.
func (j *job) some() bool {
	j.any = trim(j.any)
	j.ready = trim(j.ready)
	return len(j.any) > 0 || j.left == 0 && len(j.ready) > 0
}

// trim removes tasks at the front that have already begun.
func trim(l []*task) []*task {
	for len(l) > 0 && l[0].state != waiting {
		l = l[1:]
	}
	return l
}

// take removes and returns a task for a place: a map with a local block, if there is one.
func (j *job) take(at int) *task {
	j.local[at] = trim(j.local[at])
	for _, l := range []*[]*task{&j.local[at], &j.any, &j.ready} {
		if len(*l) > 0 {
			t := (*l)[0]
			*l = (*l)[1:]
			return t
		}
	}
	panic("sim: no task waits") // impossible after some has returned true
}

func (y *yarn) begin(t *task, at int) {
	t.state, t.at, t.step = running, at, 0
	t.attempt++
	attempt := t.attempt
	y.free[at]--
	t.job.queue.running++
	t.job.running++
	y.cluster.After(time.Duration(y.spec.Start), func() { y.resume(t, attempt) })
}

// resume starts the task's next step when all streams of the last step have ended.
func (y *yarn) resume(t *task, attempt int) {
	if attempt != t.attempt || t.state != running {
		return // the attempt has failed
	}
	t.streams = t.streams[:0]
	for t.open == 0 {
		step := t.step
		t.step++
		j := t.job
		switch {
		case !t.reduce && step == 0:
			y.run(t, y.source(t), disk.Read, t.in, j.rate)
		case !t.reduce && step == 1 && j.work.reduces > 0:
			y.run(t, t.at, disk.Write, t.out, 0)
		case !t.reduce && step == 1, t.reduce && step == 3:
			if t.out > 0 {
				for _, n := range y.targets(t) {
					y.run(t, n, disk.Write, t.out, j.rate)
				}
			}
		case t.reduce && step == 0:
			y.shuffle(t)
		case t.reduce && step == 1 && t.in > mergeOver:
			y.run(t, t.at, disk.Write, t.in, 0)
		case t.reduce && step == 2 && t.in > mergeOver:
			y.run(t, t.at, disk.Read, t.in, 0)
		case t.reduce && step < 3:
		default:
			y.finish(t)
			return
		}
	}
}

// source returns the place where a map reads its block: its own place, or another place with a
// replica.
func (y *yarn) source(t *task) int {
	if t.in == 0 || slices.Contains(t.replicas, t.at) {
		return t.at
	}
	begin := t.job.rand.IntN(len(t.replicas))
	for i := range t.replicas {
		if n := t.replicas[(begin+i)%len(t.replicas)]; !y.cluster.places[n].node.gone {
			return n
		}
	}
	return t.at // the nodes of all replicas have left; the map is played as if its block were local
}

// targets returns the places to which a task's output is written.
func (y *yarn) targets(t *task) []int {
	return y.replicas(t.job, t.at, y.all)
}

// run starts a stream of a task.
func (y *yarn) run(t *task, at int, op disk.Op, bytes, rate int64) {
	y.stream(t, at, op, bytes, rate, func() {})
}

func (y *yarn) stream(t *task, at int, op disk.Op, bytes, rate int64, then func()) {
	if bytes <= 0 {
		return
	}
	d := y.cluster.places[at].device
	pace := time.Duration(0)
	if rate > 0 {
		pace = time.Duration(float64(d.cfg.Quantum) / float64(rate) * float64(time.Second))
	}
	attempt := t.attempt
	t.open++
	t.streams = append(t.streams, d.begin(t.job.app, op, t.job.rand.Int64N(1<<40), bytes, window, pace, func() {
		if attempt != t.attempt {
			return
		}
		t.open--
		then()
		if t.open == 0 {
			y.resume(t, attempt)
		}
	}))
}

// shuffle fetches a reduce's part of the maps' output, from several nodes at a time.
func (y *yarn) shuffle(t *task) {
	j := t.job
	t.fetch = t.fetch[:0]
	begin := j.rand.IntN(len(j.spilt))
	for i := range j.spilt {
		n := (begin + i) % len(j.spilt)
		if b := part(j.spilt[n], t.number, j.work.reduces); b > 0 {
			t.fetch = append(t.fetch, piece{n, b})
		}
	}
	for range fetchers {
		y.next(t)
	}
}

func (y *yarn) next(t *task) {
	if len(t.fetch) == 0 {
		return
	}
	p := t.fetch[0]
	t.fetch = t.fetch[1:]
	y.stream(t, p.at, disk.Read, p.bytes, 0, func() { y.next(t) })
}

// finish ends a task and frees its slot for another.
func (y *yarn) finish(t *task) {
	j := t.job
	t.state = done
	y.release(t)
	j.toGo--
	if !t.reduce {
		j.left--
		if j.work.reduces > 0 {
			j.spilt[t.at] += t.out
		}
	}
	if j.toGo == 0 {
		y.end(j)
	}
	if j.left == 0 && !t.reduce {
		y.spread()
		return
	}
	for y.assign(t.at) {
	}
}

func (y *yarn) release(t *task) {
	y.free[t.at]++
	t.job.queue.running--
	t.job.running--
}

func (y *yarn) end(j *job) {
	y.jobs = slices.DeleteFunc(y.jobs, func(o *job) bool { return o == j })
	if !j.background {
		y.wanted--
	}
	j.ended(y.cluster.Now())
	if y.left[j.app.index]--; y.left[j.app.index] == 0 {
		j.app.ended = true
		for _, n := range y.cluster.nodes {
			n.end(j.app.index)
		}
	}
}

// lost fails the running tasks that need a node that has left, and repeats the maps that finished
// on it, because their output is lost.
func (y *yarn) lost(n *node) {
	c := y.cluster
	for _, j := range y.jobs {
		for _, t := range slices.Concat(j.maps, j.reduces) {
			here := c.places[t.at].node == n
			switch {
			case t.state == running:
				touches := slices.ContainsFunc(t.streams, func(s *stream) bool { return s.device == n.device && s.done != nil })
				if here || touches || t.reduce && t.step == 1 && !t.reduceSpared(n, c) {
					y.fail(t)
				}
			case t.state == done && !t.reduce && here && j.work.reduces > 0:
				j.spilt[t.at] -= t.out
				j.left++
				j.toGo++
				j.offer(t)
			}
		}
	}
	y.spread()
}

// reduceSpared reports whether a fetching reduce needs nothing more from a node.
func (t *task) reduceSpared(n *node, c *Cluster) bool {
	return !slices.ContainsFunc(t.fetch, func(p piece) bool { return c.places[p.at].node == n })
}

// fail stops a task. The task starts again, perhaps elsewhere.
func (y *yarn) fail(t *task) {
	for _, s := range t.streams {
		s.end()
	}
	t.streams, t.open = t.streams[:0], 0
	t.attempt++
	y.release(t)
	t.job.offer(t)
}

// applicationsOf returns the applications of the works, in order of their first works, and the
// application of each work.
func applicationsOf(works []*work) (apps []*App, of []*App) {
	known := map[string]*App{}
	for _, w := range works {
		a := known[w.application]
		if a == nil {
			a = &App{Name: w.application, Weight: w.weight, kind: w.kind}
			known[w.application] = a
			apps = append(apps, a)
		}
		of = append(of, a)
	}
	return apps, of
}
