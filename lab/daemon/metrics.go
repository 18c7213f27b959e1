package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// prefix is the prefix of the names of all of Penstock's metrics.
const prefix = "penstock_"

// Metrics contains the metrics of one scrape.
type Metrics map[string]*dto.MetricFamily

// ParseMetrics reads the Prometheus text format.
func ParseMetrics(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read the daemon's metrics: %w", err)
	}
	return m, nil
}

// Scrape reads all metrics.
func (d *Daemon) Scrape(ctx context.Context) (Metrics, error) {
	page, err := d.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return ParseMetrics(bytes.NewReader(page))
}

// Metric returns the sum of the metric's series that have all the given labels, such as
// flow="clients". name is without "penstock_".
func (d *Daemon) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	m, err := d.Scrape(ctx)
	if err != nil {
		return 0, err
	}
	return m.Sum(name, labels...), nil
}

// Sum returns the sum of the metric's series that have all the given labels, such as
// flow="clients". name is without "penstock_". A missing metric is 0.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
	m.Each(name, func(have map[string]string, value float64) {
		for _, l := range labels {
			key, want, _ := strings.Cut(l, "=")
			if got, ok := have[key]; !ok || got != strings.Trim(want, `"`) {
				return
			}
		}
		sum += value
	})
	return sum
}

// Each calls visit with the labels and the value of each series of a counter or gauge.
func (m Metrics) Each(name string, visit func(labels map[string]string, value float64)) {
	for _, series := range m[prefix+name].GetMetric() {
		visit(labelsOf(series), valueOf(series))
	}
}

// Value returns the value of a gauge or counter without labels. name is the complete name, such as
// process_cpu_seconds_total. A missing metric is 0.
func (m Metrics) Value(name string) (value float64) {
	for _, series := range m[name].GetMetric() {
		value += valueOf(series)
	}
	return value
}

// Observed returns the number of a histogram's observations, over all series, and their sum.
func (m Metrics) Observed(name string) (count, sum float64) {
	for _, series := range m[prefix+name].GetMetric() {
		count += float64(series.GetHistogram().GetSampleCount())
		sum += series.GetHistogram().GetSampleSum()
	}
	return count, sum
}

func valueOf(series *dto.Metric) float64 {
	return series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue()
}

// Bucket contains the number of observations that are at most UpTo.
type Bucket struct{ UpTo, Count float64 }

// Histogram returns the cumulative buckets of a histogram, in ascending order, summed over the
// series for which counts returns true.
func (m Metrics) Histogram(name string, counts func(labels map[string]string) bool) (buckets []Bucket) {
	for _, series := range m[prefix+name].GetMetric() {
		if !counts(labelsOf(series)) {
			continue
		}
		h := series.GetHistogram()
		for i, b := range h.GetBucket() {
			if i == len(buckets) {
				buckets = append(buckets, Bucket{UpTo: b.GetUpperBound()})
			}
			buckets[i].Count += float64(b.GetCumulativeCount())
		}
		if n := len(h.GetBucket()); n > 0 && !math.IsInf(h.GetBucket()[n-1].GetUpperBound(), 1) {
			if n == len(buckets) {
				buckets = append(buckets, Bucket{UpTo: math.Inf(1)})
			}
			buckets[n].Count += float64(h.GetSampleCount())
		}
	}
	return buckets
}

func labelsOf(series *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range series.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}
