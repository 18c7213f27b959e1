// Package depth controls the depth D of SFQ(D) and so turns it into SFQ(D2) (IBIS, section 4). At
// the end of every period, usually one second,
//
//	D' = D + K (Lref - L) / Lref
//
// where L is the mean latency of the period and Lref the reference latency of the device shortly
// before saturation. Above Lref, requests wait inside the device, out of the scheduler's reach, so
// D decreases. Below Lref, the device could serve more requests in parallel, so D increases.
//
// In the paper, K multiplies a difference of times and has no stated unit. Here the error is
// relative to Lref, so K is a number of requests. If latency grows in proportion to the depth and
// reaches Lref at depth D*, each period multiplies the error by 1 - K/D*. There is no overshoot for
// K up to D*, and the loop is unstable from 2 D*. K = 1 suits the slowest devices (D* = 1) and on
// other devices, D settles within a few times D* periods.
//
// L and Lref are means over the requests completed in the period. Each request contributes the
// reference latency of its own direction and size. That equals the paper's weighting of reads and
// writes by their share, and covers mixed sizes as well.
//
// There are four departures from the paper.
//
// Foreign I/O. The paper's scheduler sees all I/O of its device. Here, foreign I/O takes device
// time that no depth can recover, and governed requests wait behind it inside the device. If
// foreign I/O keeps the device busy for a part p of the time, the governed requests alone would
// have a latency of (1 - p) L. For a device that serves requests in turn this is exact. So D depends
// on (1 - p) L instead of L (Others). Otherwise a program could flood the device from outside, push
// the governed flows to the minimum depth and get the rest.
//
// Unsaturated periods. If the depth never held a request back in a period, low latency shows low
// load, not spare capacity. Then D does not increase. Otherwise it would reach its maximum in quiet
// times and be too large for the next burst.
//
// Idle periods. A period without completed requests carries no information. D stays, and the period
// is not reported.
//
// Clipped decreases. The paper's step is at most K upwards and unbounded downwards. A single cache
// flush of 2 s inside the device would take D from 12 to 1. Recovery would take 11 periods of lost
// throughput, although no depth could have shortened the flush. Here, a period is late if its step
// is below -K. The first late period lowers D by at most K, the next one in a row by at most 2 K,
// then 4 K. A flush costs one request of depth, while lasting high latency takes D from 12 to 1 in
// four periods. The step is clipped and not the statistic: if the flush ends with the period, it
// has delayed all completed requests, and a median or trimmed mean is as high as the mean.
// Moreover, Lref is the mean of a skewed distribution, so a statistic without the slow requests
// would settle above D*. A clipped step keeps the equilibrium, because no step near it is late.
//
// D is a real number, so that small errors add up. It is rounded down when it is applied. There is
// no hysteresis: if the right depth lies between two integers, D alternates between them, and the
// mean latency is Lref.
package depth

import "time"

// OthersMax bounds the part of the device that foreign I/O is assumed to use. The part is an
// estimate; above OthersMax, its error could exceed the remaining part of L.
const OthersMax = 0.9

// Controller controls the depth of one device. It is not safe for concurrent use.
type Controller struct {
	cfg       Config
	depth     float64
	latency   float64 // sum over the period, in ns
	reference float64
	completed int
	limited   bool
	others    float64
	fall      float64 // bound of the next late period's decrease
	report    Report
}

// New returns a controller whose depth is Config.Start. An error names the setting to change.
func New(cfg Config) (*Controller, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Controller{cfg: cfg, depth: cfg.Start, fall: cfg.Gain}, nil
}

// Depth returns the depth in force. It is D rounded down, with a tolerance of a millionth, so that
// three increases by a third make one request.
func (c *Controller) Depth() int { return int(c.depth + 1e-6) }

// Observe records a completed request: its direction, its size in bytes, and the time from its
// dispatch to its completion. A negative size or latency counts as 0; only a broken clock can cause
// a negative latency.
func (c *Controller) Observe(write bool, bytes int64, latency time.Duration) {
	line := c.cfg.Read
	if write {
		line = c.cfg.Write
	}
	c.latency += float64(max(latency, 0))
	c.reference += line.at(max(bytes, 0))
	c.completed++
}

// Limited records that in this period a request waited only because of the depth.
func (c *Controller) Limited() { c.limited = true }

// Others sets the part of the device's busy time, 0 to 1, that foreign requests take. It applies
// until the next call. NaN counts as 0.
func (c *Controller) Others(part float64) {
	if !(part > 0) {
		part = 0
	}
	c.others = min(part, OthersMax)
}

// Update ends the period and returns the depth of the next one.
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
	// Min and Max are whole numbers, so Depth returns exactly these at the bounds.
	if c.Depth() == int(c.cfg.Min) {
		r.AtMin++
	}
	if c.Depth() == int(c.cfg.Max) {
		r.AtMax++
	}
	r.Latency = time.Duration(c.latency / float64(c.completed))
	r.Reference = time.Duration(c.reference / float64(c.completed))
	r.Others = c.others
	// Sums replace the means here, because only their ratio matters. The conversions prevent fused
	// multiply-add, so that all machines compute the same result.
	own := float64(c.latency * (1 - c.others))
	step := float64(c.cfg.Gain * ((c.reference - own) / c.reference))
	if step > 0 && !c.limited {
		r.Held++
		step = 0
	}
	c.depth = min(max(c.depth+c.clip(step), c.cfg.Min), c.cfg.Max)
}

// clip limits a decrease. The limit depends on the number of late periods in a row.
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
