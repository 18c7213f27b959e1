package hbase

import (
	"strings"
	"testing"
	"time"
)

const report = `2026-11-27T08:00:00,000 INFO  [TestClient-0 {}] hbase.PerformanceEvaluation: Test : RandomReadTest, Thread : TestClient-0
2026-11-27T08:00:00,000 INFO  [TestClient-0 {}] hbase.PerformanceEvaluation: Latency (us) : mean=812.50, min=100.00, max=90000.00, stdDev=1.00, 50th=700.00, 75th=800.00, 95th=900.00, 99th=1,900.00, 99.9th=2000.00, 99.99th=90000.00, 99.999th=90000.00
2026-11-27T08:00:00,000 INFO  [TestClient-0 {}] hbase.PerformanceEvaluation: Num measures (latency) : 30000
`

func TestTimes(t *testing.T) {
	got, err := parseTimes(report)
	want := Times{Count: 30000, Mean: 812500 * time.Nanosecond, P50: 700 * time.Microsecond, P95: 900 * time.Microsecond, P99: 1900 * time.Microsecond, Max: 90 * time.Millisecond}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseTimes("nothing"); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for what, text := range map[string]string{
		"no count":     strings.Replace(report, "Num measures", "Measures", 1),
		"no p99":       strings.Replace(report, "99th=", "99=", 1),
		"not a number": strings.Replace(report, "50th=700.00", "50th=?", 1),
	} {
		if got, err := parseTimes(text); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
