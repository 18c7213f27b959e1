package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	served "penstock/broker"
	"penstock/broker/certs"
	"penstock/lab/daemon"
	"penstock/lab/experiment"
	"penstock/lab/experiment/runs"
	"penstock/lab/ledger"
	"penstock/lab/ports"
)

const (
	startMost = time.Minute     // until the broker is ready
	joinMost  = 5 * time.Minute // until all nodes have joined
)

// bench is one run of the benchmark.
type bench struct {
	q                Request
	dir              string // certificates and the broker's logs
	book             *ledger.Ledger
	address, metrics string // of the broker
	broker           *daemon.Daemon
	starts           int // of the broker
	sources          []*source
	most             time.Duration // longest wait for all nodes
	last             reading
}

// Perform performs the windows and storms that the journal lacks. It returns the figures of all
// windows and storms that are finished, also after a failure.
func Perform(ctx context.Context, q Request) (res Result, err error) {
	if q.Progress == nil {
		q.Progress = func(string, ...any) {}
	}
	res = Result{Request: q, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if err := q.Validate(); err != nil {
		return res, err
	}
	if err := q.enoughFiles(); err != nil {
		return res, err
	}
	rounds, err := experiment.Rounds[setup, Round]{
		Name: "broker", Setup: setup{q, res.CPUs, res.Go}, Count: Windows + q.Storms, Resume: q.Resume, RunDir: q.RunDir, Say: q.Progress,
		Start: func(ctx context.Context, dir string) (func(context.Context, int) (Round, error), func() error, error) {
			b := &bench{q: q, dir: dir, most: joinMost}
			if err := b.start(ctx); err != nil {
				return nil, nil, errors.Join(err, b.end())
			}
			return b.round, b.end, nil
		},
	}.Perform(ctx)
	for _, r := range rounds {
		res.add(r)
	}
	return res, err
}

// start starts the broker and the nodes, and returns when all have joined and the load is steady.
func (b *bench) start(ctx context.Context) (err error) {
	if b.book, err = ledger.Open(b.dir); err != nil {
		return err
	}
	b.q.Progress("certificates of %d nodes", b.q.Nodes)
	names := []string{"broker"}
	for i := range b.q.Nodes {
		names = append(names, name(i))
	}
	if _, err := certs.Make(b.dir, names, nil); err != nil {
		return err
	}
	free, err := ports.Free(2)
	if err != nil {
		return err
	}
	b.address, b.metrics = fmt.Sprintf("127.0.0.1:%d", free[0]), fmt.Sprintf("127.0.0.1:%d", free[1])
	if err := b.startBroker(ctx); err != nil {
		return err
	}
	b.q.Progress("the nodes join")
	for first := 0; first < b.q.Nodes; first += perProcess {
		s, err := startSource(b.book, Load{Request: b.q, Address: b.address, Certs: b.dir, First: first, Count: min(perProcess, b.q.Nodes-first)})
		if err != nil {
			return err
		}
		b.sources = append(b.sources, s)
	}
	began := time.Now()
	if _, err := b.await(ctx, b.q.Nodes, "start"); err != nil {
		return err
	}
	b.q.Progress("all nodes have joined after %.1f s", time.Since(began).Seconds())
	if err := experiment.Pause(ctx, 10*b.q.Period); err != nil { // the heap of the handshakes is freed
		return err
	}
	b.last, err = b.read(ctx)
	return err
}

// startBroker starts the broker and returns when the broker is ready. A broker that is started
// again has the same addresses.
func (b *bench) startBroker(ctx context.Context) error {
	b.starts++
	in := func(name string) string { return filepath.Join(b.dir, name) }
	broker, err := daemon.Start(ctx, daemon.Options{Book: b.book, Binary: b.q.Binary, Base: in(fmt.Sprintf("broker%d", b.starts)),
		LogLevel: "info", Patience: startMost, Broker: []string{"--listen", b.address, "--metrics", b.metrics,
			"--connections-per-address", strconv.Itoa(served.MaxConnections),
			"--ca", in("ca.pem"), "--cert", in("broker.pem"), "--key", in("broker.key")}})
	if err != nil {
		return err
	}
	broker.Address = b.metrics // the address for nodes is ready
	b.broker = broker
	return nil
}

func (b *bench) end() error {
	var errs []error
	for _, s := range b.sources {
		errs = append(errs, s.stop())
	}
	if b.broker != nil && b.broker.Alive() {
		errs = append(errs, b.broker.Kill())
	}
	if b.book != nil {
		errs = append(errs, b.book.Close())
	}
	return errors.Join(errs...)
}

// looks asks every generator and returns the sum.
func (b *bench) looks() (sum Look, delay, stale *hdrhistogram.Histogram, err error) {
	delay, stale = newHistogram(), newHistogram()
	for _, s := range b.sources {
		l, err := s.look()
		if err != nil {
			return sum, nil, nil, err
		}
		sum.add(l)
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

// await waits until a number of nodes have an answer, and returns the number of streams that were
// lost meanwhile. since names the broker's last event, for errors.
func (b *bench) await(ctx context.Context, nodes int, since string) (lost int64, err error) {
	var last Look
	for deadline := time.Now().Add(b.most); time.Now().Before(deadline); {
		if last, _, _, err = b.looks(); err != nil {
			return lost, err
		}
		lost += last.Lost
		if last.In == nodes {
			return lost, nil
		}
		if err := experiment.Pause(ctx, 20*time.Millisecond); err != nil {
			return lost, err
		}
	}
	return lost, fmt.Errorf("%d of %d nodes have a stream %v after the broker's %s (%s); the broker's log: %s", last.In, b.q.Nodes, b.most, since, last.Mistake, b.logEnd())
}

func (b *bench) logEnd() string {
	text, err := os.ReadFile(b.broker.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-500):])
}

// round performs a window of the steady load or, after all windows, a storm.
func (b *bench) round(ctx context.Context, n int) (Round, error) {
	if n >= Windows {
		b.q.Progress("storm %d of %d: the broker is killed, and started again", n-Windows+1, b.q.Storms)
		return b.storm(ctx)
	}
	b.q.Progress("window %d of %d", n+1, Windows)
	w, err := b.window(ctx, b.q.Profile != "" && n == Windows-1)
	return Round{Window: &w}, err
}

// reading holds the figures of the broker and the nodes at one time.
type reading struct {
	at           time.Time
	broker       daemon.Metrics
	nodes        Look
	delay, stale *hdrhistogram.Histogram
}

func (b *bench) read(ctx context.Context) (r reading, err error) {
	if r.broker, err = b.broker.Scrape(ctx); err != nil {
		return r, err
	}
	r.nodes, r.delay, r.stale, err = b.looks()
	r.at = time.Now()
	return r, err
}

// window measures the steady load from the last reading until a new one.
func (b *bench) window(ctx context.Context, profile bool) (w Window, err error) {
	length := b.q.Duration / Windows
	profiled := make(chan error, 1)
	if profile {
		go func() { profiled <- b.profile(ctx, length) }()
	} else {
		profiled <- nil
	}
	if err := experiment.Pause(ctx, length); err != nil {
		return w, err
	}
	was := b.last
	now, err := b.read(ctx)
	if err != nil {
		return w, err
	}
	b.last = now
	sum := now.nodes
	if sum.In != b.q.Nodes || sum.Lost > 0 {
		return w, fmt.Errorf("%d of %d nodes have a stream, %d were lost (%s): the load is not steady: use fewer nodes or a longer period. The broker's log: %s",
			sum.In, b.q.Nodes, sum.Lost, sum.Mistake, b.logEnd())
	}
	seconds := now.at.Sub(was.at).Seconds()
	grown := func(name string) float64 { return now.broker.Value(name) - was.broker.Value(name) }
	used := grown("process_cpu_seconds_total")
	count, booked := now.broker.Observed("broker_report_seconds")
	countBefore, bookedBefore := was.broker.Observed("broker_report_seconds")
	return Window{
		Seconds: seconds, Cores: used / seconds, Reports: float64(sum.Answers) / seconds, Entries: float64(sum.Entries) / seconds,
		PerReport: used / float64(max(1, sum.Answers)) * 1e6, Collecting: min(1, grown("go_cpu_classes_gc_total_cpu_seconds_total")/max(used, 1e-9)), // a short window may use less than a tick
		Resident: now.broker.Value("process_resident_memory_bytes"), Heap: now.broker.Value("go_memstats_heap_inuse_bytes"),
		Goroutines: now.broker.Value("go_goroutines"), Booked: (booked - bookedBefore) / max(1, count-countBefore) * 1e6,
		In: float64(sum.Sent) / seconds, Out: float64(sum.Got) / seconds, Load: (sum.CPU - was.nodes.CPU).Seconds() / seconds,
		Delay: quantiles(now.delay), Stale: quantiles(now.stale),
	}, <-profiled
}

// profile writes a CPU profile of the broker.
func (b *bench) profile(ctx context.Context, length time.Duration) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", b.metrics, max(1, int(length.Seconds())))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return runs.WriteFile(b.q.Profile, func(w io.Writer) error {
		_, err := io.Copy(w, resp.Body)
		return err
	})
}

