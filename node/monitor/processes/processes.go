// Package processes adds up, for each application and container, what its processes have read and
// written and how long they have waited for disks and for CPUs.
//
// Problem: the daemon sees the I/O that passes its gates. A container also reads and writes without
// the agent, and whether it suffers shows in its waits. The monitor-and-controller framework for
// Spark on Mesos watches blkio_delay of every container for this reason. Choice: the kernel's own
// figures for each process (taskstats and /proc/PID/io), added up by the owner of the process's
// cgroup (package owner). A process that has an agent belongs to its application even if no cgroup
// says so, as under YARN's default executor.
//
// A process that begins and ends between two looks is not seen. Its figures, and those that a
// process adds after the last look at it, are missing, so all sums are lower bounds.
package processes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"penstock/node/monitor/owner"
)

const (
	maxProcesses = 32768           // processes looked at
	maxGroups    = 4096            // applications, containers and units
	forgetAfter  = 5 * time.Minute // without processes
	// A process without an owner may get one later, when its parent moves it to a cgroup.
	othersPeriod = time.Minute
)

// Member is what the daemon knows of a process that has an agent.
type Member struct{ Flow, Container string }

// Group is the identity of what is added up: an owner by cgroup, or an application by its agents.
type Group struct {
	Flow  string // the application; empty: not one of the cluster
	Owner owner.Owner
}

// Sum is what the processes of a group have done and waited for since the daemon first saw them.
type Sum struct {
	Group
	Processes     int           // that run now
	Read, Written int64         // bytes of storage, by the kernel's account of each process
	BlockDelay    time.Duration // waits for block I/O, of all threads together; 0 while accounting is off
	RunDelay      time.Duration // waits for a CPU, of all threads together
	Window        Window
}

// Window has the increases of a Sum between the last two looks.
type Window struct {
	Read, Written        int64
	BlockDelay, RunDelay time.Duration
}

// figures are those of one process.
type figures struct {
	read, written int64
	delays        delays
}

func (f *figures) add(g figures) {
	f.read, f.written = f.read+g.read, f.written+g.written
	f.delays.run, f.delays.block = f.delays.run+g.delays.run, f.delays.block+g.delays.block
}

// process is a known process.
type process struct {
	start  uint64 // in clock ticks since the boot; distinguishes processes of one pid
	member Member
	group  Group
	owned  bool
	looked time.Time // when its cgroup was read
	now    figures
}

// group is the state of a Group.
type group struct {
	ended   figures // of processes that have ended
	last    figures // the sum at the last look
	fresh   bool    // there was no look yet
	running int
	seen    time.Time // when it last had a process
}

// Watch adds up. Look must be called by one goroutine at a time; the other methods may be called
// from several.
type Watch struct {
	proc      procfs.FS
	delayacct string // path of the sysctl
	of        func(pid int) (delays, error)

	processes map[int]*process
	groups    map[Group]*group

	mu      sync.Mutex
	sums    []Sum
	looked  time.Time
	seconds float64
	more    bool
	on      bool
}

// New returns a watch of this machine. If the error is not nil, the watch works without delays.
func New() (*Watch, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	w := &Watch{proc: proc, delayacct: "/proc/sys/kernel/task_delayacct", processes: map[int]*process{}, groups: map[Group]*group{}}
	stats, err := openTaskstats()
	if err == nil {
		w.of = stats.of
	}
	return w, err
}

