package arbiter

import (
	"time"

	"penstock/core/cost"
	"penstock/core/foreign"
	"penstock/core/sfq"
)

// pricing computes the cost of requests. A request is announced at the cost of a sequential
// request, because most requests are sequential. When the request ends, pricing knows whether it
// was sequential, and the flow's tags are corrected by the difference.
//
// A request counts as sequential if the request that completed just before it on the device was in
// the same open file and ended at the offset where this request begins. The order of completion
// counts, not the order of dispatch, because kernel and disk reorder requests in flight. Positions
// are offsets in files, not blocks of the device. File systems lay out a block file of 128 MiB in
// one or a few extents, so a lookup of its extents (FIEMAP) for each quantum would change the
// result for only one in several dozen quanta. A stream counts as random if it continues in a file
// where another stream has stopped.
type pricing struct {
	model   cost.Model
	lines   [2][2]cost.Line // of the model, by direction, for random and sequential requests
	guessed bool            // there is no profile, and tags do not include seeks
	tracker *cost.Tracker
	verdict cost.Verdict
	tags    [2][2]memo // the last tags, by direction, for random and sequential requests
	times   [2][2]memo // the same for service
	part    [2]partMemo

	file   File // of the last completed request
	end    int64
	goesOn bool // the last completed request began where the one before it ended

	own             foreign.Counters // the device's work for the flows' requests
	work            time.Duration    // cost of that work since the last Observe
	kernelRead      int64            // bytes that the kernel has read for the flows outside of the schedule
	unscheduledWork time.Duration    // cost of kernel I/O for the flows outside of the schedule, since the last Observe
	foreign         *foreign.Estimate
	others          foreign.Result
}

// Profiled reports whether the costs were measured.
func (c Config) Profiled() bool { return c.Cost != (cost.Model{}) }

// Model returns the profile's model. Without a profile, it derives a model from the reference
// latencies. Costs then grow with the size of a request as the latencies do, and random requests
// cost Seek in addition.
func (c Config) Model() cost.Model {
	if c.Profiled() {
		return c.Cost
	}
	read, write := cost.Line(c.Depth.Read), cost.Line(c.Depth.Write)
	if write == (cost.Line{}) {
		write = read
	}
	away := func(l cost.Line) cost.Line {
		l.Fixed += c.Seek
		return l
	}
	return cost.Model{
		Read:  cost.Coefficients{Random: away(read), Sequential: read},
		Write: cost.Coefficients{Random: away(write), Sequential: write},
	}
}

func newPricing(c *Config) pricing {
	model := c.Model()
	return pricing{
		model: model, guessed: !c.Profiled(), tracker: cost.NewTracker(cost.TrackerConfig{Learn: !c.Profiled()}),
		lines:   [2][2]cost.Line{{model.Read.Random, model.Read.Sequential}, {model.Write.Random, model.Write.Sequential}},
		verdict: cost.Verdict{Factor: 1}, foreign: foreign.New(model),
	}
}

// of returns the model's cost of a request.
func (p *pricing) of(write, goesOn bool, bytes int64) time.Duration {
	lines := &p.lines[direction(write)]
	if goesOn {
		return lines[1].Of(bytes)
	}
	return lines[0].Of(bytes)
}

// price is a cost in two units: the scheduler's unit and the unit of the account of service.
type price struct {
	tag     int64 // for the scheduler, in ns of the model
	service int64 // device time at the device's present speed, in ns
}

func (p price) plus(q price) price { return price{p.tag + q.tag, p.service + q.service} }

// price returns the price of a request. The tag leaves out the correction that is common to reads
// and writes: that correction does not affect shares, but its changes would disturb them. A guessed
// seek enters only the account of service.
func (p *pricing) price(write, goesOn bool, bytes int64) price {
	return price{tag: p.tag(write, goesOn || p.guessed, bytes), service: p.service(write, goesOn, bytes)}
}

// memo caches a cost of the model multiplied by a factor. Nearly all requests are whole quanta, and
// factors change at most a few times a second.
type memo struct {
	bytes  int64
	factor float64
	scaled int64
}

// partMemo caches the part of the device that a request of this size keeps busy while it is alone.
type partMemo struct {
	bytes int64
	part  float64
}

func (p *pricing) tag(write, goesOn bool, bytes int64) int64 {
	return max(1, p.scaled(&p.tags, write, goesOn, bytes, p.tracker.Tilt(write)))
}

func (p *pricing) service(write, goesOn bool, bytes int64) int64 {
	return p.scaled(&p.times, write, goesOn, bytes, p.tracker.Scale(write))
}

func (p *pricing) scaled(memos *[2][2]memo, write, goesOn bool, bytes int64, factor float64) int64 {
	m := &memos[direction(write)][direction(goesOn)]
	if m.bytes != bytes || m.factor != factor {
		*m = memo{bytes, factor, int64(cost.Scaled(p.of(write, goesOn, bytes), factor))}
	}
	return m.scaled
}

