package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/spark"
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

// Machine is the real environment: modelled disks, a real Hadoop on them, the kernel's
// parameters and the penstock node daemon. Each change is in the run folder's ledger before it
// is made: the next experiment, or `penstock-lab clean`, reverts those of a killed one.
type Machine struct {
	options Options
	setup   Setup
	ledger  *ledger.Ledger
	disks   []*disk.Disk // contested, one per DataNode; then the other ones
	cluster *hadoop.Cluster
	daemon  *governor
	capped  int // MB/s that each DataNode's throttler lets pass; 0 is no cap

	spark    *spark.Spark // nil without TPC-H
	groups   groups
	watchers *watchers
	sources  map[string]source // by folder of HDFS
	jobSeq   int
}

// Probe adds the machine's properties and restrictions to a set-up.
func Probe(s Setup) Setup {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		s.Machine.KernelRelease = unix.ByteSliceToString(u.Release[:])
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		s.Machine.CPUs = set.Count()
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		s.Machine.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
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
	if n := len(m.socket()); n > socketPathMax {
		return nil, fmt.Errorf("run folder %s: the path of the agent's socket in it has %d bytes, the kernel allows %d: choose a shorter --run-dir",
			o.RunDir, n, socketPathMax)
	}
	if err := m.groupsPossible(phases); err != nil {
		return nil, err
	}
	if m.ledger, err = ledger.Open(o.RunDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop())
		}
	}()
	if err := m.tuneKernel(ctx); err != nil {
		return nil, err
	}
	o.Progress.Printf("starting %d modelled disks and Hadoop %s in %s", 2*setup.Disk.DataNodes, setup.Hadoop.Version, o.RunDir)
	for _, kind := range []string{"disk", "other"} {
		for i := range setup.Disk.DataNodes {
			d, err := disk.Open(ctx, disk.Options{Name: fmt.Sprintf("%s%d", kind, i), RunDir: o.RunDir,
				Size: setup.Disk.SizeBytes, Scheduler: setup.Kernel.Scheduler,
				Model: setup.Disk.model(), RequestKB: setup.Disk.RequestKB})
			if err != nil {
				return nil, err
			}
			m.disks = append(m.disks, d)
		}
	}
	if err := m.Limit(ctx, false); err != nil {
		return nil, err
	}
	if err := m.startCluster(ctx); err != nil {
		return nil, err
	}
	return m, m.prepareInputs(ctx, phases)
}

// change adopts another rate and size of the jobs; disks and cluster stay.
func (m *Machine) change(ctx context.Context, setup Setup, phases []Phase) error {
	m.setup = setup
	if err := m.groupsPossible(phases); err != nil {
		return err
	}
	if err := m.tuneKernel(ctx); err != nil {
		return err
	}
	return m.prepareInputs(ctx, phases)
}

const socketPathMax = 107 // sun_path, less the final zero

func (m *Machine) socket() string { return filepath.Join(m.options.RunDir, "agent.sock") }

// tunePatience bounds the wait for another run's dirty limits on this machine: two experiments
// at once would disturb each other.
const tunePatience = 30 * time.Minute

// tuneBackground sets the point from which the kernel writes dirty pages out in a phase, and
// the part of it that is guaranteed to each contested disk.
func (m *Machine) tuneBackground(ctx context.Context, p Phase) error {
	bytes, age, percent := m.setup.Kernel.DirtyBackgroundBytes, m.setup.Kernel.DirtyExpireCentisecs, 0
	if own := m.setup.Penstock; p.Governed && own.DirtyBackgroundBytes > 0 {
		bytes, age, percent = own.DirtyBackgroundBytes, own.DirtyExpireCentisecs, own.DirtySharePercent
	}
	if m.setup.Disk.Modelled {
		for _, d := range m.disks[:m.setup.Disk.DataNodes] {
			if err := d.SetDirtyShare(percent); err != nil {
				return err
			}
		}
	}
	if os.Geteuid() != 0 {
		return nil // in the setup's notes
	}
	_, err := ledger.SetSysctl(ctx, m.ledger, "vm/dirty_background_bytes", strconv.FormatInt(bytes, 10))
	if err == nil {
		_, err = ledger.SetSysctl(ctx, m.ledger, "vm/dirty_expire_centisecs", strconv.FormatInt(age, 10))
	}
	if err != nil {
		return fmt.Errorf("set the kernel's background dirty limit: %w", err)
	}
	return nil
}

// tuneKernel sets the dirty limits of native phases. The ledger keeps the original ones.
func (m *Machine) tuneKernel(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return nil // in the setup's notes
	}
	wait, cancel := context.WithTimeout(ctx, tunePatience)
	defer cancel()
	waiting := time.AfterFunc(time.Second, func() {
		m.options.Progress.Printf("waiting for another run that has changed the kernel's dirty limits, %v at most", tunePatience)
	})
	defer waiting.Stop()
	k := m.setup.Kernel
	for _, p := range []struct {
		name  string
		value int64
	}{
		{"vm/dirty_bytes", k.DirtyBytes},
		{"vm/dirty_background_bytes", k.DirtyBackgroundBytes},
		{"vm/dirty_expire_centisecs", k.DirtyExpireCentisecs},
	} {
		if _, err := ledger.SetSysctl(wait, m.ledger, p.name, strconv.FormatInt(p.value, 10)); err != nil {
			return fmt.Errorf("set the kernel's dirty limits: %w", err)
		}
	}
	return nil
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
	var errs []error
	for _, d := range m.disks {
		errs = append(errs, d.SetModel(model))
	}
	return errors.Join(errs...)
}

// throttle sets the cap of each DataNode's own throttler, in MB/s; 0 means no cap. The throttler
// distinguishes directions but not applications: the cap is for the aggressor's direction, and
// applies to the protected job's I/O in it too. TeraGen writes, TeraValidate and WordCount read,
// TeraSort first reads and then writes.
func (m *Machine) throttle(ctx context.Context, mbps int) error {
	if mbps == m.capped || m.cluster == nil {
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
	if err := m.cluster.Reconfigure(ctx, settings); err != nil {
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
		for _, d := range m.disks {
			if err := d.SetScheduler(kernel); err != nil {
				return err
			}
		}
	}
	if err := m.cluster.Check(); err != nil {
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
	m.watchers, err = watch(m.disks)
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

// Disks reads the kernel's counters of every modelled disk. A plain folder has no counters.
func (m *Machine) Disks() ([]DiskCounters, error) {
	if !m.setup.Disk.Modelled {
		return nil, nil
	}
	var out []DiskCounters
	for _, d := range m.disks {
		r, w, err := d.Counters()
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", d.Name(), err)
		}
		out = append(out, DiskCounters{Name: d.Name(), ReadBytes: r, WriteBytes: w})
	}
	return out, nil
}

// Stop stops daemon, cluster and disks and restores the kernel's parameters. It can be called
// after a failed start.
func (m *Machine) Stop() error {
	errs := []error{m.Release(context.Background())}
	if m.spark != nil {
		errs = append(errs, m.spark.Stop())
	}
	if m.cluster != nil {
		errs = append(errs, m.cluster.Stop())
	}
	for _, d := range slices.Backward(m.disks) {
		errs = append(errs, d.Stop())
	}
	if m.ledger != nil {
		errs = append(errs, m.ledger.Close())
	}
	m.spark, m.cluster, m.disks, m.ledger = nil, nil, nil, nil
	return errors.Join(errs...)
}
