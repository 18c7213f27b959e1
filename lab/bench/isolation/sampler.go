package isolation

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// sampler reads counters and metrics from its start to its stop.
type sampler struct {
	disks   []diskSample
	scrapes []scrapeSample

	err    error
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// newSampler starts sampling; the daemon's metrics only in governed phases.
func newSampler(x *Experiment, t Turn) *sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampler{cancel: cancel}
	s.done.Go(func() {
		s.err = every(ctx, cmp.Or(x.SampleEvery, 250*time.Millisecond), func() error {
			d, err := x.Env.Counters()
			if err == nil {
				s.disks = append(s.disks, diskSample{time.Now(), d})
				x.Progress.throughput(s.disks)
			}
			return err
		})
	})
	if t.Phase.Governed {
		s.done.Go(func() {
			every(ctx, cmp.Or(x.ScrapeEvery, time.Second), func() error {
				// A lost scrape is a gap in a chart, not a failed run.
				if m, err := x.Env.Metrics(ctx); err == nil {
					s.scrapes = append(s.scrapes, scrapeSample{time.Now(), m})
				}
				return nil
			})
		})
	}
	return s
}

// stop takes a last sample of the counters, ends the sampling and returns its error. It can
// be called again.
func (s *sampler) stop() error {
	s.cancel()
	s.done.Wait()
	return s.err
}

// every calls f at once, then at each interval, and a last time when ctx ends.
func every(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f()
		}
	}
}
