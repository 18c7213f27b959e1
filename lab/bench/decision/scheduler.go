package decision

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"penstock/core/sfq"
	"penstock/lab/experiment/figures"
	"penstock/lab/schedulers"
)

// Decision is the cost of one decision of an algorithm, with every flow backlogged. A decision
// consists of all calls for one request: Next, Settle with a cost that differs from the announced
// cost, and Ready for the flow's next request. P50 and P99 are times per decision; each sample is
// the mean over a batch of 256 decisions.
type Decision struct {
	Algorithm string  `json:"algorithm"`
	Flows     int     `json:"flows"`
	P50       float64 `json:"p50_ns"`
	P99       float64 `json:"p99_ns"`
	Allocs    float64 `json:"allocations"` // of memory, for each decision
	Decisions int     `json:"decisions"`   // measured
}

const batch = 256

// scheduler has the methods that a decision calls. sfq.Scheduler and its peers implement it.
type scheduler interface {
	AddFlow(weight int) (sfq.Flow, error)
	Ready(f sfq.Flow, cost int64) error
	Next() (sfq.Ticket, bool)
	Settle(t sfq.Ticket, cost int64) error
}

// algorithm is a measured algorithm.
type algorithm struct {
	name string
	make func(maxFlows int) (scheduler, error)
}

// algorithms lists the daemon's scheduler, which SFQ(D2) uses at any depth, and its peers.
var algorithms = []algorithm{
	{"sfq", func(n int) (scheduler, error) { return sfq.New(sfq.Config{MaxFlows: n}) }},
	{"drr", func(n int) (scheduler, error) { return schedulers.NewDRR(n) }},
	{"fifo", func(n int) (scheduler, error) { return schedulers.NewFIFO(n) }},
}

// decide measures one algorithm, for about the time lasting.
func decide(ctx context.Context, a algorithm, flows int, lasting time.Duration) (Decision, error) {
	d := Decision{Algorithm: a.name, Flows: flows}
	s, err := backlogged(a, flows)
	if err != nil {
		return d, err
	}
	turn := 0
	one := func() error {
		t, ok := s.Next()
		if !ok {
			return fmt.Errorf("%s with %d flows: nothing to dispatch", a.name, flows)
		}
		if err := s.Settle(t, t.Cost()+int64(turn&4095)); err != nil {
			return err
		}
		turn++
		return s.Ready(t.Flow(), requestCost(turn))
	}
	for range max(10*batch, 2*flows) { // until every flow has been served and every slice has its final size
		if err := one(); err != nil {
			return d, err
		}
	}
	means := make([]float64, 0, 1<<16)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for begun := time.Now(); len(means) < 10 || time.Since(begun) < lasting && len(means) < cap(means); {
		if ctx.Err() != nil {
			return d, ctx.Err()
		}
		from := time.Now()
		for range batch {
			if err := one(); err != nil {
				return d, err
			}
		}
		means = append(means, float64(time.Since(from).Nanoseconds())/batch)
	}
	runtime.ReadMemStats(&after)
	d.Decisions = len(means) * batch
	d.Allocs = float64(after.Mallocs-before.Mallocs) / float64(d.Decisions)
	if d.Allocs < 0.001 {
		d.Allocs = 0 // allocations of the runtime, not of the batch
	}
	d.P50, d.P99 = figures.Quantile(means, 0.5), figures.Quantile(means, 0.99)
	return d, nil
}

// backlogged returns a scheduler in which every flow is ready; weights and costs differ, so that
// tags differ.
func backlogged(a algorithm, flows int) (scheduler, error) {
	s, err := a.make(flows)
	if err != nil {
		return nil, err
	}
	for i := range flows {
		f, err := s.AddFlow(1 + i*37%100)
		if err != nil {
			return nil, err
		}
		if err := s.Ready(f, requestCost(i)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func requestCost(i int) int64 { return int64(64<<10 + i*7919%(1<<20)) }
