package broker

import (
	"fmt"
	"testing"
	"time"

	"penstock/broker/policyfile"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/wire/cluster"
)

// idle returns a broker that does not run: tests call what its loop would call.
func idle(t *testing.T, text string, facts func(string) policy.Facts) *Broker {
	t.Helper()
	b, err := New(t.Context(), Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	if b.policy, err = policyfile.Parse([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return b
}

// reporting adds a node that sends its first report.
func reporting(t testing.TB, b *Broker, name string, capacity uint64, applications ...string) *session {
	t.Helper()
	r := &cluster.Report{Node: &cluster.Node{Name: name, PeriodMs: 1000}, Sequence: 1, Capacity: capacity}
	for i, a := range applications {
		r.Names = append(r.Names, &cluster.Name{Entry: uint32(i), Application: a})
	}
	apps, err := newEntryTable(b.totals)
	if err != nil {
		t.Fatal(err)
	}
	queues, err := newEntryTable(b.queues)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{node: r.Node, apps: apps, queues: queues, period: time.Second, maxSilence: 5 * time.Second, parts: map[string]*coord.RatePart{}}
	b.mu.Lock()
	b.sessions[name] = s
	b.mu.Unlock()
	if _, err := b.handleReport(s, r); err != nil {
		t.Fatal(err)
	}
	return s
}

// verdictOf computes the rights and returns the verdict about an application's total reserve.
func (b *Broker) verdictOf(application string) reserve.Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.computeRights()
	return b.totalRates[application].Verdict
}

// A new leader hears from the nodes one after the other. The rate of the first rule, which needs both nodes, stays.
func TestANewLeaderKeepsGuaranteedRates(t *testing.T) {
	b := idle(t, "rules: [{flow: a, total_reserve: 100MiB}, {flow: b, total_reserve: 50MiB}]", nil)
	reporting(t, b, "n1", 55*mib, "a", "b")
	if v := b.verdictOf("a"); v.State != reserve.Admitted {
		t.Errorf("after one node: %+v", v)
	}
	reporting(t, b, "n2", 55*mib, "a", "b")
	b.startup.Reset(-time.Hour)
	if a, b := b.verdictOf("a"), b.verdictOf("b"); a.State != reserve.Admitted || b.State != reserve.Reduced {
		t.Errorf("a %+v, b %+v", a, b)
	}
}

// An application that its cluster manager reports as ended holds no room, although nodes have not forgotten it.
func TestAnEndedApplicationHoldsNoRoom(t *testing.T) {
	b := idle(t, "rules: [{flow: a, total_reserve: 60MiB}, {flow: b, total_reserve: 50MiB}]", nil)
	b.startup.Reset(-time.Hour)
	ended := false
	b.options.Life = func(flow string) Life { return Life{Progress: -1, Ended: ended && flow == "a"} }
	s := reporting(t, b, "n1", 100*mib, "a", "b")
	if a, b := b.verdictOf("a"), b.verdictOf("b"); a.State != reserve.Admitted || b.State != reserve.Queued {
		t.Errorf("a %+v, b %+v", a, b)
	}
	ended = true
	if a, b := b.verdictOf("a"), b.verdictOf("b"); a.State != reserve.Unused || b.State != reserve.Admitted || s.parts["a"].Due().Reserve != 0 {
		t.Errorf("after the end of a: a %+v, b %+v", a, b)
	}
}

// An application that asks for more, as with bandwidth: reserve, keeps what it has, and breaks no other rate.
func TestAGuaranteedRateGrows(t *testing.T) {
	b := idle(t, "rules: [{flow: x, total_reserve: 10MiB}, {flow: y, total_reserve: 60MiB}]", nil)
	b.startup.Reset(-time.Hour)
	s := reporting(t, b, "n1", 100*mib, "x", "y")
	ask := func(rate int64) reserve.Verdict {
		g := b.grants["x"]
		g.Total.Reserve = rate
		b.grants["x"] = g
		return b.verdictOf("x")
	}
	part := func() int64 { return s.parts["x"].Due().Reserve }
	if v := ask(95 * mib); v.State != reserve.Reduced || part() != 10*mib {
		t.Errorf("95 MiB/s: %+v, part %d", v, part())
	}
	if v := b.verdictOf("x"); v.State != reserve.Reduced || part() != 10*mib {
		t.Errorf("95 MiB/s, again: %+v, part %d", v, part())
	}
	if v := ask(30 * mib); v.State != reserve.Admitted || part() != 30*mib {
		t.Errorf("30 MiB/s: %+v, part %d", v, part())
	}
	if v := b.verdictOf("y"); v.State != reserve.Admitted {
		t.Errorf("y: %+v", v)
	}
}

// With another epoch all sessions end, but not their applications: their service says nothing about others.
func TestAnEpochEndsNoApplication(t *testing.T) {
	b := idle(t, "queues: [{queue: etl, weight: 1, order: shortest, floor: 1}]", func(f string) policy.Facts { return policy.Facts{Flow: f, Queue: "etl"} })
	s := reporting(t, b, "n1", 0, "a")
	for i := range uint64(5) {
		if _, err := b.handleReport(s, &cluster.Report{Sequence: i + 2, Entries: []uint32{0}, Rates: []uint64{1}, Rooms: []uint64{1}, Bytes: []uint64{1 << 30}, Hungry: []bool{true}}); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.computeRights()
		b.mu.Unlock()
		time.Sleep(100 * time.Millisecond) // service counts by time
	}
	b.mu.Lock()
	b.beginEpoch(7)
	b.computeRights()
	b.mu.Unlock()
	reporting(t, b, "n1", 0, "new")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.computeRights()
	if p := b.orders.places["new"]; p.Remaining.Bytes > 0 {
		t.Errorf("no application has ended, but one is known by the history: %+v", p)
	}
}

// A node that comes back gets its parts with the next computation of rights: otherwise its report would divide all rates again
// for each application.
func TestAReturningNodeGetsItsPartsLater(t *testing.T) {
	b := idle(t, "rules: [{total_reserve: 1MiB}]", nil)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("application", i))
	}
	s := reporting(t, b, "n1", 1<<40, names...)
	b.matchPending()
	b.verdictOf(names[0])
	b.mu.Lock()
	b.drop("n1", s)
	b.mu.Unlock()
	s = reporting(t, b, "n1", 1<<40, names...)
	for _, name := range names {
		if part := s.parts[name].Due().Reserve; part != 0 {
			t.Fatalf("%s has the part %d at once", name, part)
		}
	}
	b.verdictOf(names[0])
	for _, name := range names {
		if part := s.parts[name].Due().Reserve; part != mib {
			t.Fatalf("%s has the part %d", name, part)
		}
	}
}
