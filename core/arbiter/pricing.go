package arbiter

import (
	"time"

	"penstock/core/cost"
	"penstock/core/foreign"
	"penstock/core/sfq"
)

// pricing says what requests cost. What is ready has the cost of a request that goes on where
// the device is, since that is what most do; when it completes it is known what it was, and
// the flow's tags move by the difference.
//
// A request was sequential if the one that completed just before it, on the
// whole device, was of the same open file and ended where it begins. The order of
// completion, not that of dispatch: the kernel and the disk change the order of
// what is in flight, and only the completions tell to which. Places are taken by
// the file and not by the device's blocks: file systems lay out a block file of
// 128 MiB in one piece or a few, so asking for its extents (FIEMAP), a call for
// each quantum, would mend one seek in some dozens of quanta. A stream that goes
// on in a file that another stream has left counts as a new place.
type pricing struct {
	model   cost.Model
	lines   [2][2]cost.Line // of it: by direction, and whether the request goes on where the device is
	guessed bool            // it is no profile's: tags know no seeks
	tracker *cost.Tracker
	verdict cost.Verdict

	file File // of the last request that completed
	end  int64

	own     foreign.Counters // what the device has done for the flows
	work    time.Duration    // its cost, since the last look
	foreign *foreign.Estimate
	others  foreign.Result
}

// Profiled reports whether the costs were measured.
func (c Config) Profiled() bool { return c.Cost != (cost.Model{}) }

// Model is the profile's or, without one, made of the reference latencies: how
// they grow with a request's size is how its cost does; a new place costs Seek on top.
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

// of is the model's cost of a request.
func (p *pricing) of(write, goesOn bool, bytes int64) time.Duration {
	lines := &p.lines[direction(write)]
	if goesOn {
		return lines[1].Of(bytes)
	}
	return lines[0].Of(bytes)
}

// price is what is paid for a cost: once to the scheduler, once to the account.
type price struct {
	tag     int64 // in the scheduler's units: nanoseconds of the model
	service int64 // ns of the device's time as it is now
}

func (p price) plus(q price) price { return price{p.tag + q.tag, p.service + q.service} }

// price leaves out of the tags what reads and writes have in common: it would
// make no difference to shares but, each time it is corrected, a disturbance. Of a
// seek that is only guessed the account tells; shares wait for a profile.
func (p *pricing) price(write, goesOn bool, bytes int64) price {
	return price{
		tag:     max(1, int64(cost.Scaled(p.of(write, goesOn || p.guessed, bytes), p.tracker.Tilt(write)))),
		service: int64(cost.Scaled(p.of(write, goesOn, bytes), p.tracker.Scale(write))),
	}
}

// charge is what a request costs the scheduler before it is done.
func (p *pricing) charge(write bool, bytes int64) int64 {
	return min(sfq.MaxCost, max(1, int64(cost.Scaled(p.of(write, true, bytes), p.tracker.Tilt(write)))))
}

// served is the device's time for a request as it is now.
func (p *pricing) served(write, goesOn bool, bytes int64) time.Duration {
	return cost.Scaled(p.of(write, goesOn, bytes), p.tracker.Scale(write))
}

// tagOf is what a time of the device is in the scheduler's units.
func (p *pricing) tagOf(d time.Duration) int64 {
	return max(1, int64(min(float64(sfq.MaxCost), float64(d)/p.tracker.Scale(false)*p.tracker.Tilt(false))))
}

// started notes a request that goes to the device.
func (p *pricing) started(r *Request, now time.Duration) {
	r.predicted, r.part = p.of(r.Write, true, r.Length), p.model.Part(r.Write, r.Length)
	p.tracker.Start(now, r.predicted, r.part)
}

// finished gives the price of a request that is done, nothing if there was
// nothing to do for it.
func (p *pricing) finished(r *Request, result Result, now time.Duration) price {
	var done time.Duration
	var paid price
	if result.Moved > 0 {
		file := r.File()
		goesOn := p.file == file && p.end == r.Offset
		done = p.of(r.Write, goesOn, result.Moved)
		paid = p.price(r.Write, goesOn, result.Moved)
		p.work += done
		p.file, p.end = file, r.Offset+r.Length
		p.moved(r.Write, result.Moved)
	}
	if result.Earlier > 0 {
		paid = paid.plus(p.unscheduled(r.Write, result.Earlier))
	}
	p.tracker.End(now, r.Write, r.predicted, r.part, done)
	return paid
}

// unscheduled is the price of what the kernel read ahead or wrote out by itself:
// it did so between the requests of others, so it went to a new place. It was the flows' own
// all the same, and nothing foreign.
func (p *pricing) unscheduled(write bool, bytes int64) price {
	p.moved(write, bytes)
	p.work += p.of(write, false, bytes)
	return p.price(write, false, bytes)
}

func (p *pricing) moved(write bool, bytes int64) {
	p.own.Requests[direction(write)]++
	p.own.Bytes[direction(write)] += bytes
}

// bookBehind books bytes that the kernel moved for a stream outside of the schedule. They may
// be many at once, as after a sync: what of it is asked back is bounded (maxDebt).
func (a *Arbiter) bookBehind(s *Stream, bytes int64, now time.Duration) {
	f, price := s.flow, a.pricing.unscheduled(s.Write, bytes)
	f.behind += bytes
	f.book(s.Kind, s.Write, bytes, price.service)
	a.chargeBeside(f, price.tag)
	a.takeLimit(f, bytes, now)
}

// Observe takes what the kernel has counted for the device, for everybody, since any moment
// in the past; to be called about once a second. What it did for others is told from it.
func (a *Arbiter) Observe(now time.Duration, device foreign.Counters) {
	p := &a.pricing
	var flying foreign.Counters
	for _, r := range a.running {
		flying.Requests[direction(r.Write)]++
		flying.Bytes[direction(r.Write)] += r.Length
	}
	p.others = p.foreign.Observe(now, device, p.own, flying, p.work)
	p.work = 0
	p.tracker.Others(p.others.Cost)
	if a.control != nil {
		a.control.Others(p.others.Part)
	}
}

// Slow returns what the arbiter thinks of the device's speed.
func (a *Arbiter) Slow() cost.Verdict { return a.pricing.verdict }
