package isolation

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

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
	Requests  []Bucket               // request latencies, cumulative, ascending
}

// Periods counts control periods by whether the depth was at a bound.
type Periods struct{ Min, Max, Between float64 }

// FlowLabels names one flow's bytes in one direction at one device.
type FlowLabels struct{ Device, Flow, Direction string }

// Bucket counts the requests that took at most UpTo seconds.
type Bucket struct {
	UpTo  float64
	Count float64
}

// ParseMetrics reads the daemon's metrics in Prometheus' text format. A metric that is missing
// leaves its map empty: a fixed depth has no controller.
func ParseMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{
		Depth: map[string]float64{}, Latency: map[string]float64{}, Reference: map[string]float64{},
		Periods: map[string]Periods{}, FlowBytes: map[FlowLabels]float64{},
		Weights: map[string]float64{},
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return Metrics{}, fmt.Errorf("read the daemon's metrics: %w", err)
	}
	requests := map[float64]float64{} // over all labels
	for name, family := range families {
		for _, sample := range family.Metric {
			m.add(name, sample, requests)
		}
	}
	for _, upTo := range slices.Sorted(maps.Keys(requests)) {
		m.Requests = append(m.Requests, Bucket{upTo, requests[upTo]})
	}
	return m, nil
}

func (m *Metrics) add(name string, sample *dto.Metric, requests map[float64]float64) {
	labels := map[string]string{}
	for _, l := range sample.Label {
		labels[l.GetName()] = l.GetValue()
	}
	from := labels["device"]
	if from == device.NetworkName {
		return
	}
	v := sample.GetGauge().GetValue() + sample.GetCounter().GetValue() // one of them is not there
	switch name {
	case "penstock_device_depth":
		m.Depth[from] = v
	case "penstock_device_latency_seconds":
		m.Latency[from] = v
	case "penstock_device_latency_reference_seconds":
		m.Reference[from] = v
	case "penstock_device_depth_periods_total":
		m.Periods[from] = m.Periods[from].plus(labels["at"], v)
	case "penstock_flow_bytes_total":
		m.FlowBytes[FlowLabels{from, labels["flow"], labels["direction"]}] += v
	case "penstock_flow_weight":
		m.Weights[labels["flow"]] = v
	case "penstock_weights_reloads_total":
		if labels["result"] == "taken" {
			m.Reloads += v
		}
	case "penstock_request_latency_seconds":
		for _, b := range sample.GetHistogram().GetBucket() {
			requests[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
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

// requestQuantile is the latency in seconds, an upper bound by the histogram's
// buckets, that a part q of the requests between two scrapes did not exceed;
// NaN when there were none, or when it lies above the last finite bucket.
func requestQuantile(before, after []Bucket, q float64) float64 {
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