// partOf returns the part of the device that a request keeps busy while it is alone.
func (p *pricing) partOf(write bool, bytes int64) float64 {
	m := &p.part[direction(write)]
	if m.bytes != bytes {
		*m = partMemo{bytes, p.model.Part(write, bytes)}
	}
	return m.part
}

// charge returns a request's cost for the scheduler before it is done.
func (p *pricing) charge(write bool, bytes int64) int64 {
	return min(sfq.MaxCost, p.tag(write, true, bytes))
}

// served returns the device time of a request at the present speed.
func (p *pricing) served(write, goesOn bool, bytes int64) time.Duration {
	return time.Duration(p.service(write, goesOn, bytes))
}

// tagOf converts device time to the scheduler's unit.
func (p *pricing) tagOf(d time.Duration) int64 {
	return max(1, int64(min(float64(sfq.MaxCost), float64(d)/p.tracker.Scale(false)*p.tracker.Tilt(false))))
}

// started records a request that is given to the device.
func (p *pricing) started(r *Request, now time.Duration) {
	if r.Stream.Turn {
		return
	}
	r.predicted, r.part = p.of(r.Write, true, r.Length), p.partOf(r.Write, r.Length)
	p.tracker.Start(now, r.predicted, r.part)
}

// finished returns the price of a completed request, or 0 if the device had no work. depth is the number of requests
// that may be at the device.
func (p *pricing) finished(r *Request, result Result, depth int, now time.Duration) (paid price) {
	if r.Stream.Turn {
		// The process's I/O comes between that of others, and at another time than the request's.
		if bytes := result.Moved + result.Earlier; bytes > 0 {
			paid = p.unscheduled(r.Write, bytes)
		}
		// It may keep its place for longer than its bytes take, or do no I/O at all. Others do without that place.
		if held := result.Latency / time.Duration(max(1, depth)); held > time.Duration(paid.service) {
			paid = price{tag: max(paid.tag, p.tagOf(held)), service: int64(held)}
		}
		return paid
	}
	var done time.Duration
	if result.Moved > 0 {
		file := r.File()
		goesOn := p.file == file && p.end == r.Offset
		p.goesOn = goesOn
		done = p.of(r.Write, goesOn, result.Moved)
		paid = p.price(r.Write, goesOn, result.Moved)
		p.work += done
		p.file, p.end = file, r.Offset+r.Length
		p.own.Add(r.Write, result.Moved)
	}
	if result.Earlier > 0 {
		paid = paid.plus(p.unscheduled(r.Write, result.Earlier))
	}
	p.tracker.End(now, r.Write, r.predicted, r.part, done)
	return paid
}

// unscheduled returns the price of readahead or writeback by the kernel. The price is that of a
// random request, because such I/O comes between other requests. Such I/O counts as the flows' own
// I/O, not as foreign I/O.
func (p *pricing) unscheduled(write bool, bytes int64) price {
	if p.foreign.Moved(write, bytes); !write {
		p.kernelRead += bytes
	}
	p.unscheduledWork = min(p.unscheduledWork+p.of(write, false, bytes), cost.Max)
	return p.price(write, false, bytes)
}

// bookUnscheduled charges bytes that the kernel moved for a stream outside of the schedule. Many
// bytes may come at once, for example after a sync. Config.Debt bounds how long the flow has to
// wait because of them.
func (a *Arbiter) bookUnscheduled(s *Stream, bytes int64, now time.Duration) {
	f, price := s.flow, a.pricing.unscheduled(s.Write, bytes)
	f.unscheduled += bytes
	f.book(s.Kind, s.Write, bytes, price.service)
	a.chargeUnscheduled(f, price.tag)
	a.takeLimit(f, bytes, now)
	a.payOverdue(f, bytes, price.service, now)
}

// Observe computes the foreign I/O from the kernel's counters of the device. The counters include
// all users of the device and count from any fixed moment. Observe should be called about once a
// second.
func (a *Arbiter) Observe(now time.Duration, device foreign.Counters) {
	p := &a.pricing
	var flying foreign.Counters
	for _, r := range a.running {
		flying.Add(r.Write, r.Length)
	}
	scale, known := p.tracker.Steady()
	if !known {
		scale = 0
	}
	p.foreign.Correct(scale)
	a.settlePassing(device, flying, now)
	p.others = p.foreign.Observe(now, device, p.own, flying, p.work)
	p.tracker.Others(min(p.others.Cost+p.unscheduledWork, cost.Max))
	p.work, p.unscheduledWork = 0, 0
	if a.control != nil {
		a.control.Others(p.others.Part)
	}
}

// Slow returns the verdict on whether the device has become slow, and by how much.
func (a *Arbiter) Slow() cost.Verdict { return a.pricing.verdict }
