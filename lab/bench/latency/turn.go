package latency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"penstock/lab/client"
	"penstock/lab/contenders"
	"penstock/lab/experiment"
	"penstock/lab/experiment/figures"
	"penstock/lab/stand"
)

// Times describes the durations of reads, in milliseconds.
type Times struct {
	Reads  int     `json:"reads"`
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
	MaxMS  float64 `json:"max_ms"`
}

func newTimes(millis []float64) Times {
	if len(millis) == 0 {
		return Times{}
	}
	t := Times{Reads: len(millis), P50MS: round(figures.Median(millis)), P99MS: round(figures.Quantile(millis, 0.99)), MaxMS: round(figures.Quantile(millis, 1))}
	for _, v := range millis {
		t.MeanMS += v / float64(len(millis))
	}
	t.MeanMS = round(t.MeanMS)
	return t
}

func round(v float64) float64 { return math.Round(v*1e3) / 1e3 }

func (t Times) String() string { return fmt.Sprintf("mean %.1f ms, p99 %.1f ms", t.MeanMS, t.P99MS) }

// Turn is the result of one row in one run. Exactly one of its parts is not nil.
type Turn struct {
	Row    string  `json:"row"`
	Run    int     `json:"run"`
	Alone  *Alone  `json:"alone,omitempty"`
	Beside *Beside `json:"beside,omitempty"`

	HBaseAlone  *HBaseAlone  `json:"hbase_alone,omitempty"`
	HBaseBeside *HBaseBeside `json:"hbase_beside,omitempty"`
}

// Alone holds the durations of reads without other load.
type Alone struct {
	ColdNative   Times `json:"cold_native"`
	Cold         Times `json:"cold"`
	CachedNative Times `json:"cached_native"`
	Cached       Times `json:"cached"`
	// Parts of the reads under Penstock that did not wait, because the device was free.
	ColdPassed   float64 `json:"cold_passed"`
	CachedPassed float64 `json:"cached_passed"`
}

// Beside holds the durations of reads beside others, and what the disk moved, as a part of its rate.
type Beside struct {
	Times
	Idle   float64 `json:"idle"`   // before the reads
	Active float64 `json:"active"` // while they were made
	// By Penstock's own account, with a goal.
	Attained   float64 `json:"attained,omitempty"`
	SliceBytes int64   `json:"slice_bytes,omitempty"`
	DepthBound int     `json:"depth_bound,omitempty"`
}

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

func (t Turn) String() string {
	switch {
	case t.HBaseAlone != nil:
		return t.HBaseAlone.String()
	case t.HBaseBeside != nil:
		return t.HBaseBeside.String()
	}
	if a := t.Alone; a != nil {
		return fmt.Sprintf("cold: %v, natively %v; cached: %v, natively %v; %.3f and %.3f of the reads did not wait", a.Cold, a.ColdNative, a.Cached, a.CachedNative, a.ColdPassed, a.CachedPassed)
	}
	return fmt.Sprintf("%v; the disk moved %.3f of its rate, %.3f without the reads", t.Beside.Times, t.Beside.Active, t.Beside.Idle)
}

func (m *machine) turn(ctx context.Context, k experiment.RowTurn) (t Turn, err error) {
	t = Turn{Row: k.Row, Run: k.Run}
	switch row := rowOf(k.Row); {
	case row.HBase:
		err = m.hbase(ctx, row, &t)
	case row.Alone:
		t.Alone, err = m.alone(ctx, k.Run)
	default:
		t.Beside, err = m.beside(ctx, row)
	}
	return t, err
}

// read reads at random places of a file for the given time, and returns the durations of the reads in milliseconds.
func (m *machine) read(ctx context.Context, path string, bytes int64, every int, length time.Duration) (millis []float64, err error) {
	var mu sync.Mutex
	var failed error
	ended := make(chan struct{})
	id := m.Clients.Do("probe-read", fmt.Sprintf("path=%s attempt=%s bytes=%d length=%d seed=%d every=%d", path, client.Attempt(reader), m.setup.ReadBytes, bytes, seed, every),
		func(event, value string) {
			mu.Lock()
			defer mu.Unlock()
			switch event {
			case "read":
				_, took, e := client.Timed(value)
				failed = errors.Join(failed, e)
				millis = append(millis, float64(took)/1e6)
			case "trouble":
				failed = errors.Join(failed, errors.New(value))
			case "error":
				failed = errors.Join(failed, errors.New(value))
				close(ended)
			case "done":
				close(ended)
			}
		})
	defer m.Clients.Forget(id)
	err = experiment.Pause(ctx, length)
	m.Clients.Limit(id, 0)
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	mu.Lock()
	defer mu.Unlock()
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return millis, nil
}

