package network

import (
	"fmt"
	"slices"

	"penstock/lab/experiment/claims"
	"penstock/ops/network"
)

// Goals of the remedy, which joins the sockets of containers.
const (
	mostTrip      = 0.6  // round trip / bridge-nat
	mostLoopback  = 1.15 // round trip / host
	leastStream   = 2.   // throughput / bridge-nat
	mostCPU       = 0.7  // CPU time per byte / bridge-nat
	goalPairs     = 16   // at which the mean has a goal
	sourceCure    = "a remedy in the path of the bridge, transparent to containers (the paper's future work)"
	sourceFigure3 = "Figure 3: containers without NAT cost as much as native Linux, NAT costs noticeably more"
	sourceFigure4 = "Figure 4: Docker's layer adds about 5 us"
	sourceFigure5 = "Figure 5: round trips grow in proportion to the number of containers"
)

// each returns a value for each run that has the turns of a part with all the set-ups. of may refuse.
func (r Result) each(part network.Part, of func(turns []Turn) (float64, bool), setUps ...string) (values []float64) {
	for run := 1; ; run++ {
		var turns []Turn
		later := false
		for _, name := range setUps {
			i := slices.IndexFunc(r.Turns, func(t Turn) bool { return t.Part == part && t.SetUp == name && t.Run == run })
			if i >= 0 {
				turns = append(turns, r.Turns[i])
			}
		}
		for _, t := range r.Turns {
			later = later || t.Run > run
		}
		if len(turns) == len(setUps) {
			if v, ok := of(turns); ok {
				values = append(values, v)
			}
		}
		if !later {
			return values
		}
	}
}

// figure returns a figure of a turn; 0 if the turn does not have it.
type figure func(Turn) float64

// value returns the figure of the first turn.
func value(f figure) func([]Turn) (float64, bool) {
	return func(t []Turn) (float64, bool) { v := f(t[0]); return v, v > 0 }
}

// quotient returns the figure of the first turn divided by that of the second.
func quotient(f figure) func([]Turn) (float64, bool) {
	return func(t []Turn) (float64, bool) {
		v, base := f(t[0]), f(t[1])
		if !(v > 0 && base > 0) {
			return 0, false
		}
		return v / base, true
	}
}

// difference returns the figure of the first turn less that of the second.
func difference(f figure) func([]Turn) (float64, bool) {
	return func(t []Turn) (float64, bool) { v, base := f(t[0]), f(t[1]); return v - base, v > 0 && base > 0 }
}

func ofStream(way string, f func(network.Stream) float64) figure {
	return func(t Turn) float64 {
		for _, s := range t.Streams {
			if s.Way == way {
				return f(s)
			}
		}
		return 0
	}
}

func rate(s network.Stream) float64       { return s.MBPerSecond }
func machineCPU(s network.Stream) float64 { return s.MachineCPU }
func threadsCPU(s network.Stream) float64 { return s.ThreadsCPU }

// ofTrip returns a figure of the round trips of a number of pairs, on one CPU if the part is about that.
func ofTrip(protocol string, pairs int, f func(network.Trip) float64) figure {
	return func(t Turn) float64 {
		for _, x := range t.Trips {
			if x.Protocol == protocol && x.Pairs == pairs && x.OneCPU == (t.Part == network.PartPairs || t.Part == network.PartBusy) {
				return f(x)
			}
		}
		return 0
	}
}

func mean(t network.Trip) float64 { return t.MeanUS }
func p50(t network.Trip) float64  { return t.P50US }
func p99(t network.Trip) float64  { return t.P99US }

func ways() []string { return []string{network.Transmit, network.Receive, network.Both} }

