package latency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/hbase"
)

// serviceFlow is the flow of HBase's RegionServer.
const serviceFlow = "service:hbase"

// HBaseAlone holds the durations of HBase's operations without other load.
type HBaseAlone struct {
	ColdNative   Times   `json:"cold_native"`
	Cold         Times   `json:"cold"`
	CachedNative Times   `json:"cached_native"`
	Cached       Times   `json:"cached"`
	WritesNative Times   `json:"writes_native"`
	Writes       Times   `json:"writes"`
	ScanSNative  float64 `json:"scan_s_native"` // duration of a scan of all rows, in seconds
	ScanS        float64 `json:"scan_s"`
}

func (a HBaseAlone) String() string {
	return fmt.Sprintf("cold: %v, natively %v; cached: %v, natively %v; writes: %v, natively %v; scan: %.1f s, natively %.1f s",
		a.Cold, a.ColdNative, a.Cached, a.CachedNative, a.Writes, a.WritesNative, a.ScanS, a.ScanSNative)
}

// HBaseBeside holds the durations of HBase's operations beside TeraGen.
type HBaseBeside struct {
	Reads  Times `json:"reads"`
	Writes Times `json:"writes"`
}

func (b HBaseBeside) String() string { return fmt.Sprintf("reads: %v; writes: %v", b.Reads, b.Writes) }

// serve makes the DataNode serve in one of the two ways, and starts HBase on it. The first call writes the table.
// The caller stops HBase before it calls serve again, because HBase's log does not survive the DataNode's restart.
func (m *machine) serve(ctx context.Context, way int) (*hbase.HBase, error) {
	if err := errors.Join(m.limit(false), m.become(ctx, way)); err != nil {
		return nil, err
	}
	h, err := m.startHBase(ctx)
	if err != nil || m.filled {
		return h, err
	}
	m.Spec.Progress("writing the table, %d rows", m.setup.HBaseRows)
	_, err = h.Evaluate(ctx, hbase.Evaluation{Operation: hbase.RandomWrite, Rows: m.setup.HBaseRows, Options: []string{"--presplit=4"}})
	// A RegionServer that is stopped writes its memory to HDFS. So all rows are in files.
	if err = errors.Join(err, h.Stop()); err != nil {
		return nil, err
	}
	m.filled = true
	return m.startHBase(ctx)
}

func (m *machine) startHBase(ctx context.Context) (*hbase.HBase, error) {
	lib, err := hbase.Fetch(ctx, m.Spec.Cache, m.Spec.Progress)
	if err != nil {
		return nil, err
	}
	return hbase.Start(ctx, hbase.Config{RunDir: m.Path("hbase"), Lib: lib, Cluster: m.Hadoop, ZooKeeper: m.ZooKeeper.Address, Progress: m.Spec.Progress,
		Settings: map[string]string{"hfile.block.cache.size": "0.05"}}) // of the heap: 25 MB for an index, and for a tenth of the rows
}

// reads performs n random reads of one client, one after another.
func (m *machine) reads(ctx context.Context, h *hbase.HBase, n int) (Times, error) {
	part := float64(n) / float64(m.setup.HBaseRows)
	return times(h.Evaluate(ctx, hbase.Evaluation{Operation: hbase.RandomRead, Rows: m.setup.HBaseRows, Options: []string{fmt.Sprintf("--sampleRate=%g", part)}}))
}

// writes performs random writes of one client, one after another. Each one waits for HBase's log (hflush).
func (m *machine) writes(ctx context.Context, h *hbase.HBase) (Times, error) {
	return times(h.Evaluate(ctx, hbase.Evaluation{Operation: hbase.RandomWrite, Rows: m.setup.HBaseWrites, Options: []string{"--autoFlush=true"}}))
}

func times(all []hbase.Times, err error) (Times, error) {
	if err != nil {
		return Times{}, err
	}
	ms := func(d time.Duration) float64 { return round(d.Seconds() * 1e3) }
	t := all[0]
	return Times{Reads: int(t.Count), MeanMS: ms(t.Mean), P50MS: ms(t.P50), P99MS: ms(t.P99), MaxMS: ms(t.Max)}, nil
}

