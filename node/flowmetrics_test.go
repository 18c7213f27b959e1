package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/device"
	"penstock/wire"
)

// TestSeriesOfFlowsThatAreUsed checks that a flow has series while it is used and for some minutes afterwards, and
// again when it returns.
func TestSeriesOfFlowsThatAreUsed(t *testing.T) {
	s, now := newFlowSeries("used"), time.Now()
	flow := device.FlowSnapshot{Name: "a", Requests: 5}
	seen := func(after time.Duration) bool {
		now = now.Add(after)
		out := make(chan prometheus.Metric, 100)
		s.collect("sda", []device.FlowSnapshot{flow, {Name: "b", Streams: 1}}, now, out)
		close(out)
		found := map[string]bool{}
		for m := range out {
			for _, name := range []string{"a", "b"} {
				found[name] = found[name] || slices.Contains(labels(t, m), name)
			}
		}
		if !found["b"] {
			t.Error("a flow with streams has no series")
		}
		return found["a"]
	}
	for _, step := range []struct {
		after    time.Duration
		requests int64
		want     bool
	}{{0, 0, true}, {flowSeriesAge - 1, 0, true}, {1, 0, false}, {time.Hour, 0, false}, {time.Minute, 1, true}, {flowSeriesAge / 2, 0, true}, {flowSeriesAge / 2, 0, false}} {
		flow.Requests += step.requests
		if got := seen(step.after); got != step.want {
			t.Errorf("after %v more, with %d requests: series %v, want %v", step.after, flow.Requests, got, step.want)
		}
	}
	if s.all = true; !seen(time.Hour) {
		t.Error("with flow_metrics: all, a flow has no series any more")
	}
}

// labels returns the label values of a metric.
func labels(t *testing.T, m prometheus.Metric) (values []string) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(single{m})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range families[0].GetMetric()[0].GetLabel() {
		values = append(values, p.GetValue())
	}
	return values
}

// single is a collector of one metric.
type single struct{ m prometheus.Metric }

func (s single) Describe(chan<- *prometheus.Desc)     {}
func (s single) Collect(out chan<- prometheus.Metric) { out <- s.m }

// TestFlowMetricsOff checks that the setting leaves only series of devices.
func TestFlowMetricsOff(t *testing.T) {
	r := startWith(t, "enforce", "flow_metrics: \"off\"\nforeign: totals\n")
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, "")
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "application_7_0001", Path: block})
	r.until("the first lease", func() bool { return r.marks[1] > 0 })
	_, text := r.get("/metrics")
	if strings.Contains(text, "penstock_flow_") || strings.Contains(text, "application_7_0001") {
		t.Error("a flow has series")
	}
	if r.metric(fmt.Sprintf(`penstock_device_depth{device="%s"}`, r.deviceName())) == "" {
		t.Error("the device has no series")
	}
	if stalled := r.metric("penstock_heartbeat_stalled_devices"); stalled != "0" {
		t.Errorf("%q stalled devices, want 0", stalled)
	}
}
