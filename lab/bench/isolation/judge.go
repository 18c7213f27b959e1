package isolation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/lab/disk"
	"penstock/lab/experiment/figures"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
)

// Judge attributes the requests in the modelled disks' logs by the extents of files. A block
// file belongs to the job whose HDFS files have the block, by the NameNode, and an
// intermediate file to the application after which YARN named its folder. Without
// intermediate data it reads the extents once, after the window: no block file of either
// job is deleted before. Deleted files, and blocks of no file (journal, bitmaps), count as
// "other".
func (m *Machine) Judge(ctx context.Context, from, to time.Time, protected, aggressor *Job) (*Verdict, error) {
	if !m.setup().Disk.Modelled {
		return nil, nil
	}
	o := owners{blocks: map[string]string{}, applications: map[string]string{}}
	for owner, j := range map[string]*Job{ownerProtected: protected, ownerAggressor: aggressor} {
		if err := m.note(ctx, o, owner, j); err != nil {
			return nil, err
		}
	}
	seen := m.watchers
	if seen == nil {
		seen = newWatchers(m.Disks)
	}
	toMonotonic := disk.Monotonic() - time.Now().UnixNano()
	span := judge.Window{From: from.UnixNano() + toMonotonic, To: to.UnixNano() + toMonotonic}
	v := newVerdict()
	var millis []float64
	for i, d := range m.Disks {
		if err := seen.all[i].Look(); err != nil {
			return nil, err
		}
		records, err := judge.ReadLog(d)
		if err != nil {
			return nil, err
		}
		inside := slices.DeleteFunc(records, func(r disk.Record) bool { return r.Ended < span.From || r.Ended >= span.To })
		millis = append(millis, latencies(inside)...)
		v.add(seen.all[i].Judge(inside, o.of, judge.Windows(span, time.Second)...))
	}
	v.finish(millis)
	return v, nil
}

// note adds the blocks of the job's input and output, and its applications, to the owners.
func (m *Machine) note(ctx context.Context, o owners, owner string, j *Job) error {
	if j == nil {
		return nil
	}
	for _, path := range j.paths {
		if path == "" {
			continue
		}
		names, err := m.Hadoop.BlockNames(ctx, path)
		if err != nil {
			return err
		}
		for _, name := range names {
			o.blocks[name] = owner
		}
	}
	for _, id := range j.Applications {
		o.applications[id] = owner
	}
	return nil
}

// latencies are the milliseconds that each read and each write took.
func latencies(records []disk.Record) (millis []float64) {
	for _, r := range records {
		if r.Op == disk.Read || r.Op == disk.Write {
			millis = append(millis, float64(r.Ended-r.Submitted)/1e6)
		}
	}
	return millis
}

func newVerdict() *Verdict {
	return &Verdict{StepSeconds: 1, MBps: map[string][]float64{}, Bytes: map[string]int64{}, Read: map[string]int64{}, Written: map[string]int64{}}
}

// add adds what a disk's owners got in each second.
func (v *Verdict) add(accounts []judge.Account) {
	for i, a := range accounts {
		for owner, u := range a.Owners {
			if owner == judge.FileSystem {
				owner = ownerOther
			}
			if v.MBps[owner] == nil {
				v.MBps[owner] = make([]float64, len(accounts))
			}
			v.MBps[owner][i] += float64(u.Bytes()) / megabyte
			v.Read[owner] += u.ReadBytes
			v.Written[owner] += u.WriteBytes
			v.Bytes[owner] += u.Bytes()
		}
	}
}

// finish computes what needs all disks.
func (v *Verdict) finish(millis []float64) {
	for _, mbps := range v.MBps {
		for i := range mbps {
			mbps[i] = round3(mbps[i])
		}
	}
	if v.DeviceRequest = int64(len(millis)); len(millis) > 0 {
		v.LatencyP50MS, v.LatencyP99MS = round3(figures.Quantile(millis, 0.5)), round3(figures.Quantile(millis, 0.99))
	}
}

// owners attribute files by their paths: blocks by their number, intermediate data by the
// application after which YARN named its folder.
type owners struct{ blocks, applications map[string]string }

func (o owners) of(path string) string {
	if id := hadoop.BlockName(path); id != "" {
		return o.blocks[id]
	}
	for name := range strings.SplitSeq(path, "/") {
		if owner, ok := o.applications[name]; ok {
			return owner
		}
	}
	return ""
}

// lookEvery is the interval at which the extents of intermediate files are read: such files
// live for seconds, and get their extents when they are written out.
const lookEvery = time.Second

// watchers read the extents of every disk's files while jobs run.
type watchers struct {
	all    []*judge.Watcher
	cancel context.CancelFunc
	done   sync.WaitGroup
	errs   []error
}

func newWatchers(disks []*disk.Disk) *watchers {
	w := &watchers{errs: make([]error, len(disks))}
	for _, d := range disks {
		w.all = append(w.all, judge.NewWatcher(d.Mount()))
	}
	return w
}

// watch returns when every disk has been read once, with all directories.
func watch(disks []*disk.Disk) (*watchers, error) {
	w := newWatchers(disks)
	for _, one := range w.all {
		if err := one.Look(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	for i, one := range w.all {
		w.done.Go(func() { w.errs[i] = one.Run(ctx, lookEvery) })
	}
	return w, nil
}

// stop ends the watchers. They can be nil.
func (w *watchers) stop() error {
	if w == nil {
		return nil
	}
	w.cancel()
	w.done.Wait()
	return errors.Join(w.errs...)
}
