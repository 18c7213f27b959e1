package decision

import "testing"

func TestClaims(t *testing.T) {
	r := Result{Decisions: []Decision{{Algorithm: "sfqd2", Flows: 10, P50: 100, P99: 200}}, Quanta: []Quantum{{Flows: 10, P50: 300, P99: 400}},
		Agent: []Timing{{Name: "check", P50: 5, P99: 6}}, RoundTrips: []Timing{{Name: "echo", P50: 7, P99: 8}}}
	want := map[string][2]float64{"sfqd2, one decision among 10 flows": {100, 200}, "device loop, one quantum among 10 flows": {300, 400}, "agent, check": {5, 6}}
	all := r.claims()
	for _, c := range all {
		if w := want[c.Name]; c.Value != w[0] || c.Low != w[0] || c.High != w[1] || c.Unit != "ns" || c.Runs != 1 || c.Goal != nil {
			t.Errorf("%+v, want %v", c, w)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d claims: %+v", len(all), all)
	}
}
