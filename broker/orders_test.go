package broker

import (
	"math"
	"testing"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestShortestFirst: applications of an ordered queue get slices by their remaining work, which move when a
// shorter application comes and when the queue is not ordered any more.
func TestShortestFirst(t *testing.T) {
	sizes := map[string]string{"long": "30g", "middle": "20g", "short": "1g"}
	const text = "queues: [{queue: etl, weight: 3, order: shortest, slices: [70, 20, 10], floor: 5}]"
	served := serveFacts(t, "127.0.0.1:0", text, func(flow string) policy.Facts {
		f := policy.Facts{Flow: flow, Queue: "etl"}
		if sizes[flow] != "" {
			f.Tags = []string{policy.SizeTag + sizes[flow]}
		}
		if flow == "beside" {
			f.Queue = ""
		}
		return f
	})
	b, brokers := served.Broker, []string{served.address}
	first := node(t, "first", brokers, "long", "middle", "beside")
	weights := func(m *machine, what string, want map[string]float64) {
		t.Helper()
		eventually(t, what, func() bool {
			for flow, weight := range want {
				if m.right(flow).Weight != weight {
					return false
				}
			}
			return true
		})
	}
	weights(first, "the shorter of two has 7/9", map[string]float64{"middle": 7778, "long": 2222, "beside": 1})
	second := node(t, "second", brokers, "short")
	weights(first, "a shorter one takes the first slice", map[string]float64{"middle": 2000, "long": 1000})
	weights(second, "the first slice", map[string]float64{"short": 7000})

	state := func(flow string) *cluster.ApplicationState {
		t.Helper()
		a, err := operators{b: b}.ListApplications(caller("127.0.0.1"), &cluster.ListApplicationsRequest{Application: flow})
		if err != nil || len(a.GetApplications()) != 1 {
			t.Fatalf("%v, %v", a, err)
		}
		return a.GetApplications()[0]
	}
	s := state("short")
	if s.GetRank() != 1 || math.Abs(s.GetSlice()-0.7) > 1e-9 || s.GetRemainingBytes() == 0 || s.GetRemainingBytes() > 1<<30 || !(s.GetRemainingError() > 0) {
		t.Errorf("%v", s)
	}
	if s := state("long"); s.GetRank() != 3 || math.Abs(s.GetSlice()-0.1) > 1e-9 {
		t.Errorf("%v", s)
	}
	if s := state("beside"); s.GetRank() != 0 || s.GetSlice() != 0 {
		t.Errorf("outside the queue: %v", s)
	}
	applyText(t, b, "queues: [{queue: etl, weight: 3}]")
	weights(first, "equal weights without an order", map[string]float64{"middle": 1, "long": 1})
	if s := state("long"); s.GetRank() != 0 {
		t.Errorf("%v", s)
	}
}
