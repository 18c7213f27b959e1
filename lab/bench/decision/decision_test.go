package decision

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func quick() Request {
	return Request{Flows: []int{1, 10}, Length: MinLength, Trips: MinTrips, NoJava: true}
}

func TestEveryAlgorithmIsMeasured(t *testing.T) {
	res, err := Perform(t.Context(), quick())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(res.Decisions), 2*len(algorithms); got != want {
		t.Errorf("%d decisions' figures, want %d", got, want)
	}
	for _, d := range res.Decisions {
		if !(d.P50 > 0 && d.P99 >= d.P50) || d.Decisions < batch {
			t.Errorf("%+v", d)
		}
	}
	if len(res.Quanta) != 2 || !(res.Quanta[1].P50 > 0) || res.Quanta[1].Quanta < 1 {
		t.Errorf("device loop: %+v", res.Quanta)
	}
	if len(res.RoundTrips) != 3 {
		t.Fatalf("round trips: %+v", res.RoundTrips)
	}
	for _, trip := range res.RoundTrips {
		if !(trip.P50 > 0 && trip.P99 >= trip.P50) || trip.Count != MinTrips {
			t.Errorf("%+v", trip)
		}
	}
	if !strings.Contains(res.LeftOut, "agent") {
		t.Errorf("left out %q", res.LeftOut)
	}
	var table, doc strings.Builder
	if err := errors.Join(res.WriteTable(&table), res.WriteJSON(&doc)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sfq", "drr", "fifo", "device loop", "echo", "Left out"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	if !json.Valid([]byte(doc.String())) {
		t.Errorf("not JSON: %s", &doc)
	}
}

func TestWithoutTheAgentsJarTheRestIsMeasured(t *testing.T) {
	q := quick()
	q.NoJava, q.AgentJar, q.Flows = false, "no-such.jar", []int{1}
	res, err := Perform(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if res.LeftOut == "" || len(res.Agent) != 0 || len(res.RoundTrips) == 0 {
		t.Errorf("left out %q, agent %v", res.LeftOut, res.Agent)
	}
}

func TestInterruptedMeasurementEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := quick()
	q.Length = time.Hour
	if _, err := Perform(ctx, q); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestRequestsBounds(t *testing.T) {
	for _, c := range []struct {
		change func(*Request)
		good   bool
	}{
		{func(*Request) {}, true},
		{func(q *Request) { q.Flows = nil }, false},
		{func(q *Request) { q.Flows = []int{10, 0} }, false},
		{func(q *Request) { q.Flows = []int{MaxFlows} }, true},
		{func(q *Request) { q.Flows = []int{MaxFlows + 1} }, false},
		{func(q *Request) { q.Length = MinLength - 1 }, false},
		{func(q *Request) { q.Trips = MinTrips - 1 }, false},
		{func(q *Request) { q.Trips = MaxTrips }, true},
		{func(q *Request) { q.Trips = MaxTrips + 1 }, false},
	} {
		q := quick()
		c.change(&q)
		if err := q.Validate(); (err == nil) != c.good {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestParseTimings(t *testing.T) {
	got, err := parseTimings(strings.NewReader("read packet\t3.5\t9.0\t1000\necho\t17000.0\t40000.0\t20\n"))
	if err != nil || len(got) != 2 || got[0] != (Timing{"read packet", 3.5, 9, 1000}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzParseTimings(f *testing.F) {
	for _, s := range []string{"", "echo\t1.0\t2.0\t3\n", "echo\t1\t2\n", "echo\tNaN\t2\t3\n", "echo\t-1\t2\t3\n",
		"echo\t3\t2\t3\n", "\t1\t2\t3\n", "echo\t1\t+Inf\t3\n", "echo\t1\t2\t0\n", "Exception in thread main\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		timings, err := parseTimings(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, x := range timings {
			if x.Name == "" || !(x.P50 > 0 && x.P99 >= x.P50) || x.Count < 1 {
				t.Errorf("%q gave %+v", s, x)
			}
		}
	})
}
