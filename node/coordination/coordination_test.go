package coordination

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// disk is a device with flows whose service the test sets.
type disk struct {
	name string
	hang time.Duration // time without an answer; then the device reports an error

	mu    sync.Mutex
	uses  map[string]time.Duration
	parts Parts
}

func (d *disk) Name() string { return d.name }

func (*disk) SetTotals(map[string]policy.Total) {}

func (d *disk) SetParts(parts Parts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts = parts
}

func (d *disk) Uses() ([]Use, int64, bool) {
	if d.hang > 0 {
		time.Sleep(d.hang)
		return nil, 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Use
	for f, u := range d.uses {
		all = append(all, Use{Flow: f, Service: u, Wanted: u})
	}
	return all, 0, true
}

func (d *disk) work(flow string, u time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses == nil {
		d.uses = map[string]time.Duration{}
	}
	d.uses[flow] += u
}

// broker answers each report at once, and counts the reports.
type broker struct {
	cluster.UnimplementedNodesServer
	streams, answers, rates atomic.Int64
	mode, most              atomic.Int64 // reported by the node; sent to it
}

func (b *broker) Exchange(s cluster.Nodes_ExchangeServer) error {
	b.streams.Add(1)
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		b.rates.Add(int64(len(r.GetRates())))
		b.mode.Store(int64(r.GetMode()))
		if err := s.Send(&cluster.Answer{Sequence: r.GetSequence(), Mode: cluster.Mode(b.most.Load())}); err != nil {
			return err
		}
		b.answers.Add(1)
	}
}

func serve(t *testing.T, b *broker) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cluster.RegisterNodesServer(server, b)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return l.Addr().String()
}

// TestAHungDiskKeepsTheStream: a disk whose loop does not answer within its second is left out
// and the other disk is reported. The broker, which answers, does not count as silent.
func TestAHungDiskKeepsTheStream(t *testing.T) {
	var b, other broker
	hung, well := &disk{name: "a", hang: time.Second}, &disk{name: "b"}
	c, err := New(Options{Node: "n", Brokers: []string{serve(t, &b), serve(t, &other)}, Period: 500 * time.Millisecond,
		Devices: func() []Device { well.work("app", 100*time.Millisecond); return []Device{hung, well} },
		Rights:  func(map[string]Right) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for deadline := time.Now().Add(30 * time.Second); b.answers.Load() < 6; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d answers on %d streams, the other broker had %d", b.answers.Load(), b.streams.Load(), other.streams.Load())
		}
	}
	if b.streams.Load() != 1 || other.streams.Load() != 0 || b.rates.Load() == 0 {
		t.Errorf("%d streams, %d with the other broker, %d rates", b.streams.Load(), other.streams.Load(), b.rates.Load())
	}
}

// TestOneQuestionToADisk: the client neither waits for a disk that does not answer nor queries it
// again. A late answer is used from its arrival.
func TestOneQuestionToADisk(t *testing.T) {
	c := &Client{o: Options{Period: 100 * time.Millisecond}, looks: map[string]*look{}}
	d := &gated{asked: make(chan bool, 10), answer: make(chan []Use)}
	if got := c.look([]Device{d}); len(got) != 0 {
		t.Fatalf("%d answers", len(got))
	}
	began := time.Now()
	for range 5 {
		if got := c.look([]Device{d}); len(got) != 0 {
			t.Fatalf("%d answers", len(got))
		}
	}
	if took := time.Since(began); took > c.o.Period {
		t.Errorf("it was waited for, %v", took)
	}
	if len(d.asked) != 1 {
		t.Errorf("asked %d times", len(d.asked))
	}
	l := c.looks["gated"]
	d.answer <- nil
	<-l.done
	if got := c.look([]Device{d}); len(got) != 1 || got[0] != l || l.at.IsZero() || len(d.asked) != 1 {
		t.Errorf("%d answers, asked %d times", len(got), len(d.asked))
	}
	go func() { d.answer <- nil }()
	for deadline := time.Now().Add(30 * time.Second); len(c.look([]Device{d})) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not asked again")
		}
	}
}

