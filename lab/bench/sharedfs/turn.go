package sharedfs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/proc"
	"penstock/lab/stand"
)

// Turn is the result of one row in one run.
type Turn struct {
	Row     string   `json:"row"`
	Run     int      `json:"run"`
	Jobs    []Job    `json:"jobs,omitempty"`
	Contest *Contest `json:"contest,omitempty"` // of a row with storage clients
}

// Job is the result of a TeraSort of one size, or of PageRank, whose iterations are added up.
type Job struct {
	SizeMiB   int     `json:"size_mib"`
	RunS      float64 `json:"run_s"` // by the ResourceManager
	Maps      int64   `json:"maps"`
	LocalMaps int64   `json:"local_maps"`
	InPlace   int64   `json:"map_outputs_in_place"`
	Fallbacks int64   `json:"fallbacks"`
	Spilled   int64   `json:"spilled_records"`
	// During the job:
	CPU        float64 `json:"cpu"`         // busy part of the machine's CPUs, 0 to 1
	ReadMB     float64 `json:"read_mb"`     // from all disks
	WrittenMB  float64 `json:"written_mb"`  // to all disks, after all has been written
	NetworkMB  float64 `json:"network_mb"`  // received by the hosts from others
	ShuffledMB float64 `json:"shuffled_mb"` // sent by NodeManagers
	// Only in rows in which YARN has a part of the machine:
	Memory []MemorySample `json:"memory,omitempty"`
	Killed int64          `json:"killed,omitempty"` // processes that the kernel has killed because the memory was used up
}

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

func (t Turn) String() string {
	if t.Contest != nil {
		return t.Contest.String()
	}
	var all []string
	for _, j := range t.Jobs {
		all = append(all, fmt.Sprintf("%d MiB %.1f s (%d of %d maps local, CPU %.2f, disks %.0f MB read and %.0f written, network %.0f MB, shuffle %.0f MB)",
			j.SizeMiB, j.RunS, j.LocalMaps, j.Maps, j.CPU, j.ReadMB, j.WrittenMB, j.NetworkMB, j.ShuffledMB))
	}
	return strings.Join(all, "; ")
}

// turn measures all sizes of a row on a machine of its own.
func (q Request) turn(ctx context.Context, k experiment.RowTurn, dir string) (t Turn, err error) {
	t = Turn{Row: k.Row, Run: k.Run}
	for _, r := range rows() {
		if r.String() != k.Row {
			continue
		}
		if r.beside != "" {
			c, err := q.contest(ctx, r, dir)
			return Turn{Row: k.Row, Run: k.Run, Contest: &c}, err
		}
		m, err := start(ctx, q, r, dir)
		if err != nil {
			return Turn{}, err
		}
		defer func() {
			err = errors.Join(err, m.Down(), removeContainerLogs(dir))
		}()
		do := m.sort
		if r.rank {
			do = m.rank
		}
		for _, size := range r.sizes(q.Setup) {
			j, err := do(ctx, size)
			if err != nil {
				return Turn{}, fmt.Errorf("%s of %d MiB: %w", r.job(), size, err)
			}
			t.Jobs = append(t.Jobs, j)
		}
		return t, nil
	}
	return Turn{}, fmt.Errorf("no row %q", k.Row)
}

// removeContainerLogs removes the logs of YARN's containers from the folder of a run. They are large.
func removeContainerLogs(dir string) error {
	return os.RemoveAll(filepath.Join(dir, "hadoop", "logs", "containers"))
}

// sort writes rows, sorts them on cold disks and checks them.
func (m *machine) sort(ctx context.Context, size int) (Job, error) {
	rows := int64(size) * mib / hadoop.RowBytes
	_, _, err := m.run(ctx, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Maps: m.setup.Files, Output: "/rows", Queue: queue})
	if err != nil {
		return Job{}, err
	}
	written, err := m.check(ctx, "rows", rows, hadoop.RowCheck{InOrder: true})
	if err != nil {
		return Job{}, err
	}
	j, err := m.measure(ctx, size, hadoop.Job{Kind: hadoop.TeraSort, Input: "/rows", Output: "/sorted", Reduces: m.setup.Reduces, Queue: queue})
	if err != nil {
		return Job{}, err
	}
	sorted, err := m.check(ctx, "sorted", rows, hadoop.RowCheck{Sorted: true})
	if err == nil && sorted != written {
		err = fmt.Errorf("the sorted rows have the checksum %s, those before %s", sorted, written)
	}
	if err != nil {
		return Job{}, err
	}
	return j, m.remove(ctx, "rows", "sorted")
}