// alone measures reads without other load, in segments, natively and under Penstock in turn.
func (m *machine) alone(ctx context.Context, run int) (_ *Alone, err error) {
	if err := m.weigh(ctx, Row{Goal: true}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.limit(false)) }()
	var cold, cached [ways][]float64
	var coldPassed, cachedPassed int64
	for segment := range m.setup.Segments {
		for i := range ways {
			way := (i + segment + run) % ways
			if err := errors.Join(m.become(ctx, way), m.Disks[0].Forget(), m.limit(true)); err != nil {
				return nil, err
			}
			if err := m.segment(ctx, coldFile, m.setup.FileBytes, m.setup.AloneMS, &cold[way], &coldPassed); err != nil {
				return nil, err
			}
			if err := errors.Join(m.limit(false), m.cache(ctx)); err != nil {
				return nil, err
			}
			if err := m.segment(ctx, cachedFile, m.setup.CachedBytes, 2, &cached[way], &cachedPassed); err != nil {
				return nil, err
			}
		}
	}
	return &Alone{newTimes(cold[native]), newTimes(cold[governed]), newTimes(cached[native]), newTimes(cached[governed]),
		part(coldPassed, len(cold[governed])), part(cachedPassed, len(cached[governed]))}, nil
}

// segment performs the reads of a segment. It adds their durations in milliseconds to millis, and the number of those that did
// not wait to passed.
func (m *machine) segment(ctx context.Context, path string, bytes int64, every int, millis *[]float64, passed *int64) error {
	before, err1 := m.passed(ctx)
	more, err2 := m.read(ctx, path, bytes, every, seconds(m.setup.SegmentS))
	after, err3 := m.passed(ctx)
	*millis = append(*millis, more...)
	*passed += after - before
	return errors.Join(err1, err2, err3)
}

func part(n int64, of int) float64 { return round(float64(n) / float64(max(1, of))) }

// passed returns the number of small reads so far that did not wait on the governed disk.
func (m *machine) passed(ctx context.Context) (int64, error) {
	doc, err := m.Status(ctx, 0)
	if err != nil {
		return 0, err
	}
	name := stand.KernelName(m.Disks[0])
	for _, d := range doc.Devices {
		if d.Name == name {
			return d.PassingReads, nil
		}
	}
	return 0, nil // no agent has used the disk yet
}

// beside measures reads beside others.
func (m *machine) beside(ctx context.Context, row Row) (b *Beside, err error) {
	way := governed
	if row.Native {
		way = native
	}
	if err := errors.Join(m.weigh(ctx, row), m.become(ctx, way), m.Disks[0].Forget(), m.limit(true)); err != nil {
		return nil, err
	}
	stop, err := m.aggress(ctx, row)
	defer func() { err = errors.Join(err, m.relieve(ctx, stop)) }()
	if err != nil {
		return nil, err
	}
	if err := experiment.Pause(ctx, seconds(m.setup.SettlingS)); err != nil {
		return nil, err
	}
	b = &Beside{}
	measured := func(during func() error) (part float64, err error) {
		before, err1 := m.moved()
		begun := time.Now()
		err2 := during()
		passed := time.Since(begun)
		after, err3 := m.moved()
		return round(float64(after-before) / passed.Seconds() / float64(m.setup.Rate)), errors.Join(err1, err2, err3)
	}
	if b.Idle, err = measured(func() error { return experiment.Pause(ctx, seconds(m.setup.IdleS)) }); err != nil {
		return nil, err
	}
	b.Active, err = measured(func() error {
		millis, err := m.read(ctx, coldFile, m.setup.FileBytes, m.setup.EveryMS, seconds(m.setup.ActiveS))
		b.Times = newTimes(millis)
		return err
	})
	if err != nil || !row.Goal {
		return b, err
	}
	doc, err := m.Status(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			if f.Name == contenders.Flow(reader) && f.Latency.GoalNS > 0 {
				b.Attained, b.SliceBytes, b.DepthBound = round(f.Latency.Attained), f.Latency.SliceBytes, f.Latency.DepthBound
				return b, m.Hadoop.Check()
			}
		}
	}
	return nil, fmt.Errorf("the daemon reports no latency goal of %s, which should be in force", contenders.Flow(reader))
}
