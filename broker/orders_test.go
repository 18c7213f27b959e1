package broker

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestSlicesOfManyApplications: the floors of a queue with as many applications as a broker has take half of its share, and the
// first application has the rest of its slice.
func TestSlicesOfManyApplications(t *testing.T) {
	const text = "queues: [{queue: etl, weight: 3, order: shortest, slices: [90], floor: 25}]"
	for _, n := range []int{2, 5000, 5001, 10_000, maxApps} {
		b := idle(t, text, nil)
		names, grants := make([]string, n), make([]policy.Grant, n)
		for i := range names {
			names[i] = fmt.Sprint(i)
			grants[i] = b.policy.Grant(policy.Facts{Flow: names[i], Queue: "etl"})
		}
		b.applyOrders(names, grants)
		sum, largest := 0, 0
		for _, g := range grants {
			sum, largest = sum+g.Weight, max(largest, g.Weight)
		}
		if first, want := float64(largest)/float64(sum), b.orders.places[names[0]].Part; n > 2 && math.Abs(first-want) > 0.01 || first < 0.5 {
			t.Errorf("%d applications: the first one has %.3f of the share, and its slice is %.3f", n, first, want)
		}
		if sum > policy.MaxWeight*11/10 {
			t.Errorf("%d applications: the weights add up to %d", n, sum)
		}
	}
}

// TestAnEndedApplicationLeavesTheOrder: an application whose end is known keeps the floor, and the first slice passes to the next
// one, although nodes still report the ended one.
func TestAnEndedApplicationLeavesTheOrder(t *testing.T) {
	const text = "queues: [{queue: etl, weight: 3, order: shortest, slices: [70, 20, 10], floor: 5}]"
	sizes := map[string]string{"short": "1g", "middle": "20g", "long": "30g"}
	ended := ""
	b := idle(t, text, nil)
	b.options.Life = func(flow string) Life { return Life{Ended: flow == ended} }
	names := []string{"long", "middle", "short"}
	grants := make([]policy.Grant, len(names))
	slices := func() (weights map[string]int) {
		for i, name := range names {
			grants[i] = b.policy.Grant(policy.Facts{Flow: name, Queue: "etl", Tags: []string{policy.SizeTag + sizes[name]}})
		}
		b.applyOrders(names, grants)
		weights = map[string]int{}
		for i, name := range names {
			weights[name] = grants[i].Weight * 100 / sliceScale
		}
		return weights
	}
	if got, want := slices(), map[string]int{"short": 70, "middle": 20, "long": 10}; !maps.Equal(got, want) {
		t.Errorf("slices %v, want %v", got, want)
	}
	ended = "short"
	if got, want := slices(), map[string]int{"short": 5, "middle": 77, "long": 22}; !maps.Equal(got, want) {
		t.Errorf("slices %v after the first has ended, want %v", got, want)
	}
}

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
	weights(first, "the shorter of two has 7/9", map[string]float64{"middle": 777_778, "long": 222_222, "beside": 1})
	second := node(t, "second", brokers, "short")
	weights(first, "a shorter one takes the first slice", map[string]float64{"middle": 200_000, "long": 100_000})
	weights(second, "the first slice", map[string]float64{"short": 700_000})

	state := func(flow string) *cluster.ApplicationState {
		t.Helper()
		a, err := operators{b: b}.ListApplications(callFrom("127.0.0.1"), &cluster.ListApplicationsRequest{Application: flow})
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
	if ordered, slice := count(t, b, "penstock_broker_ordered_applications"), count(t, b, "penstock_broker_first_slice"); ordered != "3" || !strings.HasPrefix(slice, "0.7") {
		t.Errorf("metrics: %s ordered applications, first slice %s", ordered, slice)
	}
	remaining, err := strconv.ParseFloat(count(t, b, "penstock_broker_remaining_bytes"), 64)
	sum := float64(s.GetRemainingBytes() + state("middle").GetRemainingBytes() + state("long").GetRemainingBytes())
	if err != nil || !(remaining > 0) || math.Abs(remaining-sum) > 0.01*sum {
		t.Errorf("metric: %v bytes remain, %v; the applications have %v", remaining, err, sum)
	}
	if s := state("beside"); s.GetRank() != 0 || s.GetSlice() != 0 {
		t.Errorf("outside the queue: %v", s)
	}
	applyText(t, b, "queues: [{queue: etl, weight: 3}]")
	weights(first, "equal weights without an order", map[string]float64{"middle": 1, "long": 1})
	if s := state("long"); s.GetRank() != 0 {
		t.Errorf("%v", s)
	}
	if ordered, slice := count(t, b, "penstock_broker_ordered_applications"), count(t, b, "penstock_broker_first_slice"); ordered != "0" || slice != "0" {
		t.Errorf("metrics without an order: %s ordered applications, first slice %s", ordered, slice)
	}
}
