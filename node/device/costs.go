package device

import (
	"time"

	"penstock/core/cost"
)

// What requests cost. A queued request has the cost of one that goes on where
// the device is, since that is what most do; when it completes it is known what
// it was, and the flow's tags move by the difference.
//
// A request was sequential if the one that completed just before it, on the
// whole device, was of the same open file and ended where it begins. The order of
// completion, not that of dispatch: the kernel and the disk change the order of
// what is in flight, and only the completions tell to which. Places are taken by
// the file and not by the device's blocks: file systems lay out a block file of
// 128 MiB in one piece or a few, so asking for its extents (FIEMAP), a call for
// each quantum, would mend one seek in some dozens of quanta. A stream that goes
// on in a file that another stream has left counts as a new place.

// costs are a device's model, what corrects it, and where the device's head is.
type costs struct {
	model   cost.Model
	guessed bool // it is no profile's: tags know no seeks
	tracker *cost.Tracker
	epoch   time.Time
	verdict cost.Verdict

	file File // of the last request that completed
	end  int64

	own      Counters      // what the loop has the device do
	work     time.Duration // its cost, since the last look
	others   others
	counters func() (Counters, bool)
	looked   time.Time
}

// profiled tells whether the costs were measured.
func (c *Config) profiled() bool { return c.Cost != (cost.Model{}) }

// model is the profile's or, without one, made of the reference latencies: how
// they grow with a request's size is how its cost does; a new place costs Seek on top.
func (c *Config) model() cost.Model {
	if c.profiled() {
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

func newCosts(o Options) costs {
	return costs{
		model: o.Config.model(), guessed: !o.Config.profiled(), tracker: cost.NewTracker(cost.TrackerConfig{Learn: !o.Config.profiled()}),
		epoch: time.Now(), verdict: cost.Verdict{Factor: 1}, counters: o.Counters,
	}
}

// price is what is paid for a cost: once to the scheduler, once to the account.
type price struct {
	tag     int64 // in the scheduler's units: nanoseconds of the model
	service int64 // ns of the device's time as it is now
}

// price leaves out of the tags what reads and writes have in common: it would
// make no difference to shares but, each time it is corrected, a disturbance. Of a
// seek that is only guessed the account tells; shares wait for a profile.
func (c *costs) price(write, goesOn bool, bytes int64) price {
	return price{
		tag:     max(1, int64(cost.Scaled(c.model.Of(write, goesOn || c.guessed, bytes), c.tracker.Tilt(write)))),
		service: int64(cost.Scaled(c.model.Of(write, goesOn, bytes), c.tracker.Scale(write))),
	}
}

// guess is what a request is taken for before it is done.
func (c *costs) guess(r *request) time.Duration {
	return c.model.Of(r.write, true, r.length)
}

// started notes a request that goes to the device.
func (c *costs) started(r *request, now time.Time) {
	c.tracker.Start(now.Sub(c.epoch), c.guess(r), c.model.Part(r.write, r.length))
}

// finished gives the price of a request that is done, nothing if there was
// nothing to do for it.
func (c *costs) finished(r result, now time.Time) price {
	req := r.request
	var done time.Duration
	var paid price
	switch {
	case r.io && r.bytes > 0:
		goesOn := c.file == req.file && c.end == req.offset
		done = c.model.Of(req.write, goesOn, r.bytes)
		paid = c.price(req.write, goesOn, r.bytes)
		c.work += done
		c.file, c.end = req.file, req.offset+req.length
		c.own.add(req.write, r.bytes)
	case r.bytes > 0:
		paid = c.unscheduled(req.write, r.bytes)
	}
	c.tracker.End(now.Sub(c.epoch), req.write, c.guess(req), c.model.Part(req.write, req.length), done)
	return paid
}

// unscheduled is the price of what the kernel read ahead or wrote out by itself:
// it did so between the requests of others, so it went to a new place.
func (c *costs) unscheduled(write bool, bytes int64) price {
	return c.price(write, false, bytes)
}

// behind books bytes that the kernel moved for a stream outside of the schedule. They may be
// many at once, as after somebody's sync: of the share no more than limitDebt's cost is asked back.
func (l *Loop) behind(s *Stream, bytes int64, now time.Time) {
	f, price := s.flow, l.costs.unscheduled(s.Write, bytes)
	f.behind += bytes
	f.book(s.Kind, s.Write, bytes, price.service)
	l.charge(f, min(price.tag, int64(limitDebt)))
	l.chargeLimit(f, now, bytes)
}

// charge tells the scheduler of service that the device gives a flow outside the
// queue. The flow's account is kept where the bytes are.
func (l *Loop) charge(f *flow, cost int64) {
	if err := l.sched.Charge(f.id, cost); err != nil {
		l.fault("charge", err)
	}
}

// flying is what the device does for the loop at the moment.
func (l *Loop) flying() (c Counters) {
	for r := range l.running {
		c.add(r.write, r.length)
	}
	return c
}

// watch keeps an eye on the device's speed; it runs at every tick.
func (l *Loop) watch(now time.Time) {
	c := &l.costs
	if c.counters != nil && now.Sub(c.looked) >= time.Second {
		c.looked = now
		if counters, ok := c.counters(); ok {
			sum, part := c.others.cost(c.model, counters, c.own, l.flying(), c.work)
			c.work = 0
			c.tracker.Others(sum)
			if l.control != nil {
				l.control.Others(part)
			}
		}
	}
	before := c.verdict
	c.verdict = c.tracker.Look(now.Sub(c.epoch))
	switch {
	case c.verdict.Slow && !before.Slow:
		l.log.Warn("the device has become slow: its requests take many times what they should. Shares hold, but there is less to share; look at the disk's health (smartctl, kernel log)",
			"times", int(c.verdict.Factor+0.5), "profiled", l.cfg.profiled())
	case before.Slow && !c.verdict.Slow:
		l.log.Info("the device is as fast as before again")
	}
}
