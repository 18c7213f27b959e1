package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"penstock/lab/disk"
	"penstock/lab/ledger"
	"penstock/lab/proc"
	"penstock/lab/spark"
	"penstock/lab/stand"
)

// Options hold the paths of the real environment. They do not change a figure.
type Options struct {
	RunDir   string // private folder of this run, absolute
	CacheDir string // downloads; kept between runs
	AgentJar string // penstock-agent.jar
	Binary   string // penstock itself, for the node daemon
	Profile  string // profile of the disks, absolute; "" none
	Progress *Progress
}

// Machine is the real environment: a stand with modelled disks and a real Hadoop on them, and the
// penstock node daemon in governed phases.
type Machine struct {
	*stand.Stand
	options Options
	setup   Setup
	daemon  *governor
	capped  int // MB/s of each DataNode's throttler; 0 is no cap

	spark    *spark.Spark // nil without TPC-H
	groups   groups
	watchers *watchers
	sources  map[string]source // by folder of HDFS
	jobSeq   int
}

// Probe adds the machine's properties and restrictions to a set-up.
func Probe(s Setup) Setup {
	m := proc.ThisMachine()
	s.Machine.KernelRelease, s.Machine.CPUs, s.Machine.MemoryBytes = m.KernelRelease, len(m.CPUs), m.MemoryBytes
	if reason := disk.Available(); reason != nil {
		s.Disk.Modelled = false
		s.Notes = append(s.Notes, "No modelled disks: "+reason.Error()+". All data is on the folder's own disk: "+
			"all phases have the same scheduler, the floor shares the disk with the others, and the figures are not valid.")
	}
	if os.Geteuid() != 0 {
		s.Notes = append(s.Notes, "Not root: the kernel's dirty limits are as found and caches are not dropped between runs.")
	}
	if s.Machine.CPUs < 2 {
		s.Notes = append(s.Notes, "One CPU only: both jobs share it, so slowdowns include CPU contention.")
		s.Aggressor.CPU = s.Protected.CPU
	}
	return s
}

// StartMachine starts disks and cluster and writes the inputs. After an error, and when ctx
// ends, it restores the machine.
func StartMachine(ctx context.Context, setup Setup, phases []Phase, o Options) (_ *Machine, err error) {
	m := &Machine{options: o, setup: setup, sources: map[string]source{}}
	if err := m.groupsPossible(phases); err != nil {
		return nil, err
	}
	o.Progress.Printf("starting %d modelled disks and Hadoop %s in %s", 2*setup.Disk.DataNodes, setup.Hadoop.Version, o.RunDir)
	if m.Stand, err = stand.Up(ctx, m.spec()); err != nil {
		return nil, err
	}
	if err = m.redirect(); err == nil {
		err = m.prepare(ctx, phases)
	}
	if err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// spec describes the stand. Its first disks are the contested ones, one for each DataNode; then
// come the other ones.
func (m *Machine) spec() stand.Spec {
	o, d := m.options, m.setup.Disk
	spec := stand.Spec{Dir: o.RunDir, Binary: o.Binary, AgentJar: o.AgentJar, Cache: o.CacheDir, Progress: o.Progress.Printf,
		Sysctls: m.setup.dirtyLimits(), DisksOptional: true, Hadoop: m.cluster}
	for _, kind := range []string{"disk", "other"} {
		for i := range d.DataNodes {
			spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("%s%d", kind, i), Size: d.SizeBytes,
				Scheduler: m.setup.Kernel.Scheduler, RequestKB: d.RequestKB})
		}
	}
	return spec
}

func (m *Machine) contested() []*disk.Disk { return m.Disks[:m.setup.Disk.DataNodes] }

// change adopts another rate of the disks and size of the jobs.
func (m *Machine) change(ctx context.Context, setup Setup, phases []Phase) error {
	m.setup = setup
	if err := m.groupsPossible(phases); err != nil {
		return err
	}
	if err := m.SetSysctls(ctx, setup.dirtyLimits()...); err != nil {
		return err
	}
	return m.prepare(ctx, phases)
}

// dirtyLimits are the kernel's in native phases.
func (s Setup) dirtyLimits() []stand.Sysctl {
	return append([]stand.Sysctl{{Name: "vm/dirty_bytes", Value: strconv.FormatInt(s.Kernel.DirtyBytes, 10)}},
		background(s.Kernel.DirtyBackgroundBytes, s.Kernel.DirtyExpireCentisecs)...)
}

func background(bytes, centisecs int64) []stand.Sysctl {
	return []stand.Sysctl{{Name: "vm/dirty_background_bytes", Value: strconv.FormatInt(bytes, 10)},
		{Name: "vm/dirty_expire_centisecs", Value: strconv.FormatInt(centisecs, 10)}}
}

