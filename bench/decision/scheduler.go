package decision

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"penstock/bench/internal/figures"
	"penstock/core/sfq"
)

// Decision is what one algorithm's decision costs: a dispatched request from end
// to end (Next, Complete with a cost that differs from the submitted one, and
// the flow's next Submit), with every flow backlogged. Nanoseconds are of one
// decision, as means of batches of 256.
type Decision struct {
	Algorithm string  `json:"algorithm"`
	Flows     int     `json:"flows"`
	P50       float64 `json:"p50_ns"`
	P99       float64 `json:"p99_ns"`
	Allocs    float64 `json:"allocations"` // of memory, for each decision
	Decisions int     `json:"decisions"`   // measured
}

const (
	batch         = 256
	queuedPerFlow = 4
	schedDepth    = 4
)

// decide measures one algorithm for about the time given.
func decide(ctx context.Context, algorithm string, flows int, lasting time.Duration) (Decision, error) {
	d := Decision{Algorithm: algorithm, Flows: flows}
	s, err := backlogged(algorithm, flows)
	if err != nil {
		return d, err
	}
	turn := 0
	one := func() error {
		r, ok := s.Next()
		if !ok {
			return fmt.Errorf("%s with %d flows: nothing to dispatch", algorithm, flows)
		}
		if err := s.Complete(r.Handle, r.Cost+int64(turn&4095)); err != nil {
			return err
		}
		turn++
		_, err := s.Submit(r.Flow, requestCost(turn), 0)
		return err
	}
	for range max(10*batch, 2*flows) { // every flow has been served, every slice has its size
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
		d.Allocs = 0 // the runtime's own, of which a batch has no part
	}
	d.P50, d.P99 = figures.Quantile(means, 0.5), figures.Quantile(means, 0.99)
	return d, nil
}

// backlogged makes a scheduler in which every flow has requests queued; weights
// and costs differ, so that tags do.
func backlogged(algorithm string, flows int) (sfq.Scheduler, error) {
	depth := schedDepth
	if algorithm == "sfq" {
		depth = 1
	}
	s, err := sfq.New(sfq.Config{Algorithm: algorithm, Depth: depth, MaxFlows: flows})
	if err != nil {
		return nil, err
	}
	for i := range flows {
		f, err := s.AddFlow(1 + i*37%100)
		if err != nil {
			return nil, err
		}
		for k := range queuedPerFlow {
			if _, err := s.Submit(f, requestCost(i+k), 0); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func requestCost(i int) int64 { return int64(64<<10 + i*7919%(1<<20)) }
