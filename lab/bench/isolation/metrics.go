package isolation

import (
	"math"

	"penstock/lab/daemon"
	"penstock/node/device"
)

// Metrics is the part of one scrape of `penstock node` that the experiment uses. Maps are keyed by
// the daemon's device label unless stated; the network is left out.
type Metrics struct {
	Depth     map[string]float64 // requests
	Latency   map[string]float64 // seconds, mean of the last period
	Reference map[string]float64 // seconds
	Periods   map[string]Periods
	FlowBytes map[FlowLabels]float64 // bytes since the daemon started
	Weights   map[string]float64     // by flow
	Reloads   float64                // weights files loaded since the daemon started
	Requests  []daemon.Bucket        // request latencies, cumulative, ascending
}

// Periods counts control periods by whether the depth was at a bound.
type Periods struct{ Min, Max, Between float64 }

// FlowLabels names one flow's bytes in one direction at one device.
type FlowLabels struct{ Device, Flow, Direction string }

// newMetrics takes what the experiment uses from a scrape. A metric that is missing leaves its map
// empty: a fixed depth has no controller.
func newMetrics(scrape daemon.Metrics) Metrics {
	m := Metrics{
		Depth: map[string]float64{}, Latency: map[string]float64{}, Reference: map[string]float64{},
		Periods: map[string]Periods{}, FlowBytes: map[FlowLabels]float64{},
		Weights: map[string]float64{}, Reloads: scrape.Sum("weights_reloads_total", "result=taken"),
	}
	onDisk := func(labels map[string]string) bool { return labels["device"] != device.NetworkName }
	each := func(name string, set func(device string, labels map[string]string, value float64)) {
		scrape.Each(name, func(labels map[string]string, value float64) {
			if onDisk(labels) {
				set(labels["device"], labels, value)
			}
		})
	}
	for name, into := range map[string]map[string]float64{"device_depth": m.Depth, "device_latency_seconds": m.Latency,
		"device_latency_reference_seconds": m.Reference} {
		each(name, func(device string, _ map[string]string, v float64) { into[device] = v })
	}
	each("device_depth_periods_total", func(device string, labels map[string]string, n float64) {
		m.Periods[device] = m.Periods[device].plus(labels["at"], n)
	})
	each("flow_bytes_total", func(device string, labels map[string]string, n float64) {
		m.FlowBytes[FlowLabels{device, labels["flow"], labels["direction"]}] += n
	})
	each("flow_weight", func(_ string, labels map[string]string, w float64) { m.Weights[labels["flow"]] = w })
	m.Requests = scrape.Histogram("request_latency_seconds", onDisk)
	return m
}

func (p Periods) plus(at string, n float64) Periods {
	switch at {
	case "min":
		p.Min += n
	case "max":
		p.Max += n
	default:
		p.Between += n
	}
	return p
}

// requestQuantile returns the latency in seconds that a part q of the requests between two scrapes
// did not exceed: an upper bound, by the histogram's buckets. It returns NaN without requests, and
// above the last finite bucket.
func requestQuantile(before, after []daemon.Bucket, q float64) float64 {
	if len(after) == 0 {
		return math.NaN()
	}
	earlier := map[float64]float64{}
	for _, b := range before {
		earlier[b.UpTo] = b.Count
	}
	last := after[len(after)-1]
	total := last.Count - earlier[last.UpTo]
	if total <= 0 {
		return math.NaN()
	}
	for _, b := range after {
		if b.Count-earlier[b.UpTo] >= q*total && !math.IsInf(b.UpTo, 1) {
			return b.UpTo
		}
	}
	return math.NaN()
}