// tuneBackground sets the point from which the kernel writes dirty pages out in a phase, and
// the part of it that is guaranteed to each contested disk.
func (m *Machine) tuneBackground(ctx context.Context, p Phase) error {
	bytes, age, percent := m.setup.Kernel.DirtyBackgroundBytes, m.setup.Kernel.DirtyExpireCentisecs, 0
	if own := m.setup.Penstock; p.Governed && own.DirtyBackgroundBytes > 0 {
		bytes, age, percent = own.DirtyBackgroundBytes, own.DirtyExpireCentisecs, own.DirtySharePercent
	}
	if m.setup.Disk.Modelled {
		for _, d := range m.contested() {
			if err := d.SetDirtyShare(percent); err != nil {
				return err
			}
		}
	}
	return m.SetSysctls(ctx, background(bytes, age)...)
}

// Limit switches the modelled rate on or off on every disk. Off also lifts the DataNodes' caps.
func (m *Machine) Limit(ctx context.Context, on bool) error {
	if !on {
		if err := m.throttle(ctx, 0); err != nil {
			return err
		}
	}
	if !m.setup.Disk.Modelled {
		return nil
	}
	var model disk.Model
	if on {
		model = m.setup.Disk.model()
	}
	return m.SetModel(model)
}

// throttle sets the cap of each DataNode's own throttler, in MB/s; 0 means no cap. The throttler
// distinguishes directions but not applications: the cap is for the aggressor's direction, and
// applies to the protected job's I/O in it too. TeraGen writes, TeraValidate and WordCount read,
// TeraSort first reads and then writes.
func (m *Machine) throttle(ctx context.Context, mbps int) error {
	if mbps == m.capped {
		return nil
	}
	rate := ""
	if mbps > 0 {
		rate = strconv.Itoa(mbps * megabyte)
	}
	settings := map[string]string{}
	if writes, _ := m.setup.aggressor().directions(); writes {
		settings["dfs.datanode.data.write.bandwidthPerSec"] = rate
	}
	if _, reads := m.setup.aggressor().directions(); reads {
		settings["dfs.datanode.data.read.bandwidthPerSec"] = rate
	}
	if err := m.Hadoop.Reconfigure(ctx, settings); err != nil {
		return fmt.Errorf("cap the DataNodes at %d MB/s: %w", mbps, err)
	}
	m.capped = mbps
	return nil
}

// Arrange sets the phase's kernel scheduler and caps and starts its daemon.
func (m *Machine) Arrange(ctx context.Context, p Phase) error {
	kernel := p.Kernel
	if kernel == "" {
		kernel = m.setup.Kernel.Scheduler
	}
	if m.setup.Disk.Modelled {
		for _, d := range m.Disks {
			if err := d.SetScheduler(kernel); err != nil {
				return err
			}
		}
	}
	if err := m.Hadoop.Check(); err != nil {
		return err
	}
	if err := m.throttle(ctx, p.Cap); err != nil {
		return err
	}
	if err := m.makeGroups(p); err != nil {
		return err
	}
	if err := m.tuneBackground(ctx, p); err != nil {
		return err
	}
	if !p.Governed {
		return nil
	}
	var err error
	m.daemon, err = startGovernor(ctx, m, p)
	return err
}

// DropCaches writes dirty pages back and empties the page cache: each run reads its input from
// the disks. From then on intermediate files are watched.
func (m *Machine) DropCaches(context.Context) error {
	if os.Geteuid() != 0 {
		unix.Sync()
		return nil // in the setup's notes
	}
	if err := ledger.DropCaches(); err != nil || !m.setup.Intermediate || !m.setup.Disk.Modelled {
		return err
	}
	var err error
	m.watchers, err = watch(m.Disks)
	return err
}

// Release ends the daemon, whose log stays in the run folder, and removes the cgroups.
func (m *Machine) Release(context.Context) error {
	errs := []error{m.watchers.stop(), m.groups.remove()}
	m.watchers, m.groups = nil, nil
	if m.daemon != nil {
		errs = append(errs, m.daemon.stop())
	}
	m.daemon = nil
	return errors.Join(errs...)
}

// SetWeights gives the daemon the applications' weights.
func (m *Machine) SetWeights(ctx context.Context, protected string, aggressors []string) error {
	return m.daemon.setWeights(ctx, protected, aggressors)
}

// Metrics scrapes the daemon.
func (m *Machine) Metrics(ctx context.Context) (Metrics, error) { return m.daemon.scrape(ctx) }

// Counters reads the kernel's counters of every modelled disk. A plain folder has no counters.
func (m *Machine) Counters() ([]DiskCounters, error) {
	if !m.setup.Disk.Modelled {
		return nil, nil
	}
	var out []DiskCounters
	for _, d := range m.Disks {
		r, w, err := d.Counters()
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", d.Name(), err)
		}
		out = append(out, DiskCounters{Name: d.Name(), ReadBytes: r, WriteBytes: w})
	}
	return out, nil
}

// Stop stops everything and restores the kernel's parameters.
func (m *Machine) Stop() error {
	errs := []error{m.Release(context.Background())}
	if m.spark != nil {
		errs = append(errs, m.spark.Stop())
	}
	return errors.Join(append(errs, m.Down())...)
}