// storm kills the broker, starts it again, and waits for all nodes.
func (b *bench) storm(ctx context.Context) (r Round, err error) {
	if r.Peak, err = peakResident(b.broker.PID()); err != nil {
		return r, err
	}
	if err := b.broker.Kill(); err != nil {
		return r, err
	}
	if _, err := b.await(ctx, 0, "end"); err != nil { // every node has lost its stream
		return r, err
	}
	if err := experiment.Pause(ctx, 5*time.Second); err != nil { // the nodes' waits between attempts reach their maximum
		return r, err
	}
	began := time.Now()
	if err := b.startBroker(ctx); err != nil {
		return r, err
	}
	lost, err := b.await(ctx, b.q.Nodes, "start")
	if err != nil {
		return r, err
	}
	took := time.Since(began).Seconds()
	now, err := b.broker.Scrape(ctx)
	if err != nil {
		return r, err
	}
	r.Storm = &Storm{Seconds: took, CPU: now.Value("process_cpu_seconds_total"), Lost: lost, Resident: now.Value("process_resident_memory_bytes")}
	return r, experiment.Pause(ctx, 5*b.q.Period)
}

// peakResident returns the largest resident size, in bytes, that a living process had.
func peakResident(pid int) (bytes int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(peak, &bytes); err != nil {
		return 0, fmt.Errorf("largest resident size of process %d: %w", pid, err)
	}
	return bytes << 10, nil
}