// gated is a device that answers when the test allows it.
type gated struct {
	asked  chan bool
	answer chan []Use
}

func (d *gated) Name() string                      { return "gated" }
func (d *gated) SetParts(Parts)                    {}
func (d *gated) SetTotals(map[string]policy.Total) {}
func (d *gated) Uses() ([]Use, int64, bool)        { d.asked <- true; return <-d.answer, 0, true }

// TestRightsOutliveEntries: an application that is idle for so long that its entry is freed still
// has its limit when rights of other applications arrive, and when it becomes active again.
func TestRightsOutliveEntries(t *testing.T) {
	var received map[string]Right
	d := &disk{name: "disk"}
	c, err := New(Options{Node: "n", Brokers: []string{"b"}, Period: 100 * time.Millisecond,
		Devices: func() []Device { return []Device{d} }, Rights: func(r map[string]Right) { received = r }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	sequence := uint64(0)
	report := func(flow string) {
		t.Helper()
		if sequence++; flow != "" {
			d.work(flow, time.Second)
		}
		c.report(sequence)
		time.Sleep(time.Millisecond) // so that the report covers some time
	}
	answer := func(rights ...*cluster.Right) {
		t.Helper()
		if _, err := c.take(&cluster.Answer{Sequence: sequence, Rights: rights}); err != nil {
			t.Fatal(err)
		}
	}
	report("")
	report("replication")
	answer(&cluster.Right{Entry: c.apps.byName["replication"].number, Weight: 2.5, Limit: 20 << 20})
	for range forget + 1 {
		report("app")
	}
	if c.isEntry("replication") || !c.isEntry("app") {
		t.Fatal("it is an entry still")
	}
	answer(&cluster.Right{Entry: c.apps.byName["app"].number, Weight: 1})
	if len(received) != 2 || received["replication"].Limit != 20<<20 || received["app"].Weight != 1 {
		t.Errorf("received %+v", received)
	}
	report("replication")
	answer() // an answer without that right
	if d.parts.Flows["replication"] <= 0 {
		t.Errorf("parts %v: it has a right", d.parts)
	}
	c.localShares()
	if d.parts.Flows != nil || d.parts.Queues != nil {
		t.Errorf("by local shares %v", d.parts)
	}
}

// TestRightsAreBounded: rights of entries stay, and so do the most recently used of the other
// rights.
func TestRightsAreBounded(t *testing.T) {
	r := newRights(4)
	isEntry := func(name string) bool { return name == "1" }
	for i := range 10 {
		r.set(fmt.Sprint(i), Right{Weight: float64(i + 1)}, isEntry)
		if i == 8 {
			r.used("6")
		}
	}
	all := r.all()
	for _, name := range []string{"1", "6", "8", "9"} {
		if _, known := all[name]; !known || len(all) != 4 || r.byName.Len() != 4 {
			t.Fatalf("%v: want 1, 6, 8 and 9", all)
		}
	}
	r.set("6", Right{Weight: 99}, isEntry)
	if got, known := r.of("6"); !known || got.Weight != 99 {
		t.Errorf("%v, %v", got, known)
	}
}

// TestHowLongPartsStay: how long parts stay in force without an answer. With several brokers they
// stay until another one can lead.
func TestHowLongPartsStay(t *testing.T) {
	for _, test := range []struct{ brokers, periods int }{{1, 5}, {2, 8}} {
		c, err := New(Options{Node: "n", Brokers: make([]string, test.brokers), Period: time.Second, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, gone := range []time.Duration{-500 * time.Millisecond, 500 * time.Millisecond} {
			c.state.InForce, c.state.Answered = true, time.Now().Add(-time.Duration(test.periods)*time.Second-gone)
			if c.expire(); c.State().InForce != (gone < 0) {
				t.Errorf("%d brokers, %d periods and %v: in force %v", test.brokers, test.periods, gone, c.State().InForce)
			}
		}
	}
}
