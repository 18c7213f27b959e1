package broker

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/core/policy"
)

// TestApplicationMetrics checks that the applications with most service have series of their own, that the others are
// added up, and that no series is left of an application that has ended.
func TestApplicationMetrics(t *testing.T) {
	served := serveFacts(t, "127.0.0.1:0", "rules: [{flow: a, weight: 6}, {flow: b, weight: 2}]", func(flow string) policy.Facts {
		return policy.Facts{Flow: flow}
	})
	b := served.Broker
	b.mu.Lock()
	b.options.ApplicationSeries = 2
	b.mu.Unlock()
	node(t, "first", []string{served.address}, "a", "b", OtherApplications, "c")
	metric := func(name, application string) float64 {
		v, err := strconv.ParseFloat(count(t, b, "penstock_application_"+name+`{application="`+application+`"}`), 64)
		if err != nil {
			return -1
		}
		return v
	}
	eventually(t, "shares of 6:2:1:1", func() bool {
		due := metric("due_ratio", "a") == 0.6 && metric("due_ratio", "b") == 0.2 && metric("due_ratio", OtherApplications) > 0.19
		a, sum := metric("service_seconds_per_second", "a"), 0.0
		for _, name := range []string{"a", "b", OtherApplications} {
			sum += metric("service_seconds_per_second", name)
		}
		return due && a > 0.58*sum && a < 0.62*sum && metric("nodes", "a") == 1 && metric("nodes", "c") == -1
	})
	if n := series(t, b, "penstock_application_"); n != 2*5+3 {
		t.Errorf("%d series, want %d", n, 2*5+3)
	}
	b.mu.Lock()
	b.options.Life = func(flow string) Life { return Life{Ended: flow == "a"} }
	b.mu.Unlock()
	eventually(t, "no series of what has ended", func() bool {
		return metric("nodes", "a") == -1 && metric("nodes", "b") == 1 && metric("due_ratio", "b") == 0.5
	})
	if leading := count(t, b, "penstock_broker_leading"); leading != "1" {
		t.Errorf("leading: %q, want 1", leading)
	}
	b.mu.Lock()
	b.options.ApplicationSeries = 0
	b.mu.Unlock()
	if n := series(t, b, "penstock_application_"); n != 0 {
		t.Errorf("%d series, want none", n)
	}
}

// series returns the number of series whose names begin like this.
func series(t *testing.T, b *Broker, prefix string) (n int) {
	t.Helper()
	families, err := prometheus.Gatherers{b.metrics.registry}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			n += len(f.GetMetric())
		}
	}
	return n
}
