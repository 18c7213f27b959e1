package foreign_test

import (
	"math/rand/v2"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/foreign"
)

// hdd is the model of a disk of 12 MB/s with seeks of 10 ms.
var hdd = cost.Model{Read: hddLines, Write: hddLines}

var hddLines = cost.Coefficients{
	Random:     cost.Line{Fixed: seek, PerMiB: perMiB},
	Sequential: cost.Line{PerMiB: perMiB},
}

const (
	kib    = int64(1) << 10
	mib    = int64(1) << 20
	seek   = 10 * time.Millisecond
	perMiB = time.Second * time.Duration(mib) / 12_000_000
)

// load is what one party wants of the disk.
type load struct {
	size    int64 // of a request
	burst   int   // requests that come together, as the kernel reads ahead
	write   bool
	random  bool
	apart   time.Duration // between bursts; 0: the next comes when one is done
	depth   int           // bursts in flight, where apart is 0
	foreign bool
	quantum int64 // the caller's: a burst is a quantum, unless moved
	moved   bool  // the kernel does it for the caller's flows
	next    time.Duration
	waiting int
}

// request is one at the disk.
type request struct {
	of    *load
	last  bool // of its burst
	since time.Duration
}

// disk serves requests in the order of their arrival, and goes to a new place
// where one does not follow the one before.
type disk struct {
	now, busy   time.Duration // until when
	queue       []request
	loads       []*load
	at          *load // whose request was the last one
	random      *rand.Rand
	counters    foreign.Counters
	own, flying foreign.Counters
	work        time.Duration // of the caller's requests, by the model
	truth       time.Duration // what others took
	theirs      [2]int64      // bytes of others
	moved       [2]int64
	slower      float64           // times the model
	control     *depth.Controller // of the caller, if it has one
}

func newDisk(seed uint64) *disk { return &disk{random: rand.New(rand.NewPCG(seed, 0)), slower: 1} }

func (d *disk) arrive(l *load) {
	l.waiting++
	if l.quantum > 0 {
		d.flying.Add(l.write, l.quantum)
	}
	for i := range l.burst {
		d.queue = append(d.queue, request{l, i == l.burst-1, d.now})
	}
}

// run lets so much time pass.
func (d *disk) run(length time.Duration) {
	for end := d.now + length; ; {
		next := end
		for _, l := range d.loads {
			switch {
			case l.apart == 0:
				for l.waiting < l.depth {
					d.arrive(l)
				}
			case l.next <= d.now:
				d.arrive(l)
				l.next = d.now + l.apart
				fallthrough
			default:
				next = min(next, l.next)
			}
		}
		if len(d.queue) > 0 && d.busy <= d.now {
			d.serve()
		}
		if len(d.queue) > 0 || d.busy > d.now {
			next = min(next, max(d.busy, d.now))
		}
		if d.now = next; d.now >= end {
			return
		}
	}
}

// serve does the first request; its counters are of its beginning, which is as
// good as its end.
func (d *disk) serve() {
	r := d.queue[0]
	d.queue = d.queue[1:]
	l := r.of
	took := time.Duration(float64(l.model(l != d.at || l.random, l.size)) * d.slower)
	d.at, d.busy = l, d.now+took
	d.counters.Add(l.write, l.size)
	if l.foreign {
		d.truth += took
		d.theirs[side(l.write)] += l.size
	}
	if l.moved {
		d.moved[side(l.write)] += l.size
	}
	if !r.last {
		return
	}
	l.waiting--
	if l.quantum > 0 {
		d.own.Add(l.write, l.quantum)
		d.flying.Requests[side(l.write)]--
		d.flying.Bytes[side(l.write)] -= l.quantum
		d.work += l.model(l.random, l.quantum)
		if d.control != nil {
			d.control.Observe(l.write, l.quantum, d.busy-r.since)
		}
	}
}

func (l *load) model(random bool, bytes int64) time.Duration { return hdd.Of(l.write, !random, bytes) }

func side(write bool) int {
	if write {
		return 1
	}
	return 0
}

// second is what a look a second later found, and the truth.
type second struct {
	foreign.Result
	truth time.Duration
	bytes [2]int64
}

// look lets a time pass and looks.
func (d *disk) look(e *foreign.Estimate, length time.Duration) second {
	truth, theirs := d.truth, d.theirs
	d.run(length)
	for i, bytes := range d.moved {
		e.Moved(i == 1, bytes)
	}
	s := second{Result: e.Observe(d.now, d.counters, d.own, d.flying, d.work), truth: d.truth - truth}
	for i := range 2 {
		s.bytes[i] = d.theirs[i] - theirs[i]
	}
	d.work, d.moved = 0, [2]int64{}
	return s
}

// own are quanta that the kernel cuts into pieces, depth at a time.
func own(write bool, quantum, piece int64, depth int) *load {
	return &load{write: write, quantum: quantum, size: piece, burst: int(quantum / piece), depth: depth}
}

// stream is another's that reads or writes on, perSecond requests in bursts.
func stream(write bool, size int64, perSecond float64, burst int) *load {
	return &load{write: write, size: size, burst: burst, foreign: true, apart: time.Duration(float64(time.Second) * float64(burst) / perSecond)}
}

// scattered are requests of others at random places.
func scattered(write bool, size int64, perSecond float64) *load {
	l := stream(write, size, perSecond, 1)
	l.random = true
	return l
}
