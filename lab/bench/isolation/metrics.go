package isolation

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"penstock/node/device"
)

// Metrics is what the experiment reads of one scrape of `penstock node`.
// Maps are keyed by the daemon's device label unless stated; the network is left out.
type Metrics struct {
	Depth     map[string]float64 // requests
	Latency   map[string]float64 // seconds, mean of the last period
	Reference map[string]float64 // seconds
	Periods   map[string]Periods
	FlowBytes map[FlowLabels]float64 // bytes since the daemon started
	Weights   map[string]float64     // by flow; the daemon has one weight a flow
	Reloads   float64                // weights files taken since the daemon started
	Requests  []Bucket               // request latencies, cumulative, ascending
}

// Periods counts control periods by where the depth was.
type Periods struct{ Min, Max, Between float64 }

// FlowLabels names one flow's bytes in one direction at one device.
type FlowLabels struct{ Device, Flow, Direction string }

// Bucket counts the requests that took at most UpTo seconds.
type Bucket struct {
	UpTo  float64
	Count float64
}

// ParseMetrics reads the part of the Prometheus text format that the daemon
// writes: one sample a line, name{labels} value. Metrics that are not there
// leave their map empty: a fixed depth has no controller to report.
func ParseMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{
		Depth: map[string]float64{}, Latency: map[string]float64{}, Reference: map[string]float64{},
		Periods: map[string]Periods{}, FlowBytes: map[FlowLabels]float64{},
		Weights: map[string]float64{},
	}
	requests := map[float64]float64{} // over all labels but the bound
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		name, labels, v, err := parseSample(text)
		if err != nil {
			return Metrics{}, fmt.Errorf("the daemon's metrics: %q: %w", text, err)
		}
		from := labels["device"]
		if from == device.NetworkName {
			continue // what is sent; this is about disks
		}
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
		case "penstock_request_latency_seconds_bucket":
			upTo, err := strconv.ParseFloat(labels["le"], 64)
			if err != nil {
				return Metrics{}, fmt.Errorf("the daemon's metrics: %q: %w", text, err)
			}
			requests[upTo] += v
		}
	}
	if err := lines.Err(); err != nil {
		return Metrics{}, fmt.Errorf("read the daemon's metrics: %w", err)
	}
	for upTo, n := range requests {
		m.Requests = append(m.Requests, Bucket{upTo, n})
	}
	slices.SortFunc(m.Requests, func(a, b Bucket) int {
		if a.UpTo < b.UpTo {
			return -1
		}
		return 1
	})
	return m, nil
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

// parseSample takes one line apart. A time stamp after the value is ignored.
func parseSample(text string) (name string, labels map[string]string, value float64, err error) {
	rest := text
	if open := strings.IndexByte(text, '{'); open >= 0 {
		name = text[:open]
		if labels, rest, err = parseLabels(text[open+1:]); err != nil {
			return "", nil, 0, err
		}
	} else {
		name, rest, _ = strings.Cut(text, " ")
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", nil, 0, fmt.Errorf("no value")
	}
	value, err = strconv.ParseFloat(fields[0], 64)
	return name, labels, value, err
}

// parseLabels reads key="value" pairs up to the closing brace and returns what
// follows it. Values escape backslash, quote and newline as Go does.
func parseLabels(s string) (map[string]string, string, error) {
	labels := map[string]string{}
	for {
		s = strings.TrimLeft(s, ", ")
		if strings.HasPrefix(s, "}") {
			return labels, s[1:], nil
		}
		key, after, ok := strings.Cut(s, "=")
		if !ok {
			return nil, "", fmt.Errorf("labels do not end")
		}
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return nil, "", fmt.Errorf("label %s: %w", key, err)
		}
		if labels[key], err = strconv.Unquote(quoted); err != nil {
			return nil, "", fmt.Errorf("label %s: %w", key, err)
		}
		s = after[len(quoted):]
	}
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