func (r Result) claims() (all []claims.Claim) {
	add := func(c claims.Claim) { all = claims.Add(all, c) }
	for _, way := range ways() {
		for _, s := range setUpNames() {
			add(claims.Of(fmt.Sprintf("%s, %s: throughput", way, s), "MB/s", r.each(network.PartStreams, value(ofStream(way, rate)), s)...).From(sourceFigure3))
		}
		for _, s := range setUpNames() {
			if s != network.Host {
				add(claims.Of(fmt.Sprintf("%s, %s: CPU time per byte / host", way, s), "ratio", r.each(network.PartStreams, quotient(ofStream(way, machineCPU)), s, network.Host)...).From(sourceFigure3))
			}
		}
	}
	for _, protocol := range []string{network.TCP, network.UDP} {
		for _, s := range setUpNames() {
			add(claims.Of(fmt.Sprintf("%s, %s: median round trip", protocol, s), "us", r.each(network.PartTrips, value(ofTrip(protocol, 1, p50)), s)...).From(sourceFigure4))
			add(claims.Of(fmt.Sprintf("%s, %s: median round trip, CPUs kept awake", protocol, s), "us", r.each(network.PartAwake, value(ofTrip(protocol, 1, p50)), s)...).From(sourceFigure4))
		}
		for _, s := range []struct{ to, from, what string }{
			{network.Bridge, network.Host, "what the bridge adds"}, {network.BridgeFilter, network.Bridge, "what Docker's rules add"},
			{network.BridgeNAT, network.BridgeFilter, "what the translation of addresses adds"}, {network.BridgeNAT, network.Bridge, "what rules and translation add"},
		} {
			// On all CPUs, a TCP round trip depends more on whether both ends share a CPU than on the network.
			part, what, of := network.PartPairs, "mean round trip of one pair on one CPU", mean
			if protocol == network.UDP {
				part, what, of = network.PartAwake, "median round trip, CPUs kept awake", p50
			}
			add(claims.Of(fmt.Sprintf("%s: %s to the %s", protocol, s.what, what), "us", r.each(part, difference(ofTrip(protocol, 1, of)), s.to, s.from)...).From(sourceFigure4))
		}
	}
	for _, part := range []network.Part{network.PartPairs, network.PartBusy} {
		for _, s := range setUpNames() {
			for _, n := range r.Setup.Pairs {
				add(claims.Of(fmt.Sprintf("%s, %s: mean round trip of %d on one CPU", part, s, n), "us", r.each(part, value(ofTrip(network.TCP, n, mean)), s)...).From(sourceFigure5))
			}
		}
	}
	for _, s := range setUpNames() {
		add(claims.Of(fmt.Sprintf("pairs, %s: part of the growth that is delay in the run queue", s), "ratio", r.each(network.PartPairs, func(t []Turn) (float64, bool) {
			g, ok := network.Grows(t[0].Trips)
			return g.Queued, ok
		}, s)...).From(sourceFigure5))
	}
	return append(all, r.goals()...)
}

// goals returns the claims about the remedy. There are none without the set-up Joined.
func (r Result) goals() (all []claims.Claim) {
	add := func(c claims.Claim) { all = claims.Add(all, c) }
	compare := func(part network.Part, what string, f figure, base string) claims.Claim {
		return claims.Of(fmt.Sprintf("%s: %s / %s", network.Joined, what, base), "ratio", r.each(part, quotient(f), network.Joined, base)...)
	}
	for _, x := range []struct {
		name string
		of   func(network.Trip) float64
	}{{"p50", p50}, {"p99", p99}} {
		f := ofTrip(network.TCP, 1, x.of)
		for _, part := range []struct {
			part network.Part
			what string
		}{{network.PartTrips, ""}, {network.PartAwake, ", CPUs kept awake"}, {network.PartPairs, ", both ends on one CPU"}} {
			what := x.name + " of round trips" + part.what
			add(compare(part.part, what, f, network.BridgeNAT).AtMost(mostTrip).From(sourceCure))
			add(compare(part.part, what, f, network.Host).AtMost(mostLoopback).From(sourceCure))
		}
	}
	for _, way := range ways() {
		add(compare(network.PartStreams, "throughput, "+way, ofStream(way, rate), network.BridgeNAT).AtLeast(leastStream).From(sourceCure))
		add(compare(network.PartStreams, "CPU time per byte, "+way, ofStream(way, machineCPU), network.BridgeNAT).AtMost(mostCPU).From(sourceCure))
		add(compare(network.PartStreams, "CPU time of the threads per byte, "+way, ofStream(way, threadsCPU), network.BridgeNAT).From(sourceCure))
	}
	add(compare(network.PartPairs, fmt.Sprintf("mean round trip of %d pairs on one CPU", goalPairs), ofTrip(network.TCP, goalPairs, mean), network.BridgeNAT).AtMost(mostTrip).From(sourceCure))
	return all
}

// invented returns a result in which each part of each of the set-ups was measured once, and every figure is 1, except
// that round trips grow with the number of pairs.
func invented(setup Setup, setUps ...string) Result {
	var turns []Turn
	for _, part := range network.Parts() {
		for _, s := range setUps {
			if !has(part, s) {
				continue
			}
			t := Turn{Row: string(part) + "-" + s, Run: 1, Part: part, SetUp: s}
			switch part {
			case network.PartStreams:
				for _, way := range ways() {
					t.Streams = append(t.Streams, network.Stream{Way: way, MBPerSecond: 1, MachineCPU: 1, ThreadsCPU: 1})
				}
			case network.PartTrips, network.PartAwake:
				for _, protocol := range []string{network.TCP, network.UDP} {
					t.Trips = append(t.Trips, network.Trip{Protocol: protocol, Pairs: 1, MeanUS: 1, P50US: 1, P99US: 1})
				}
			default:
				for _, n := range setup.Pairs {
					us := float64(n)
					t.Trips = append(t.Trips, network.Trip{Protocol: network.TCP, Pairs: n, OneCPU: true, Busy: part == network.PartBusy, MeanUS: us, P50US: us, P99US: us, RunDelayUS: us / 2})
				}
			}
			turns = append(turns, t)
		}
	}
	return newResult(setup, turns)
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims of
// every measurement with the numbers of pairs of DefaultSetup.
func KnownClaims() []claims.Claim {
	return invented(DefaultSetup(), setUpNames()...).claims()
}
