package soak

import (
	"penstock/lab/experiment/claims"
)

// gateMax is the goal for the longest operation of a client after a kill or a stop of the daemon,
// in milliseconds: gates open within a second.
const gateMax = 1000

// claimNames are the kinds' names in claims.
var claimNames = map[Kind]string{
	KillDaemon: "after a kill of the daemon", KillDataNode: "after a kill of a DataNode",
	StopDaemon: "while the daemon was stopped", StopDataNode: "while a DataNode was stopped",
	Garbage: "during garbage", HalfFrame: "during half frames", Cut: "during cut connections", KillSwitch: "during the kill switch",
	Weights: "during changes of weights", SlowDisk: "with a slow disk", Calm: "without a fault",
}

// claims returns the longest delays that faults caused, with the median as the lower end, and the
// losses.
func (r *Result) claims() []claims.Claim {
	failed := 0
	for _, l := range r.Loads {
		failed += l.Failed
	}
	all := []claims.Claim{
		claims.Of("kills of daemon and DataNodes", "kills", float64(r.Kills)),
		claims.Of("findings (lost or wrong data, failed jobs, leaks)", "findings", float64(len(r.Findings))).AtMost(0).From("nothing is lost"),
		claims.Of("failed jobs", "jobs", float64(failed)).AtMost(0).From("no job fails"),
	}
	for _, k := range r.Kinds {
		c := claims.Of("longest operation "+claimNames[k.Kind], "ms", k.Stall.Max)
		c.Low, c.Runs = k.Stall.Median, k.Count
		if k.Kind == KillDaemon || k.Kind == StopDaemon {
			c = c.AtMost(gateMax).From("gates open within a second")
		}
		all = claims.Add(all, c)
	}
	return all
}

// KnownClaims returns the claims of an invented campaign. Their names, units and goals equal those
// of a measurement.
func KnownClaims() []claims.Claim {
	var r Result
	for k := range claimNames {
		r.Kinds = append(r.Kinds, KindResult{Kind: k, Count: 1})
	}
	return r.claims()
}