// measure runs jobs one after the other on cold disks, and returns what they have taken together.
func (m *machine) measure(ctx context.Context, size int, jobs ...hadoop.Job) (j Job, err error) {
	if err := errors.Join(ledger.DropCaches(), m.limit(true)); err != nil {
		return Job{}, err
	}
	defer func() { err = errors.Join(err, m.limit(false)) }()
	before, err := m.read(ctx)
	if err != nil {
		return Job{}, err
	}
	j.SizeMiB = size
	samples := sample(m.group)
	for i, job := range jobs {
		if len(jobs) > 1 {
			m.Spec.Progress("%s, iteration %d of %d", job.Kind, i+1, len(jobs))
		}
		if err = m.add(ctx, &j, job); err != nil {
			break
		}
	}
	if err := samples.end(&j, err); err != nil {
		return Job{}, err
	}
	cpu, err := proc.MachineCPUTime()
	if err != nil {
		return Job{}, err
	}
	passed := time.Since(before.at)
	if _, err := m.hosts[0].Run(ctx, "sync"); err != nil {
		return Job{}, err
	}
	after, err := m.read(ctx)
	if err != nil {
		return Job{}, err
	}
	mb := func(after, before float64) float64 { return round((after - before) / megabyte) }
	j.RunS, j.CPU = round(j.RunS), round((cpu-before.cpu).Seconds()/passed.Seconds()/float64(m.setup.Machine.CPUs))
	j.ReadMB, j.WrittenMB, j.NetworkMB = mb(after.read, before.read), mb(after.written, before.written), mb(after.received, before.received)
	j.ShuffledMB = mb(after.shuffled, before.shuffled)
	return j, nil
}

// add runs a job and adds its time and counters to a result.
func (m *machine) add(ctx context.Context, j *Job, job hadoop.Job) error {
	status, counters, err := m.run(ctx, job)
	if err != nil {
		return err
	}
	j.RunS += status.Elapsed.Seconds()
	for name, into := range map[string]*int64{"Launched map tasks": &j.Maps, "Data-local map tasks": &j.LocalMaps, "MAP_OUTPUTS_IN_PLACE": &j.InPlace,
		"FALLBACKS": &j.Fallbacks, "Spilled Records": &j.Spilled} {
		*into += counters[name]
	}
	return nil
}

// run runs a job to its end.
func (m *machine) run(ctx context.Context, job hadoop.Job) (hadoop.Status, map[string]int64, error) {
	app, err := m.Hadoop.Submit(ctx, job)
	if err != nil {
		return hadoop.Status{}, nil, err
	}
	status, err := app.Wait(ctx)
	if err != nil {
		return status, nil, err
	}
	counters, err := app.Counters(ctx)
	return status, counters, err
}

// check reads the rows of a folder on the last host, and returns their checksum.
func (m *machine) check(ctx context.Context, dir string, rows int64, check hadoop.RowCheck) (hadoop.Checksum128, error) {
	err := m.cat(ctx, dir, check.Read)
	if err == nil && check.Rows != rows {
		err = fmt.Errorf("%s: there are %d rows, expected %d", dir, check.Rows, rows)
	}
	return check.Sum, err
}

// reading holds counters at an instant, in bytes.
type reading struct {
	at            time.Time
	cpu           time.Duration
	read, written float64
	received      float64
	shuffled      float64
}

func (m *machine) read(ctx context.Context) (r reading, err error) {
	disks, err := activityOf(m.Disks)
	if err != nil {
		return r, err
	}
	r.read, r.written = disks.read, disks.written
	for i := range m.hosts {
		var bean struct{ ShuffleOutputBytes float64 }
		if err := hadoop.Bean(ctx, m.Hadoop.NodeManagerURL(i), "Hadoop:service=NodeManager,name=ShuffleMetrics", &bean); err != nil {
			return r, err
		}
		r.shuffled += bean.ShuffleOutputBytes
		err := m.Network.Machines[i].Do(func() error {
			// This thread is in the host's network, and /proc/thread-self/net shows it.
			fs, err := procfs.NewFS("/proc/thread-self")
			if err != nil {
				return err
			}
			dev, err := fs.NetDev()
			r.received += float64(dev["eth0"].RxBytes)
			return err
		})
		if err != nil {
			return r, err
		}
	}
	if r.cpu, err = proc.MachineCPUTime(); err != nil {
		return r, err
	}
	r.at = time.Now()
	return r, nil
}

// activity is what some disks have done since they were started.
type activity struct {
	busy          time.Duration // sum over the disks
	read, written float64       // bytes
}

func activityOf(disks []*disk.Disk) (a activity, err error) {
	blocks, err := blockdevice.NewDefaultFS()
	if err != nil {
		return a, err
	}
	const sector = 512
	for _, d := range disks {
		s, _, err := blocks.SysBlockDeviceStat(stand.KernelName(d))
		if err != nil {
			return a, err
		}
		a.busy += time.Duration(s.IOsTotalTicks) * time.Millisecond
		a.read += float64(s.ReadSectors) * sector
		a.written += float64(s.WriteSectors) * sector
	}
	return a, nil
}

func round(v float64) float64 { return math.Round(v*1e3) / 1e3 }
