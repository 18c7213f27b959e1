package identity

import "slices"

// A stream begins in the flow of its claim, some milliseconds before the verdict. Hive on Spark invents a new
// application for each query, so each query would leave an empty flow behind, and the broker would look for it in vain. So a
// claim begins in `unattributed`, until the verdict, unless an application with its time stamp was confirmed here.
// Before the first confirmation, all claims begin in their flows.

// maxStamps is the maximum number of time stamps that are remembered; the one that was confirmed longest ago is dropped
// first. Each start of a ResourceManager has its own.
const maxStamps = 64

// stampOf returns the time stamp of a YARN application, "" for other flows.
func stampOf(flow string) string {
	if !isYARNApplication(flow) {
		return ""
	}
	const begin = len("application_")
	return flow[begin : begin+stampDigits]
}

// noteStamp remembers the time stamp of a verified application.
func (c *Checker) noteStamp(v Verdict) {
	stamp := stampOf(v.Flow)
	if stamp == "" || v.State != Confirmed && v.State != Corrected {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stamps) > 0 && c.stamps[0] == stamp {
		return
	}
	c.stamps = slices.DeleteFunc(c.stamps, func(s string) bool { return s == stamp })
	c.stamps = slices.Insert(c.stamps, 0, stamp)
	c.stamps = c.stamps[:min(len(c.stamps), maxStamps)]
}

// Begin returns the flow in which a stream begins whose claim has no verdict yet.
func (c *Checker) Begin(flow string) string {
	if stamp := stampOf(flow); stamp != "" && c.Mode() == Verify {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.stamps) > 0 && !slices.Contains(c.stamps, stamp) {
			return Unattributed
		}
	}
	return c.Mode().Flow(flow, Verdict{})
}