// hbase measures a row with HBase. The daemon must find out by itself which process is the RegionServer, so it verifies names.
func (m *machine) hbase(ctx context.Context, row Row, t *Turn) (err error) {
	if err := m.trust(ctx, false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.trust(ctx, true)) }()
	if err := m.SetWeights(ctx, 0, m.hbaseWeights(row)); err != nil {
		return err
	}
	if row.Alone {
		t.HBaseAlone, err = m.hbaseAlone(ctx, t.Run)
	} else {
		t.HBaseBeside, err = m.hbaseBeside(ctx, row)
	}
	return err
}

// hbaseAlone measures HBase without other load, natively and under Penstock.
func (m *machine) hbaseAlone(ctx context.Context, run int) (_ *HBaseAlone, err error) {
	a := &HBaseAlone{}
	for i := range ways {
		way := (i + run) % ways
		cold, cached, writes, scan := &a.ColdNative, &a.CachedNative, &a.WritesNative, &a.ScanSNative
		if way == governed {
			cold, cached, writes, scan = &a.Cold, &a.Cached, &a.Writes, &a.ScanS
		}
		if err := m.hbaseIn(ctx, way, func(h *hbase.HBase) (err error) {
			if *cold, err = m.coldReads(ctx, h); err != nil {
				return err
			}
			if *writes, err = m.writes(ctx, h); err != nil {
				return err
			}
			if err := m.Disks[0].Forget(); err != nil {
				return err
			}
			begin := time.Now()
			if _, err = h.Evaluate(ctx, hbase.Evaluation{Operation: hbase.Scan, Rows: m.setup.HBaseRows}); err != nil {
				return err
			}
			*scan = round(time.Since(begin).Seconds())
			// The scan has brought the files to the page cache.
			*cached, err = m.reads(ctx, h, 5*m.setup.HBaseReads)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// coldReads measures reads from the disk. Before, some reads open the files and load their indexes.
func (m *machine) coldReads(ctx context.Context, h *hbase.HBase) (Times, error) {
	if _, err := m.reads(ctx, h, m.setup.HBaseReads/5); err != nil {
		return Times{}, err
	}
	if err := m.Disks[0].Forget(); err != nil {
		return Times{}, err
	}
	return m.reads(ctx, h, m.setup.HBaseReads)
}

// hbaseIn runs during with an HBase whose DataNode serves in the given way, on a disk that has its model's speed.
func (m *machine) hbaseIn(ctx context.Context, way int, during func(*hbase.HBase) error) (err error) {
	h, err := m.serve(ctx, way)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.limit(false), h.Stop()) }()
	if err := errors.Join(m.Disks[0].Forget(), m.limit(true)); err != nil {
		return err
	}
	return during(h)
}

// hbaseBeside measures HBase beside TeraGen.
func (m *machine) hbaseBeside(ctx context.Context, row Row) (*HBaseBeside, error) {
	way := governed
	if row.Native {
		way = native
	}
	b := &HBaseBeside{}
	err := m.hbaseIn(ctx, way, func(h *hbase.HBase) (err error) {
		if _, err := m.coldReads(ctx, h); err != nil {
			return err
		}
		stop, err := m.aggress(ctx, row)
		defer func() { err = errors.Join(err, m.relieve(ctx, stop)) }()
		if err != nil {
			return err
		}
		if err := experiment.Pause(ctx, seconds(m.setup.SettlingS)); err != nil {
			return err
		}
		if b.Reads, err = m.reads(ctx, h, m.setup.HBaseReads); err != nil {
			return err
		}
		b.Writes, err = m.writes(ctx, h)
		return err
	})
	return b, err
}

// hbaseWeights returns the weights file of a row with HBase: the RegionServer is a service with a name.
func (m *machine) hbaseWeights(row Row) string {
	goal := ""
	if row.Goal {
		goal = fmt.Sprintf(", latency: %dms", m.setup.GoalMS)
	}
	return fmt.Sprintf("default: 1\nservices:\n  - {name: hbase, user: \"%d\", program: HRegionServer}\nrules:\n  - {flow: %q, weight: %d%s}\n",
		os.Getuid(), serviceFlow, m.setup.Weight, goal)
}
