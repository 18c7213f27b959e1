package decision

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"penstock/lab/experiment/figures"
	"penstock/node/config"
	"penstock/node/device"
)

// Quantum is the daemon's time for one quantum of a reader, without the device's time. In this
// time, the daemon receives the reader's progress, cuts and queues the next quantum, dispatches it
// to a worker, settles it and raises the mark. P50 and P99 are wall-clock times; each sample is the
// mean over a tenth of a second.
type Quantum struct {
	Flows  int     `json:"flows"` // one reader each
	P50    float64 `json:"p50_ns"`
	P99    float64 `json:"p99_ns"`
	Allocs float64 `json:"allocations"`
	Quanta int64   `json:"quanta"` // measured
}

// marks hands the loop's marks to the readers' goroutine.
type marks chan struct {
	stream uint32
	at     int64
}

func (m marks) Mark(stream uint32, position int64) {
	m <- struct {
		stream uint32
		at     int64
	}{stream, position}
}

// allQuanta is the number of quanta in all readers' files together, which is more than a
// measurement uses.
const allQuanta = 1 << 24

const sliceOfTime = 100 * time.Millisecond

// deviceLoop drives node/device's loop at full speed, with readers that are always at their mark.
func deviceLoop(ctx context.Context, flows int, lasting time.Duration) (Quantum, error) {
	q := Quantum{Flows: flows}
	cfg, err := (&config.Node{}).DeviceConfig("", false)
	if err != nil {
		return q, err
	}
	cfg.MaxFlows = max(cfg.MaxFlows, flows+2)
	if err := cfg.Validate(); err != nil {
		return q, err
	}
	l, err := device.New(device.Options{Name: "memory", Config: cfg, Mode: device.Enforce, Policy: equal,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return q, err
	}
	// The channel has room for all marks that the loop can send before a reader takes one: the loop
	// must not wait for its readers, which wait for the loop.
	said := make(marks, 1<<20)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	var quanta atomic.Int64
	streams := make([]*device.Stream, flows)
	// The files are no larger than necessary, because the loop keeps a number for each quantum of a
	// stream.
	to := cfg.Quantum * int64(allQuanta/flows)
	// The loop may send a mark before Open has returned, so the readers' goroutine starts after all
	// calls of Open.
	for i := range streams {
		streams[i] = l.Open(device.OpenRequest{Marker: said, ID: uint32(i), Flow: fmt.Sprintf("flow-%d", i),
			Block: &memoryFile{size: to, quanta: &quanta}, To: to})
	}
	go func() {
		for {
			select {
			case m := <-said:
				if m.at > 0 && m.at < to {
					l.Progress(streams[m.stream], m.at)
				}
			case <-ended:
				return
			}
		}
	}()
	return q, q.measure(ctx, &quanta, lasting)
}

func equal(string) device.Rule { return device.Rule{Weight: 1, Mode: device.Enforce} }

func (q *Quantum) measure(ctx context.Context, quanta *atomic.Int64, lasting time.Duration) error {
	tick := time.NewTicker(sliceOfTime)
	defer tick.Stop()
	wait := func() error {
		select {
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for range 2 { // until full speed
		if err := wait(); err != nil {
			return err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	first, from := quanta.Load(), time.Now()
	last, at := first, from
	var means []float64
	for len(means) < 3 || time.Since(from) < lasting {
		if err := wait(); err != nil {
			return err
		}
		n, now := quanta.Load(), time.Now()
		if n == last {
			return fmt.Errorf("the device loop is stalled with %d readers", q.Flows)
		}
		means = append(means, float64(now.Sub(at).Nanoseconds())/float64(n-last))
		last, at = n, now
	}
	runtime.ReadMemStats(&after)
	q.Quanta = last - first
	q.Allocs = float64(after.Mallocs-before.Mallocs) / float64(q.Quanta)
	q.P50, q.P99 = figures.Quantile(means, 0.5), figures.Quantile(means, 0.99)
	return nil
}