// Look reads the figures of all processes with an owner. It should be called every few seconds.
// members are the processes that have an agent. An error describes missing rights; the sums then
// lack these figures.
func (w *Watch) Look(now time.Time, members map[int]Member) error {
	all, err := w.proc.AllProcs()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	more := len(all) > maxProcesses
	all = all[:min(len(all), maxProcesses)]
	var mistakes error
	alive := make(map[int]bool, len(all))
	for _, p := range all {
		alive[p.PID] = true
		err := w.lookAt(p, now, members[p.PID])
		if err != nil && !gone(err) && mistakes == nil {
			mistakes = err
		}
	}
	for pid, p := range w.processes {
		if !alive[pid] {
			w.end(p)
			delete(w.processes, pid)
		}
	}
	sums, full := w.addUp(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sums, w.more, w.on = sums, more || full, w.accounting()
	if !w.looked.IsZero() {
		w.seconds = now.Sub(w.looked).Seconds()
	}
	w.looked = now
	return mistakes
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// accounting reports whether the kernel counts the waits for block I/O.
func (w *Watch) accounting() bool {
	text, err := os.ReadFile(w.delayacct)
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

func (w *Watch) lookAt(p procfs.Proc, now time.Time, member Member) error {
	known := w.processes[p.PID]
	if known != nil && !known.owned && known.member == member && now.Sub(known.looked) < othersPeriod {
		return nil
	}
	stat, err := p.Stat()
	if err != nil {
		return err
	}
	if known != nil && (known.start != stat.Starttime || known.member != member) {
		w.end(known)
		known = nil
	}
	if known == nil || !known.owned {
		known = &process{start: stat.Starttime, member: member, looked: now}
		w.processes[p.PID] = known
		if known.group, known.owned, err = groupOf(p, member); err != nil || !known.owned {
			return err
		}
	}
	usage, err := p.IO()
	if err == nil {
		known.now.read, known.now.written = int64(usage.ReadBytes), int64(usage.WriteBytes)
	}
	if w.of == nil {
		return err
	}
	d, err2 := w.of(p.PID)
	if err2 == nil {
		known.now.delays = d
	}
	return errors.Join(err, err2)
}

// groupOf returns the group of a process. The application of its agent comes first, since the
// daemon has verified it. owned is false for a process that belongs to nobody in particular.
func groupOf(p procfs.Proc, member Member) (g Group, owned bool, err error) {
	cgroups, err := p.Cgroups()
	if err != nil {
		return Group{}, false, err
	}
	for _, c := range cgroups {
		o := owner.Of(c.Path)
		if g.Owner.Kind == owner.None || g.Owner.Kind == owner.Unit && o.Kind != owner.None && o.Kind != owner.Unit {
			g.Owner = o
		}
	}
	if g.Flow = member.Flow; g.Flow == "" && !g.Owner.Delegated {
		g.Flow = g.Owner.Application
	}
	if member.Flow != "" && g.Owner.Kind != owner.YARN && owner.ApplicationOf(member.Container) != "" {
		g.Owner = owner.Owner{Kind: owner.YARN, ID: member.Container, Application: owner.ApplicationOf(member.Container)}
	}
	return g, g.Flow != "" || g.Owner.Kind != owner.None, nil
}

// end keeps the figures of a process that has ended.
func (w *Watch) end(p *process) {
	if !p.owned {
		return
	}
	if g := w.groups[p.group]; g != nil {
		g.ended.add(p.now)
	}
}

// addUp returns the sums by group. full reports that there are more groups than maxGroups; the
// processes of the others are not counted.
func (w *Watch) addUp(now time.Time) (sums []Sum, full bool) {
	for _, g := range w.groups {
		g.running = 0
	}
	running := map[Group]figures{}
	for _, p := range w.processes {
		if !p.owned {
			continue
		}
		g := w.groups[p.group]
		if g == nil {
			if len(w.groups) >= maxGroups {
				full = true
				continue
			}
			g = &group{fresh: true}
			w.groups[p.group] = g
		}
		g.running, g.seen = g.running+1, now
		sum := running[p.group]
		sum.add(p.now)
		running[p.group] = sum
	}
	maps.DeleteFunc(w.groups, func(_ Group, g *group) bool { return g.running == 0 && now.Sub(g.seen) > forgetAfter })
	for id, g := range w.groups {
		sum := running[id]
		sum.add(g.ended)
		if g.fresh {
			g.last, g.fresh = sum, false // what processes did before the first look is no increase
		}
		sums = append(sums, Sum{id, g.running, sum.read, sum.written, sum.delays.block, sum.delays.run, Window{
			sum.read - g.last.read, sum.written - g.last.written, sum.delays.block - g.last.delays.block, sum.delays.run - g.last.delays.run}})
		g.last = sum
	}
	slices.SortFunc(sums, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.Read+b.Written, a.Read+a.Written), cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Owner.ID, b.Owner.ID),
			cmp.Compare(a.Owner.Pod, b.Owner.Pod), cmp.Compare(a.Owner.Kind, b.Owner.Kind))
	})
	return sums, full
}

// Snapshot is the result of the last call of Look.
type Snapshot struct {
	Sums       []Sum   // sorted by bytes, the largest first
	LeftOff    int     // sums that are not in Sums
	AtBound    bool    // there are more processes or groups than can be watched
	Accounting bool    // the kernel counts waits for block I/O (kernel.task_delayacct)
	Seconds    float64 // length of the windows; 0: there was only one look
}

// Snapshot returns at most n sums.
func (w *Watch) Snapshot(n int) Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, len(w.sums))
	return Snapshot{Sums: w.sums[:n:n], LeftOff: len(w.sums) - n, AtBound: w.more, Accounting: w.on, Seconds: w.seconds}
}
