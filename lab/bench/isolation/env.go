package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"penstock/lab/contest"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/experiment/counters"
	"penstock/lab/judge"
	"penstock/lab/ledger"
	"penstock/lab/spark"
	"penstock/lab/stand"
)

// Machine is the real environment: a stand with modelled disks and a real Hadoop on them, and the
// penstock node daemon in governed phases.
type Machine struct {
	*stand.Stand
	request *Request // with the set-up, which a calibration changes
	capped  int      // MB/s of each DataNode's throttler; 0 is no cap

	spark   *spark.Spark // nil without TPC-H
	groups  groups
	watched *judge.Disks // nil unless intermediate files are judged
	jobs    *contest.Jobs
	answer  answer // to the query
}

// Probe adds the machine's properties and restrictions to a set-up.
func Probe(s Setup) Setup {
	s.Machine = experiment.ThisMachine()
	if reason := disk.Available(); reason != nil {
		s.Disk.Modelled = false
		s.Notes = append(s.Notes, "No modelled disks: "+reason.Error()+". All data is on the folder's own disk: "+
			"all phases have the same scheduler, the jobs contend for the disk in every phase, and the figures are not valid.")
	}
	if os.Geteuid() != 0 {
		s.Notes = append(s.Notes, "Not root: the kernel's dirty limits are left unchanged, and caches are not dropped between runs.")
	}
	if s.Machine.CPUs < 2 {
		s.Notes = append(s.Notes, "One CPU only: both jobs share it, so slowdowns include CPU contention.")
		s.Aggressor.CPU = s.Protected.CPU
	}
	return s
}

// StartMachine starts disks and cluster and writes the inputs. After an error, and when ctx
// ends, it restores the machine.
func StartMachine(ctx context.Context, q *Request, phases []Phase) (_ *Machine, err error) {
	m := &Machine{request: q}
	if err := m.groupsPossible(phases); err != nil {
		return nil, err
	}
	d := q.Setup.Disk
	q.say("starting %d modelled disks and Hadoop %s in %s", 2*d.DataNodes, q.Setup.Hadoop.Version, q.RunDir)
	spec := stand.Spec{Dir: q.RunDir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.CacheDir, Progress: q.say,
		Sysctls: q.Setup.Kernel.DirtyLimits(), DisksOptional: true, Hadoop: m.cluster}
	for _, kind := range []string{"disk", "other"} { // the contested ones first, one for each DataNode
		for i := range d.DataNodes {
			spec.Disks = append(spec.Disks, d.Options(fmt.Sprintf("%s%d", kind, i), q.Setup.Kernel.Scheduler))
		}
	}
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	m.jobs = contest.NewJobs(m.Hadoop)
	if err = m.redirect(); err == nil {
		err = m.prepare(ctx, phases)
	}
	if err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

func (m *Machine) setup() Setup { return m.request.Setup }

func (m *Machine) contested() []*disk.Disk { return m.Disks[:m.setup().Disk.DataNodes] }

// change applies the new disk rate and the new job sizes, after the set-up of the request has
// changed.
func (m *Machine) change(ctx context.Context, phases []Phase) error {
	if err := m.groupsPossible(phases); err != nil {
		return err
	}
	if err := m.SetSysctls(ctx, m.request.Setup.Kernel.DirtyLimits()...); err != nil {
		return err
	}
	return m.prepare(ctx, phases)
}

// tuneBackground sets the amount of dirty data at which the kernel starts to write out in a phase,
// and the part of the dirty limits that is guaranteed to each contested disk.
func (m *Machine) tuneBackground(ctx context.Context, p Phase) error {
	bytes, age, percent := m.setup().Kernel.DirtyBackgroundBytes, m.setup().Kernel.DirtyExpireCentisecs, 0
	if own := m.setup().Penstock; p.Governed && own.DirtyBackgroundBytes > 0 {
		bytes, age, percent = own.DirtyBackgroundBytes, own.DirtyExpireCentisecs, own.DirtySharePercent
	}
	if m.setup().Disk.Modelled {
		for _, d := range m.contested() {
			if err := d.SetDirtyShare(percent); err != nil {
				return err
			}
		}
	}
	return m.SetSysctls(ctx, contest.Background(bytes, age)...)
}

// Limit switches the modelled rate on or off on every disk. Off also lifts the DataNodes' caps.
func (m *Machine) Limit(ctx context.Context, on bool) error {
	if !on {
		if err := m.throttle(ctx, 0); err != nil {
			return err
		}
	}
	if !m.setup().Disk.Modelled {
		return nil
	}
	var model disk.Model
	if on {
		model = m.setup().Disk.Model()
	}
	return m.SetModel(model)
}

// throttle sets the cap of each DataNode's own throttler, in MB/s; 0 means no cap. The throttler
// distinguishes reads from writes, but not applications. So the cap is set for the direction of the
// aggressor's I/O, and also limits the protected job's I/O in that direction. TeraGen writes,
// TeraValidate and WordCount read, TeraSort first reads and then writes.
func (m *Machine) throttle(ctx context.Context, mbps int) error {
	if mbps == m.capped {
		return nil
	}
	rate := ""
	if mbps > 0 {
		rate = strconv.Itoa(mbps * megabyte)
	}
	settings := map[string]string{}
	if writes, _ := m.setup().aggressor().directions(); writes {
		settings["dfs.datanode.data.write.bandwidthPerSec"] = rate
	}
	if _, reads := m.setup().aggressor().directions(); reads {
		settings["dfs.datanode.data.read.bandwidthPerSec"] = rate
	}
	if err := m.Hadoop.Reconfigure(ctx, settings); err != nil {
		return fmt.Errorf("cap the DataNodes at %d MB/s: %w", mbps, err)
	}
	m.capped = mbps
	return nil
}

// Arrange sets the kernel scheduler, the caps, the cgroups and the dirty limits of the phase. In a
// governed phase it also starts the daemon.
func (m *Machine) Arrange(ctx context.Context, p Phase) error {
	kernel := p.Kernel
	if kernel == "" {
		kernel = m.setup().Kernel.Scheduler
	}
	if m.setup().Disk.Modelled {
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
	return m.govern(ctx, p)
}

// DropCaches writes dirty pages back and empties the page cache, so that each run reads its input
// from the disks. If intermediate files are judged, DropCaches also begins to watch them.
func (m *Machine) DropCaches(context.Context) error {
	if os.Geteuid() != 0 {
		unix.Sync()
		return nil // Setup.Notes says so
	}
	if err := ledger.DropCaches(); err != nil || !m.setup().Intermediate || !m.setup().Disk.Modelled {
		return err
	}
	m.watched = judge.NewDisks(m.Disks)
	return m.watched.Watch(contest.LookEvery)
}

// Release ends the daemon, whose log stays in the run folder, and removes the cgroups.
func (m *Machine) Release(context.Context) error {
	errs := []error{m.watched.Stop(), m.groups.remove(), m.endGovernor()}
	m.watched, m.groups = nil, nil
	return errors.Join(errs...)
}

// Counters reads the kernel's counters of every modelled disk. Without modelled disks the map is
// empty.
func (m *Machine) Counters() (map[string]counters.Bytes, error) {
	out := map[string]counters.Bytes{}
	if !m.setup().Disk.Modelled {
		return out, nil
	}
	for _, d := range m.Disks {
		r, w, err := d.Counters()
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", d.Name(), err)
		}
		out[d.Name()] = counters.Bytes{Read: float64(r), Write: float64(w)}
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
