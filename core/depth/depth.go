// Package depth moves the depth of SFQ(D), which makes it SFQ(D2) (IBIS,
// section 4): at the end of every period of, say, a second
//
//	D' = D + K (Lref - L) / Lref
//
// where L is the latency observed in the period and Lref what the device needs
// shortly before it saturates. Above Lref requests wait inside the device, out of
// the scheduler's reach, so D sinks; below it the device could overlap more.
//
// The paper's K multiplies a difference of times and has no unit; here the error
// is relative to Lref, so K is a plain number of requests. With a latency that
// grows with the depth and meets Lref at a depth D*, each period multiplies the
// error by 1 - K/D*: no overshoot for K up to D*, unstable from 2 D*. K = 1 is
// right for the slowest devices (D* = 1) and settles within some D* periods on
// others.
//
// L and Lref are means over the requests completed in the period, each request
// with the reference of its own direction and size. That is the paper's weighting
// of reads and writes by their share, and holds for mixed sizes too.
//
// I/O of others on the device takes time that no depth can give back, and its
// requests wait among the governed ones. Where it keeps the device busy for a part
// p of the time, so much of every latency is its doing, and (1 - p) L is what the
// governed requests need by themselves: for requests that the device serves in
// turn this is exact. Only that moves D (Others), or whoever floods the device
// from outside would push the governed flows down to the minimum and have the rest.
//
// Four departures. That one: the paper's scheduler sees all I/O of its device.
// A period in which the depth never held a request back cannot
// raise D: low latency then shows low load, not spare capacity, and D would wind
// up to its maximum in quiet times and meet the next burst there. A period in
// which nothing completed tells nothing: D stays, and it is not reported.
//
// And a fall is clipped. The paper's step is K at most upwards and has no bound
// downwards: one cache flush of 2 s in the device takes D from 12 to 1, and the
// way back takes 11 periods of lost throughput, though no depth would have made
// the flush shorter. So a late period, one whose step is below -K, lowers D by K,
// as much as the best period raises it; the late period after it by 2 K, then 4 K.
// A flush costs one request of depth; latency that stays high brings D from 12 to
// 1 in four periods. What is clipped is the step and not the statistic. If the
// flush ends with the period, all that completed was hit by it, and a median or a
// trimmed mean is as late as the mean. And a profile's Lref is a mean: latencies
// are skewed, so statistics that leave out the slow ones settle above D*. The mean
// leaves the equilibrium where it is, as no step near it is late.
//
// D is kept as a real number, or small errors would never add up; what is given
// out is D rounded down, so that no more are in flight than it allows. There is
// no hysteresis: where the right depth lies between two integers, moving between
// them in proportion is what meets Lref on average.
package depth

import "time"

// OthersMax bounds the part of the device that others may count for: it is an
// estimate, and what is left of L must not be its error.
const OthersMax = 0.9

// Controller is SFQ(D2)'s. It belongs to one caller at a time.
type Controller struct {
	cfg       Config
	depth     float64
	latency   float64 // sums over the period, in ns
	reference float64
	completed int
	limited   bool
	others    float64
	fall      float64 // what a late period may lower D by
	report    Report
}

// New returns a controller whose depth is Start. An error says which setting to
// change.
func New(cfg Config) (*Controller, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Controller{cfg: cfg, depth: cfg.Start, fall: cfg.Gain}, nil
}

// Depth returns the depth in force: D rounded down, but for a millionth, so that
// three rises by a third make one.
func (c *Controller) Depth() int { return int(c.depth + 1e-6) }

// Observe books a request that completed in this period: its direction, size,
// and the time from its dispatch to its completion. Negative values, which only
// a broken clock can give, count as 0.
func (c *Controller) Observe(write bool, bytes int64, latency time.Duration) {
	line := c.cfg.Read
	if write {
		line = c.cfg.Write
	}
	c.latency += float64(max(latency, 0))
	c.reference += line.at(max(bytes, 0))
	c.completed++
}

// Limited notes that in this period a request waited for no other reason than
// that as many as the depth allows were outstanding.
func (c *Controller) Limited() { c.limited = true }

// Others says which part of its busy time, 0 to 1, the device spends on requests
// that are not the caller's. It holds until the next call; NaN counts as 0.
func (c *Controller) Others(part float64) {
	if !(part > 0) {
		part = 0
	}
	c.others = min(part, OthersMax)
}

// Update ends the period and returns the depth for the next one.
func (c *Controller) Update() (depth int) {
	if c.completed > 0 && c.reference > 0 {
		c.move()
	}
	c.latency, c.reference, c.completed, c.limited = 0, 0, 0, false
	return c.Depth()
}

func (c *Controller) move() {
	r := &c.report
	r.Periods++
	// Min and Max are whole, so these are the depths that the device saw.
	if c.Depth() == int(c.cfg.Min) {
		r.AtMin++
	}
	if c.Depth() == int(c.cfg.Max) {
		r.AtMax++
	}
	r.Latency = time.Duration(c.latency / float64(c.completed))
	r.Reference = time.Duration(c.reference / float64(c.completed))
	r.Others = c.others
	// The quotient of the means is that of the sums. The conversions keep the
	// products from being fused with the additions on machines that would.
	own := float64(c.latency * (1 - c.others))
	step := float64(c.cfg.Gain * ((c.reference - own) / c.reference))
	if step > 0 && !c.limited {
		r.Held++
		step = 0
	}
	c.depth = min(max(c.depth+c.clip(step), c.cfg.Min), c.cfg.Max)
}

// clip returns a step that falls no further than the late periods in a row allow.
func (c *Controller) clip(step float64) float64 {
	if step >= -c.cfg.Gain {
		c.fall = c.cfg.Gain
		return step
	}
	most := c.fall
	c.fall = max(c.cfg.Gain, min(2*most, c.cfg.Max))
	if step < -most && c.depth-most > c.cfg.Min {
		c.report.Clipped++
	}
	return max(step, -most)
}

// Report returns the counts since New.
func (c *Controller) Report() Report {
	r := c.report
	r.Depth = c.depth
	return r
}
