package isolation

import (
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/experiment/counters"
)

// TestMeasure feeds counters that grow by straight lines, so that every figure
// is known by hand.
func TestMeasure(t *testing.T) {
	start := time.Unix(1000, 0)
	var disks counters.Samples
	for ms := 0; ms <= 20000; ms += 250 {
		s := float64(ms) / 1000
		disks = append(disks, counters.Sample{At: start.Add(time.Duration(ms) * time.Millisecond), Disks: map[string]counters.Bytes{
			"a": {Read: s * 4e6, Write: s * 2e6},
			"b": {Read: s * 1e6},
		}})
	}
	var r Run
	r.measure(disks, nil, start.Add(5100*time.Millisecond), start.Add(15350*time.Millisecond))
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-3*want {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	near("run time", r.RuntimeS, 10.25)
	near("bytes read", r.ReadBytes, 10.25*5e6)
	near("bytes written", r.WriteBytes, 10.25*2e6)
	near("device MB/s", r.DeviceMBps, 7)
	near("demand", r.DemandMBps, 7)
	if n := len(r.Series.Disks["a"]); n != 11 {
		t.Fatalf("%d steps of a second, want 11", n)
	}
	near("first step", r.Series.Disks["a"][0], 6)
	near("short last step", r.Series.Disks["b"][10], 1)
}

func TestDemandLeavesOutStartAndEnd(t *testing.T) {
	quiet := []float64{0, 0, 0, 0.1}
	busy := make([]float64, 20)
	for i := range busy {
		busy[i] = 10
	}
	got := demand(Series{Disks: map[string][]float64{"a": append(append(quiet, busy...), quiet...)}})
	if math.Abs(got-10) > 0.01 {
		t.Errorf("demand = %v, want 10", got)
	}
	if got := demand(Series{}); got != 0 {
		t.Errorf("demand of nothing = %v", got)
	}
}

const scrapeText = `# HELP penstock_device_depth Requests in flight allowed.
# TYPE penstock_device_depth gauge
penstock_device_depth{device="loop1"} 3
# TYPE penstock_device_latency_seconds gauge
penstock_device_latency_seconds{device="loop1"} 0.25
# TYPE penstock_device_latency_reference_seconds gauge
penstock_device_latency_reference_seconds{device="loop1"} 0.38
# TYPE penstock_device_depth_periods_total counter
penstock_device_depth_periods_total{at="min",device="loop1"} PMIN
penstock_device_depth_periods_total{at="max",device="loop1"} PMAX
penstock_device_depth_periods_total{at="between",device="loop1"} PBETWEEN
penstock_device_depth_periods_total{at="min",device="idle"} PIDLE
# TYPE penstock_flow_bytes_total counter
penstock_flow_bytes_total{device="loop1",direction="read",flow="application_1_0001"} BYTES
penstock_flow_bytes_total{device="loop1",direction="write",flow="odd \"name\", with } and \\ in it"} 7 1700000000000
penstock_flow_bytes_total{device="network",direction="write",flow="application_1_0001"} 9e+09
# TYPE penstock_request_latency_seconds histogram
penstock_request_latency_seconds_bucket{device="network",le="0.1"} 1000
penstock_request_latency_seconds_bucket{device="loop1",le="0.1"} B1
penstock_request_latency_seconds_bucket{device="loop1",le="0.5"} B2
penstock_request_latency_seconds_bucket{device="loop1",le="+Inf"} B3
penstock_request_latency_seconds_sum{device="loop1"} 1.5e+1
penstock_request_latency_seconds_count{device="loop1"} B3
go_goroutines 12
`

func scrape(t *testing.T, replace ...string) daemon.Metrics {
	t.Helper()
	m, err := daemon.ParseMetrics(strings.NewReader(strings.NewReplacer(replace...).Replace(scrapeText)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestScrapes(t *testing.T) {
	start := time.Unix(2000, 0)
	first := scrape(t, "PMIN", "10", "PMAX", "0", "PBETWEEN", "5", "PIDLE", "0", "BYTES", "1e+06", "B1", "10", "B2", "20", "B3", "20")
	last := scrape(t, "PMIN", "12", "PMAX", "1", "PBETWEEN", "12", "PIDLE", "90", "BYTES", "1e+08", "B1", "60", "B2", "119", "B3", "120")
	var r Run
	r.measure(nil, []scrapeSample{
		{start.Add(-time.Second), scrape(t, "PMIN", "0", "PMAX", "0", "PBETWEEN", "0", "PIDLE", "0", "BYTES", "0", "B1", "0", "B2", "0", "B3", "0")},
		{start, first}, {start.Add(10 * time.Second), last},
	}, start, start.Add(10*time.Second))
	if want := (Periods{Min: 2, Max: 1, Between: 7}); r.Depth == nil || *r.Depth != want {
		t.Errorf("periods %+v, want %+v: the window's only, without the idle device's", r.Depth, want)
	}
	if r.LatencyP99MS == nil || *r.LatencyP99MS != 500 {
		t.Errorf("p99 %v, want the 500 ms bucket", r.LatencyP99MS)
	}
	if s := r.Series.Scrapes; len(s) != 2 || s[1].At != 10 || s[1].LatencyMS["loop1"] != 250 || s[0].FlowBytes["application_1_0001"] != 1e6 ||
		s[0].FlowBytes[`odd "name", with } and \ in it`] != 7 || s[0].Depth["loop1"] != 3 {
		t.Errorf("scrapes %+v", s)
	}
}
