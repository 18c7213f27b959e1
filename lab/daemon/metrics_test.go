package daemon

import (
	"math"
	"strings"
	"testing"
)

func TestMetrics(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(`# TYPE penstock_flow_bytes_total counter
penstock_flow_bytes_total{device="sda",flow="a"} 3
penstock_flow_bytes_total{device="sdb",flow="odd \"name\", with } and \\ in it"} 4 1700000000000
# TYPE penstock_wait_seconds histogram
penstock_wait_seconds_bucket{device="sda",le="0.1"} 5
penstock_wait_seconds_bucket{device="sda",le="+Inf"} 7
penstock_wait_seconds_sum{device="sda"} 1
penstock_wait_seconds_count{device="sda"} 7
penstock_wait_seconds_bucket{device="sdb",le="0.1"} 1
penstock_wait_seconds_sum{device="sdb"} 1
penstock_wait_seconds_count{device="sdb"} 2
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 2.5
go_goroutines 9
`))
	if err != nil {
		t.Fatal(err)
	}
	if all, one, none := m.Sum("flow_bytes_total"), m.Sum("flow_bytes_total", `flow="odd "name", with } and \ in it"`), m.Sum("nothing"); all != 7 || one != 4 || none != 0 {
		t.Errorf("sums %v, %v, %v", all, one, none)
	}
	if cpu, goroutines, none := m.Value("process_cpu_seconds_total"), m.Value("go_goroutines"), m.Value("nothing"); cpu != 2.5 || goroutines != 9 || none != 0 {
		t.Errorf("values %v, %v, %v", cpu, goroutines, none)
	}
	if count, sum := m.Observed("wait_seconds"); count != 9 || sum != 2 {
		t.Errorf("%v observations of %v, want 9 of 2", count, sum)
	}
	b := m.Histogram("wait_seconds", func(map[string]string) bool { return true })
	if len(b) != 2 || b[0] != (Bucket{0.1, 6}) || b[1] != (Bucket{math.Inf(1), 9}) {
		t.Errorf("buckets %v", b)
	}
}

func TestParseMetricsRefuses(t *testing.T) {
	for _, bad := range []string{"name", "name{a=\"b\" 1", "name{a=b} 1", "name x",
		"# TYPE penstock_wait_seconds histogram\npenstock_wait_seconds_bucket{le=\"x\"} 1"} {
		if _, err := ParseMetrics(strings.NewReader(bad + "\n")); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
