package doctor

import (
	"fmt"
	"time"
)

// checkLatency warns of latency goals that a device cannot keep, or has not kept in the last minute.
func checkLatency(f *Facts) []Result {
	if f.Status == nil {
		return nil
	}
	var all []Result
	goals := 0
	for _, d := range f.Status.Devices {
		for _, flow := range d.Flows {
			l := flow.Latency
			goal, p99, least := time.Duration(l.GoalNS), time.Duration(l.P99NS), time.Duration(l.LeastNS)
			if goal == 0 {
				continue
			}
			goals++
			switch late := l.Reads >= 100 && l.Attained < 0.99; {
			case least > goal:
				all = append(all, bad(Warn, fmt.Sprintf("%s: the device cannot keep the latency goal of %s (%v): a seek, the least request and the read itself take %v; measured p99: %v", d.Name, flow.Name, goal, least.Round(time.Millisecond), p99.Round(time.Millisecond)),
					"the other flows' requests are as short as possible, and the goal is still missed", fmt.Sprintf("set `latency` of the rule to at least %v, or use a faster device", least.Round(time.Millisecond)))...)
			case late:
				all = append(all, bad(Warn, fmt.Sprintf("%s: the latency goal of %s (%v) was missed by %.1f %% of its small reads of the last minute; measured p99: %v", d.Name, flow.Name, goal, 100*(1-l.Attained), p99.Round(time.Millisecond)),
					"small reads of this flow take longer than its goal", "look at the share, `slow_factor` and the foreign I/O of the device in `penstock status --json`")...)
			}
		}
	}
	if len(all) > 0 {
		return all
	}
	if goals == 0 {
		return good("no flow has a latency goal")
	}
	return good("latency goals: %d, none missed", goals)
}
