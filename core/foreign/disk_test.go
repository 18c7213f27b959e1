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

// load is a series of requests from one source.
type load struct {
	size    int64 // of a request
	burst   int   // requests that arrive together, as with readahead
	write   bool
	random  bool
	apart   time.Duration // time between bursts; 0 if a burst follows when another one ends
	depth   int           // bursts in flight, if apart is 0
	foreign bool
	quantum int64 // size of the caller's quantum, which is one burst; 0 for other loads
	moved   bool  // the kernel moves these bytes for the caller's flows
	next    time.Duration
	waiting int
}

// request is a request at the disk.
type request struct {
	of    *load
	last  bool // set for the last request of a burst
	since time.Duration
}

// disk serves requests in the order of their arrival. It seeks if a request does not follow the
// previous one.
type disk struct {
	now, busy   time.Duration // the disk is busy until this time
	queue       []request
	loads       []*load
	at          *load // load of the last request
	random      *rand.Rand
	counters    foreign.Counters
	own, flying foreign.Counters
	work        time.Duration // of the caller's requests, by the model
	truth       time.Duration // device time of foreign requests
	theirs      [2]int64      // foreign bytes
	moved       [2]int64
	slower      float64           // real cost divided by the model's
	control     *depth.Controller // the caller's, or nil
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

// run advances the disk's time by length.
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

// serve serves the first request. The disk's counters change at the beginning of the request;
// counting at its end would not matter here.
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

// second is the result of one look, with the true values.
type second struct {
	foreign.Result
	truth time.Duration
	bytes [2]int64
}

// look advances the disk's time by length and calls Observe.
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

// own returns the caller's load. The parameter depth is the number of quanta in flight; the kernel
// cuts each quantum into pieces.
func own(write bool, quantum, piece int64, depth int) *load {
	return &load{write: write, quantum: quantum, size: piece, burst: int(quantum / piece), depth: depth}
}

// stream returns a foreign sequential load of perSecond requests a second, in bursts.
func stream(write bool, size int64, perSecond float64, burst int) *load {
	return &load{write: write, size: size, burst: burst, foreign: true, apart: time.Duration(float64(time.Second) * float64(burst) / perSecond)}
}

// scattered returns a foreign load at random places.
func scattered(write bool, size int64, perSecond float64) *load {
	l := stream(write, size, perSecond, 1)
	l.random = true
	return l
}
