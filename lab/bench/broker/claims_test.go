package broker

import "testing"

func TestClaims(t *testing.T) {
	r := Result{Request: Request{Nodes: 100}, Storms: []Storm{{Seconds: 4}, {Seconds: 8}}}
	for i := range 3 {
		v := float64(i + 1)
		r.Windows = append(r.Windows, Window{Cores: v, Resident: v * (10 << 20), Delay: Quantiles{P99: 2 * v}, Stale: Quantiles{P99: 3 * v}})
	}
	want := map[string][3]float64{
		"100 nodes: broker's CPU":                        {2, 1, 3},
		"100 nodes: broker's memory":                     {20, 10, 30},
		"100 nodes: report to answer, p99":               {4, 2, 6},
		"100 nodes: change to another node's total, p99": {6, 3, 9},
		"100 nodes: all answered after a restart":        {6, 4, 8},
	}
	all := r.claims()
	for _, c := range all {
		if w := want[c.Name]; [3]float64{c.Value, c.Low, c.High} != w || c.Goal != nil || c.Runs < 2 {
			t.Errorf("%+v, want %v", c, w)
		}
	}
	if len(all) != len(want) || len(Result{}.claims()) != 0 {
		t.Errorf("claims: %+v, without windows %+v", all, Result{}.claims())
	}
}
