package sim

import (
	"penstock/lab/experiment/claims"
)

// mostSlowdown is the goal of IBIS, section 7.3, for the mean slowdown of a trace's jobs.
const mostSlowdown = 1.2

// Claims returns the published figures of a run: the misallocated fraction of the disk time over
// the judged windows, or the mean slowdowns of jobs. The goal for the misallocated fraction is the
// scenario's expectation.
func (s *Scenario) Claims(r *Result) []claims.Claim {
	all := []claims.Claim{}
	if r.Judged > 0 && len(s.Expect.Applications) == 0 { // guarantees change what is due
		c := claims.Of(s.Title+": disk time misallocated", "%", 100*r.Misplaced).From("in the median window; the interval is over windows")
		for _, w := range r.Windows {
			if w.Judged {
				c.Low, c.High = min(c.Low, 100*w.Misplaced), max(c.High, 100*w.Misplaced)
			}
		}
		if e := s.Expect; e.Misplaced > 0 && !e.AtLeast {
			c = c.AtMost(100 * e.Misplaced)
		}
		all = append(all, c)
	}
	for _, way := range s.MapReduce.Play {
		mean := r.Average(way)
		if way == wayAlone || mean == 0 {
			continue
		}
		c := claims.Of(s.Title+": mean slowdown, "+way, "ratio", mean).From("IBIS, section 7.6")
		if len(s.Traces) > 0 {
			c = c.From("IBIS, section 7.3")
		}
		if len(s.Traces) > 0 && way == wayCoordinated {
			c = c.AtMost(mostSlowdown)
		}
		all = append(all, c)
	}
	return all
}

// KnownClaims returns the claims of an invented run of the scenario. Their names, units and goals
// are the same as in a measurement; their values are not meaningful.
func (s *Scenario) KnownClaims() []claims.Claim {
	r := &Result{}
	if len(s.Jobs)+len(s.Traces) == 0 {
		r.Judged = 1
	}
	for _, way := range s.MapReduce.Play {
		r.Summaries = append(r.Summaries, Summary{Way: way, Of: average, SlowdownMean: 1})
	}
	return s.Claims(r)
}
