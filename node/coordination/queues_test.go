package coordination

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// exchange is a client with one disk; the test is its broker.
type exchange struct {
	*Client
	t        *testing.T
	disk     *disk
	sequence uint64
}

func newExchange(t *testing.T) *exchange {
	t.Helper()
	x := &exchange{t: t, disk: &disk{name: "disk"}}
	var err error
	x.Client, err = New(Options{Node: "n", Brokers: []string{"b"}, Period: 100 * time.Millisecond,
		Devices: func() []Device { return []Device{x.disk} }, Rights: func(map[string]Right) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x.send() // sets the starting point of the accounts
	return x
}

// send reports the same service for each of the flows.
func (x *exchange) send(flows ...string) *cluster.Report {
	x.t.Helper()
	time.Sleep(time.Millisecond) // so that the report covers some time
	for _, f := range flows {
		x.disk.work(f, time.Second)
	}
	x.sequence++
	return x.report(x.sequence)
}

func (x *exchange) answer(a *cluster.Answer) {
	x.t.Helper()
	a.Sequence = x.sequence
	if _, err := x.take(a); err != nil {
		x.t.Fatal(err)
	}
}

// right returns a right with an own weight of 2, in queues of weight 3.
func (x *exchange) right(flow string, queues ...string) *cluster.Right {
	r := &cluster.Right{Entry: x.apps.byName[flow].number, Own: 2}
	for _, q := range queues {
		r.Queues = append(r.Queues, &cluster.Level{Queue: q, Weight: 3})
	}
	return r
}

// totals returns an answer in which each queue has the service of a whole device.
func (x *exchange) totals() *cluster.Queues {
	q := &cluster.Queues{}
	for _, e := range x.queues.inOrder() {
		q.Entries, q.Rates, q.Rooms = append(q.Entries, e.number), append(q.Rates, coord.Second), append(q.Rooms, coord.Second)
		q.Had, q.Weights = append(q.Had, 1), append(q.Weights, 1)
	}
	return q
}

// TestPartsAtEveryLevel: queues are reported once their members are known, with the members'
// service, and get parts by their path. A queue without a total from the broker has no part.
func TestPartsAtEveryLevel(t *testing.T) {
	x := newExchange(t)
	if r := x.send("a", "b", "c", "d"); r.GetQueues() != nil || len(r.GetNames()) != 4 {
		t.Fatalf("at first: %v", r)
	}
	x.answer(&cluster.Answer{Rights: []*cluster.Right{x.right("a", "top", "etl"), x.right("b", "top", "etl"), x.right("c", "top"), x.right("d")}})
	if len(x.disk.parts.Queues) != 0 || len(x.disk.parts.Flows) != 1 || x.disk.parts.Flows["d"] != 2 {
		t.Errorf("parts %v: only d is where it was reported", x.disk.parts)
	}
	r := x.send("a", "b", "c", "d")
	q := r.GetQueues()
	if len(q.GetNames()) != 2 || q.GetNames()[0].GetQueue() != "top" || q.GetNames()[1].GetQueue() != "etl" {
		t.Fatalf("queues %v", q)
	}
	if etl, root := q.GetRates()[1], q.GetRates()[0]; math.Abs(float64(etl)-coord.Second/2) > 1e6 || math.Abs(float64(root)-0.75*coord.Second) > 1e6 {
		t.Errorf("a quarter of a device for each flow: root %d, etl %d", root, etl)
	}
	x.answer(&cluster.Answer{}) // from an older broker
	if p := x.disk.parts; len(p.Queues) != 0 || len(p.Flows) != 4 {
		t.Errorf("parts %v, without queues' totals", p)
	}
	x.send("a", "b", "c", "d")
	x.answer(&cluster.Answer{Queues: x.totals()})
	p := x.disk.parts
	if len(p.Flows) != 4 || len(p.Queues) != 2 || p.Queues["/top"] <= 0 || p.Queues["/top/etl"] <= 0 {
		t.Fatalf("parts %v", p)
	}
	// The sums are on the scale of the weights of each queue.
	for name, sums := range map[string][2]float64{
		"the root": {p.Queues["/top"] + p.Flows["d"], 5}, "top": {p.Queues["/top/etl"] + p.Flows["c"], 5}, "etl": {p.Flows["a"] + p.Flows["b"], 4},
	} {
		if math.Abs(sums[0]-sums[1]) > 1e-6 {
			t.Errorf("%s: the parts come to %v, want %v", name, sums[0], sums[1])
		}
	}
	x.localShares()
	if x.disk.parts.Flows != nil || x.disk.parts.Queues != nil {
		t.Errorf("by local shares %v", x.disk.parts)
	}
}

// TestAnotherPolicyComes: while some rights belong to the previous policy, applications with
// another place for one of their queues wait. Once all have rights of the new policy, all have
// parts again.
func TestAnotherPolicyComes(t *testing.T) {
	x := newExchange(t)
	x.send("a", "b")
	x.answer(&cluster.Answer{Rights: []*cluster.Right{x.right("a", "etl"), x.right("b", "etl")}})
	x.send("a", "b")
	x.answer(&cluster.Answer{Queues: x.totals(), Rights: []*cluster.Right{x.right("a", "top", "etl")}})
	if p := x.disk.parts; p.Queues["/etl"] != 3 || len(p.Queues) != 1 || len(p.Flows) != 2 {
		t.Errorf("parts %v: the members of etl still have some", p)
	}
	x.send("a", "b")
	x.answer(&cluster.Answer{Queues: x.totals()})
	if p := x.disk.parts; len(p.Flows) != 1 || x.State().LeftOut != 1 {
		t.Errorf("parts %v, %d left out: etl is in one place", p, x.State().LeftOut)
	}
	x.answerAll("b", "top", "etl")
	if p := x.disk.parts; len(p.Flows) != 2 || len(p.Queues) != 2 || p.Queues["/top/etl"] != 3 || x.State().LeftOut != 0 {
		t.Errorf("parts %v, %d left out", p, x.State().LeftOut)
	}
	// Applications that have left a queue have no part there.
	x.send("a", "b")
	x.answer(&cluster.Answer{Queues: x.totals(), Rights: []*cluster.Right{x.right("b")}})
	if p := x.disk.parts; len(p.Flows) != 1 || p.Flows["a"] != 2 {
		t.Errorf("parts %v: b was reported in etl", p)
	}
}

// answerAll grants a flow another right, and answers the next report.
func (x *exchange) answerAll(flow string, queues ...string) {
	x.t.Helper()
	x.send("a", "b")
	x.answer(&cluster.Answer{Queues: x.totals(), Rights: []*cluster.Right{x.right(flow, queues...)}})
	x.send("a", "b")
	x.answer(&cluster.Answer{Queues: x.totals()})
	x.send("a", "b")
	x.answer(&cluster.Answer{Queues: x.totals()})
}

// TestQueuesAreForgotten: queues disappear with their last application, and their numbers are
// reused later.
func TestQueuesAreForgotten(t *testing.T) {
	x := newExchange(t)
	x.send("a")
	x.answer(&cluster.Answer{Rights: []*cluster.Right{x.right("a", "etl")}})
	x.send("a")
	x.answer(&cluster.Answer{Queues: x.totals()})
	x.disk.mu.Lock()
	x.disk.uses = nil
	x.disk.mu.Unlock()
	var freed *cluster.Report
	for range forget + 2 {
		if r := x.send(); len(r.GetQueues().GetNames()) > 0 {
			freed = r
		}
	}
	if n := freed.GetQueues().GetNames(); len(n) != 1 || n[0].GetQueue() != "" || len(x.queues.byName) != 0 {
		t.Errorf("%v, %d queues are left", freed, len(x.queues.byName))
	}
	if e := x.queues.enter("other", x.reports); e.number != 1 {
		t.Errorf("the number %d is given at once", e.number)
	}
	if e := x.queues.enter("later", x.reports+2*forget); e.number != 0 {
		t.Errorf("the number %d is given later", e.number)
	}
}

// TestEntriesAreBounded: the number of entries and the length of their names are limited.
func TestEntriesAreBounded(t *testing.T) {
	s := newEntries(3, 5)
	for i := range 3 {
		if e := s.enter(fmt.Sprint("name", i), 0); e == nil || int(e.number) != i {
			t.Fatalf("%d: %+v", i, e)
		}
	}
	if s.enter("name3", 0) != nil || s.enter("name0", 0) != s.byName["name0"] {
		t.Error("the bound does not hold")
	}
	s.free(s.byName["name0"], 0)
	if s.enter("names5", forget+1) != nil || s.enter("", forget+1) != nil || s.enter(strings.Repeat("x", 5), forget+1) == nil {
		t.Error("the bound of names does not hold")
	}
	for name, f := range map[string][5]int{"a rate too few": {1, 0, 1, 0, 0}, "a room too many": {1, 1, 2, 0, 0}, "one of two": {1, 1, 1, 1, 0}, "of others": {2, 2, 2, 1, 1}} {
		if err := s.take(make([]uint32, f[0]), make([]uint64, f[1]), make([]uint64, f[2]), make([]uint64, f[3]), make([]uint64, f[4])); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := s.take([]uint32{1, 2, 99}, []uint64{1, 1 << 63, 1}, []uint64{2, 2, 2}, []uint64{3, 3, 3}, []uint64{4, 4, 4}); err != nil {
		t.Fatal(err)
	}
	if e := s.of(1); !e.known || e.total != (coord.Service{Rate: 1, Room: 2, Had: 3, Weight: 4}) || s.of(2).known {
		t.Errorf("%+v, %+v", e, s.of(2))
	}
}
