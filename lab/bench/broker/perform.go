package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"penstock/broker/certs"
)

// bench is one run.
type bench struct {
	q       Request
	dir     string // certificates and the broker's log
	broker  *process
	sources []*source
	most    time.Duration // to wait for all nodes
}

// Perform measures.
func Perform(ctx context.Context, q Request) (res Result, err error) {
	res = Result{Request: q, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if err := q.Validate(); err != nil {
		return res, err
	}
	if q.Progress == nil {
		q.Progress = func(string, ...any) {}
	}
	if err := q.enoughFiles(); err != nil {
		return res, err
	}
	b := &bench{q: q, most: joinMost}
	if b.dir, err = os.MkdirTemp("", "penstock-bench-broker-"); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, b.end()) }()
	q.Progress("certificates of %d nodes", q.Nodes)
	names := []string{"broker"}
	for i := range q.Nodes {
		names = append(names, name(i))
	}
	if _, err := certs.Make(b.dir, names, nil); err != nil {
		return res, err
	}
	if b.broker, err = startBroker(ctx, q, b.dir, "127.0.0.1:0"); err != nil {
		return res, err
	}
	q.Progress("the nodes join")
	for first := 0; first < q.Nodes; first += perProcess {
		s, err := startSource(q, Load{Request: q, Address: b.broker.address, Certs: b.dir, First: first, Count: min(perProcess, q.Nodes-first)})
		if err != nil {
			return res, err
		}
		b.sources = append(b.sources, s)
	}
	began := time.Now()
	if _, err := b.allIn(ctx); err != nil {
		return res, err
	}
	q.Progress("all are in after %.1f s", time.Since(began).Seconds())
	if err := sleep(ctx, 10*q.Period); err != nil { // the heap of the handshakes goes
		return res, err
	}
	if err := b.steady(ctx, &res); err != nil {
		return res, err
	}
	for i := range q.Storms {
		q.Progress("storm %d of %d: the broker is killed, and started again", i+1, q.Storms)
		if err := b.storm(ctx, &res); err != nil {
			return res, err
		}
	}
	return res, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (b *bench) end() error {
	var errs []error
	for _, s := range b.sources {
		errs = append(errs, s.stop())
	}
	if b.broker != nil {
		errs = append(errs, b.broker.kill())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// looks asks every generator and adds up.
func (b *bench) looks() (sum Look, delay, stale *hdrhistogram.Histogram, err error) {
	delay, stale = newHistogram(), newHistogram()
	for _, s := range b.sources {
		l, err := s.look()
		if err != nil {
			return sum, nil, nil, err
		}
		sum.In += l.In
		sum.Answers += l.Answers
		sum.Sent += l.Sent
		sum.Got += l.Got
		sum.Entries += l.Entries
		sum.Lost += l.Lost
		sum.CPU += l.CPU
		if l.Mistake != "" {
			sum.Mistake = l.Mistake
		}
		for of, text := range map[*hdrhistogram.Histogram][]byte{delay: l.Delay, stale: l.Stale} {
			h, err := hdrhistogram.Decode(text)
			if err != nil {
				return sum, nil, nil, fmt.Errorf("a generator's histogram: %w", err)
			}
			of.Merge(h)
		}
	}
	return sum, delay, stale, nil
}

// allIn waits until every node has an answer, and says how many streams were lost meanwhile.
func (b *bench) allIn(ctx context.Context) (lost int64, err error) {
	var last Look
	for deadline := time.Now().Add(b.most); time.Now().Before(deadline); {
		if last, _, _, err = b.looks(); err != nil {
			return lost, err
		}
		lost += last.Lost
		if last.In == b.q.Nodes {
			return lost, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return lost, err
		}
	}
	return lost, fmt.Errorf("%d of %d nodes have a stream after %v (%s); the broker's log: %s", last.In, b.q.Nodes, b.most, last.Mistake, b.logEnd())
}

// allOut waits until no node has a stream.
func (b *bench) allOut(ctx context.Context) error {
	var last Look
	for deadline := time.Now().Add(b.most); time.Now().Before(deadline); {
		var err error
		if last, _, _, err = b.looks(); err != nil {
			return err
		}
		if last.In == 0 {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d of %d nodes have a stream %v after the broker was killed (%s); the broker's log: %s", last.In, b.q.Nodes, b.most, last.Mistake, b.logEnd())
}

func (b *bench) logEnd() string {
	text, err := os.ReadFile(b.broker.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-500):])
}

// steady measures the windows.
func (b *bench) steady(ctx context.Context, res *Result) error {
	length := b.q.Duration / Windows
	before, err := b.broker.scrape(ctx)
	if err != nil {
		return err
	}
	sum, _, _, err := b.looks()
	if err != nil {
		return err
	}
	cpu, at := sum.CPU, time.Now()
	profiled := make(chan error, 1)
	for i := range Windows {
		if b.q.Profile != "" && i == Windows-1 {
			go func() { profiled <- b.broker.profile(ctx, b.q.Profile, length) }()
		}
		b.q.Progress("window %d of %d", i+1, Windows)
		if err := sleep(ctx, length); err != nil {
			return err
		}
		now, err := b.broker.scrape(ctx)
		if err != nil {
			return err
		}
		sum, delay, stale, err := b.looks()
		if err != nil {
			return err
		}
		if sum.In != b.q.Nodes || sum.Lost > 0 {
			return fmt.Errorf("%d of %d nodes have a stream, %d were lost (%s): this is no steady load; take fewer nodes or a longer period. The broker's log: %s",
				sum.In, b.q.Nodes, sum.Lost, sum.Mistake, b.logEnd())
		}
		seconds := time.Since(at).Seconds()
		at = time.Now()
		grown := func(name string) float64 { return now[name] - before[name] }
		used := grown("process_cpu_seconds_total")
		res.Windows = append(res.Windows, Window{
			Seconds: seconds, Cores: used / seconds, Reports: float64(sum.Answers) / seconds, Entries: float64(sum.Entries) / seconds,
			PerReport: used / float64(max(1, sum.Answers)) * 1e6, Resident: now["process_resident_memory_bytes"], Heap: now["go_memstats_heap_inuse_bytes"],
			Collecting: grown("go_cpu_classes_gc_total_cpu_seconds_total") / used, Goroutines: now["go_goroutines"],
			In: float64(sum.Sent) / seconds, Out: float64(sum.Got) / seconds, Load: (sum.CPU - cpu).Seconds() / seconds,
			Booked: grown("penstock_broker_report_seconds_sum") / max(1, grown("penstock_broker_report_seconds_count")) * 1e6,
			Delay:  quantiles(delay), Stale: quantiles(stale),
		})
		before, cpu = now, sum.CPU
	}
	if b.q.Profile != "" {
		return <-profiled
	}
	return nil
}

// storm kills the broker, starts it again, and waits for everybody.
func (b *bench) storm(ctx context.Context, res *Result) error {
	address := b.broker.address
	if err := b.broker.kill(); err != nil {
		return err
	}
	res.Peak = max(res.Peak, b.broker.peak())
	if err := b.allOut(ctx); err != nil { // every node knows
		return err
	}
	if err := sleep(ctx, 5*time.Second); err != nil { // their waits are as long as they get
		return err
	}
	began := time.Now()
	var err error
	if b.broker, err = startBroker(ctx, b.q, b.dir, address); err != nil {
		return err
	}
	lost, err := b.allIn(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	now, err := b.broker.scrape(ctx)
	if err != nil {
		return err
	}
	res.Storms = append(res.Storms, Storm{Seconds: took, CPU: now["process_cpu_seconds_total"], Lost: lost, Resident: now["process_resident_memory_bytes"]})
	return sleep(ctx, 5*b.q.Period)
}
