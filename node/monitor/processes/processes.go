// Package processes adds up, for each application and container, what its processes have read and
// written, the CPU time and memory that they use, and how long they have waited for disks and for CPUs.
//
// Problem: the daemon sees the I/O that passes its gates. A container also reads and writes without
// the agent, and whether it suffers shows in its waits. The monitor-and-controller framework for
// Spark on Mesos watches blkio_delay of every container for this reason. Choice: the kernel's own
// figures for each process (taskstats and /proc/PID/io), added up by the owner of the process's
// cgroup (package owner). A process that has an agent belongs to its application even if no cgroup
// says so, as under YARN's default executor; so do its descendants outside of containers, such as the Python workers of a
// Spark executor.
//
// The kernel's bytes and CPU time of a process include those of its children that have ended and that
// it has waited for. So the last reading of each child is subtracted from its parent. What a child moves
// after the last look at it, and all of a child that begins and ends between two looks, is added to
// its parent's owner: usually the same, but for the first process of a container it is the process
// that started it. Waits are not inherited; those of such a child are missing.
//
// Linux 6.18 counts some waits for block I/O wrongly while CPUs are busy: a thread that read for 3 s had
// waited for 44 h, five times the time since the boot. The likely reason is EEVDF's delayed dequeueing
// (since 6.12): a thread that is not due for the CPU is dequeued later, when another thread is current,
// and delayacct_blkio_start notes the beginning of the wait for the current thread. So what a process
// cannot have waited is cut off: more than the time that has passed, for each of its threads.
// Snapshot.Implausible reports that this was necessary. Real-time threads were counted right.
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
	MaxGroups    = 4096            // applications, containers and units
	forgetAfter  = 5 * time.Minute // without processes
	// A process without an owner may get one later, when its parent moves it to a cgroup.
	othersPeriod = time.Minute
)

// Member is what the daemon knows of a process that has an agent.
type Member struct {
	Flow, Container string
	Start           uint64 // of the process, as StartOf returns it; another process may have the pid later
}

// Group is the identity of what is added up: an owner by cgroup, or an application by its agents.
type Group struct {
	Flow  string // the application; empty: not one of the cluster
	Owner owner.Owner
}

// Sum is what the processes of a group have done and waited for. It does not decrease while the group
// is known. What processes did before the first look does not count.
type Sum struct {
	Group
	Processes     int           // that run now
	Read, Written int64         // bytes of storage, by the kernel's account of each process
	BlockDelay    time.Duration // waits for block I/O, of all threads together; 0 while accounting is off
	RunDelay      time.Duration // waits for a CPU, of all threads together
	CPU           time.Duration // CPU time, user and system, of all threads together
	Memory        int64         // resident bytes now; a page that several processes share counts for each
	Window        Window
}

// Window has the increases of a Sum between the last two looks.
type Window struct {
	Read, Written        int64
	BlockDelay, RunDelay time.Duration
	CPU                  time.Duration
}

// figures are what a process has done and waited for.
type figures struct {
	read, written int64
	cpu           time.Duration
	delays        delays
}

func (f *figures) add(g figures) {
	f.read, f.written, f.cpu = f.read+g.read, f.written+g.written, f.cpu+g.cpu
	f.delays.run, f.delays.block = f.delays.run+g.delays.run, f.delays.block+g.delays.block
}

// raise raises each figure to that of f, less those of each of the others.
func (f *figures) raise(to figures, less ...figures) {
	for _, l := range less {
		to.add(figures{-l.read, -l.written, -l.cpu, delays{-l.delays.run, -l.delays.block}})
	}
	f.read, f.written, f.cpu = max(f.read, to.read), max(f.written, to.written), max(f.cpu, to.cpu)
	f.delays.run, f.delays.block = max(f.delays.run, to.delays.run), max(f.delays.block, to.delays.block)
}

// process is a known process.
type process struct {
	start  uint64 // in clock ticks since the boot; distinguishes processes of one pid
	parent int
	member Member
	// byParent is set if member is that of the parent: the process has no agent of its own.
	byParent bool
	group    Group
	owned    bool
	// cgroup is that of its pod or Mesos container; empty: it is in none.
	cgroup  string
	checked time.Time // when its cgroup was read
	settled bool      // its cgroup was read twice: the first process of a container is moved when it begins
	raw     figures   // by the kernel, the highest that were seen
	// inherited are the bytes and the CPU time of ended children in raw. base is what raw had, and what was counted
	// for another group, before the process came to its group.
	inherited, base figures
	own             figures // of its group: raw less inherited and base; never decreases
	// The kernel's waits for block I/O, the number of threads and the time, at the last reading.
	blocked time.Duration
	threads int
	memory  int64 // resident bytes at the last reading
	readAt  time.Time
	old     bool // what it did before its next reading counts for nobody
}

// group is the state of a Group.
type group struct {
	ended   figures // of processes that have ended or have another group now
	last    figures // the sum at the last look
	running int
	seen    time.Time // when it last had a process
}

// Watch adds up. Look must be called by one goroutine at a time; the other methods may be called
// from several.
type Watch struct {
	proc      procfs.FS
	delayacct string // path of the sysctl
	of        func(pid int) (delays, error)
	close     func() // ends of; nil: there is nothing to end
	opening   error  // why of is nil
	hierarchy string // cgroup below which the NodeManager makes those of its containers
	// application returns the application of a container of Kubernetes or Mesos; nil, or an empty result: it is not known.
	application func(owner.Owner) string

	processes map[int]*process
	groups    map[Group]*group
	wrong     bool // the kernel has counted waits that were not possible

	mu      sync.Mutex
	sums    []Sum
	cgroups map[string]owner.Owner
	working map[int]string
	looked  time.Time
	seconds float64
	more    bool
	on      bool
	cut     bool // as in Snapshot.Implausible
}

// New returns a watch of this machine. hierarchy is the cgroup below which the NodeManager makes those
// of its containers, such as hadoop-yarn.
func New(hierarchy string) (*Watch, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	w := &Watch{proc: proc, hierarchy: strings.Trim(hierarchy, "/"), delayacct: "/proc/sys/kernel/task_delayacct", processes: map[int]*process{}, groups: map[Group]*group{}}
	stats, err := openTaskstats()
	if err != nil {
		w.opening = err
		return w, nil
	}
	w.of, w.close = stats.of, stats.close
	return w, nil
}

// ApplicationOf makes the watch ask f for the application of each container of Kubernetes or Mesos; an empty result
// means that it is not known. f must not block. ApplicationOf must be called before Look.
func (w *Watch) ApplicationOf(f func(owner.Owner) string) { w.application = f }

// Close releases the socket to the kernel. Look must not be called any more.
func (w *Watch) Close() {
	if w.close != nil {
		w.close()
	}
}

// Look reads the figures of all processes with an owner. It should be called every few seconds.
// members are the processes that have an agent. An error describes missing rights; the sums then
// lack these figures.
func (w *Watch) Look(now time.Time, members map[int]Member) error {
	all, err := w.proc.AllProcs()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	alive := make(map[int]bool, len(all))
	for _, p := range all {
		alive[p.PID] = true
	}
	// Parents before their children, whose pids are higher except when the numbers start again. If a
	// child ends meanwhile, it is then missing in its parent's bytes rather than counted twice.
	slices.SortFunc(all, func(a, b procfs.Proc) int { return cmp.Compare(a.PID, b.PID) })
	more, looked := false, 0
	var rights, other error
	for _, p := range all {
		if w.processes[p.PID] == nil && looked >= maxProcesses {
			more = true
			continue
		}
		looked++
		switch err := w.lookAt(p, now, members[p.PID]); {
		case err == nil:
		case gone(err):
			alive[p.PID] = false
		case errors.Is(err, fs.ErrPermission):
			rights = err
		default:
			other = err
		}
	}
	for pid, p := range w.processes {
		if !alive[pid] {
			w.inherit(p)
		}
	}
	for pid, p := range w.processes {
		if p.own.raise(p.raw, p.inherited, p.base); !alive[pid] {
			w.leave(p)
			delete(w.processes, pid)
		}
	}
	sums, full := w.addUp(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cgroups, w.working = w.containers()
	w.sums, w.more, w.on, w.cut = sums, more || full, w.accounting(), w.wrong
	if !w.looked.IsZero() {
		w.seconds = now.Sub(w.looked).Seconds()
	}
	w.looked = now
	switch {
	case rights != nil:
		return fmt.Errorf("figures of other users' processes are missing: run the daemon as root, or with CAP_SYS_PTRACE (bytes) and CAP_NET_ADMIN (waits): %w", rights)
	case other != nil:
		return other
	}
	return w.opening
}

// inherit moves the bytes and the CPU time of a process that has ended to its parent, which waits for it.
func (w *Watch) inherit(p *process) {
	if parent := w.processes[p.parent]; parent != nil {
		parent.inherited.add(figures{read: p.raw.read, written: p.raw.written, cpu: p.raw.cpu})
	}
}

// leave keeps the figures of a process for the group that it leaves.
func (w *Watch) leave(p *process) {
	if !p.owned {
		return
	}
	if g := w.groups[p.group]; g != nil {
		g.ended.add(p.own)
	}
	p.base.add(p.own)
	p.own = figures{}
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// accounting reports whether the kernel counts the waits for block I/O.
func (w *Watch) accounting() bool {
	text, err := os.ReadFile(w.delayacct)
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

// StartOf returns when a process began, in clock ticks since the boot. It distinguishes the
// processes that have a pid one after another.
func StartOf(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.Starttime, err
}

// lookAt reads the figures of one process.
func (w *Watch) lookAt(p procfs.Proc, now time.Time, member Member) error {
	known := w.processes[p.PID]
	if known != nil && !known.owned && member == (Member{}) && known.settled && now.Sub(known.checked) < othersPeriod {
		return nil
	}
	// Of a known process, the figures come first: its start shows afterwards whether they are its own.
	// So each look reads one file less.
	early, read := reading{}, known != nil && known.owned
	if read {
		early = w.read(p)
	}
	stat, err := p.Stat()
	if err != nil {
		return err
	}
	if member.Start != stat.Starttime {
		member = Member{} // of a process that had the pid before
	}
	if known != nil && known.start != stat.Starttime {
		w.inherit(known)
		w.leave(known)
		known, read = nil, false
	}
	if known == nil {
		known = &process{start: stat.Starttime, old: w.looked.IsZero()}
		w.processes[p.PID] = known
	}
	known.parent = stat.PPID
	known.byParent = false
	if parent := w.processes[stat.PPID]; member == (Member{}) && parent != nil && parent.start <= stat.Starttime && parent.member != (Member{}) {
		member, known.byParent = parent.member, true
	}
	if known.checked.IsZero() || !known.settled || known.member != member || now.Sub(known.checked) >= othersPeriod {
		if err := w.regroup(known, p, now, member); err != nil {
			return err
		}
	}
	if !known.owned {
		return nil
	}
	if read {
		w.take(known, early.figures, stat, now)
		return early.err
	}
	late := w.read(p)
	if stat, err = p.Stat(); err != nil {
		return err
	}
	if stat.Starttime == known.start { // otherwise, another process has got the pid meanwhile
		w.take(known, late.figures, stat, now)
	}
	return late.err
}

// regroup reads a process's cgroup. If the process belongs to another group than before, what it has
// done stays with that group.
func (w *Watch) regroup(known *process, p procfs.Proc, now time.Time, member Member) error {
	id, cgroup, owned, err := w.groupOf(p, member, known.byParent)
	if err != nil {
		return err
	}
	known.settled = !known.checked.IsZero()
	known.member, known.checked, known.cgroup = member, now, cgroup
	if owned == known.owned && id == known.group {
		return nil
	}
	known.old = known.old || known.settled && !known.owned // it was without an owner until now
	known.own.raise(known.raw, known.inherited, known.base)
	w.leave(known)
	known.group, known.owned = id, owned
	return nil
}

// reading is one reading of a process's figures. Those that err is about are 0.
type reading struct {
	figures
	err error
}

// read reads the kernel's figures of the process that has the pid now.
func (w *Watch) read(p procfs.Proc) (r reading) {
	usage, err := p.IO()
	if err == nil {
		r.read, r.written = int64(usage.ReadBytes), int64(usage.WriteBytes)
	}
	if w.of != nil {
		d, err2 := w.of(p.PID)
		if err2 == nil {
			r.delays = d
		}
		err = cmp.Or(err, err2)
	}
	r.err = err
	return r
}

// take takes figures of a process.
func (w *Watch) take(p *process, now figures, stat procfs.ProcStat, at time.Time) {
	threads := stat.NumThreads
	now.cpu = cpuTime(stat)
	if now.delays.block > 0 { // a process that has ended and is not waited for yet has no waits any more
		since := p.readAt
		if since.IsZero() {
			since = w.looked // it began after the last look
		}
		more := max(0, now.delays.block-p.blocked)
		p.blocked = max(p.blocked, now.delays.block)
		if most := possibleWait(at.Sub(since), max(threads, p.threads)); !p.old && more > most {
			more, w.wrong = most, true
		}
		now.delays.block = p.raw.delays.block + more
	}
	p.readAt, p.threads, p.memory = at, threads, int64(stat.ResidentMemory())
	p.raw.raise(now)
	if p.old {
		p.base, p.old = figures{}, false
		p.base.raise(p.raw, p.inherited)
	}
}

// cpuTime returns the CPU time of a process. Like the bytes of its storage, it includes that of its
// children that have ended and that it has waited for.
func cpuTime(stat procfs.ProcStat) time.Duration {
	const tick = time.Second / 100 // USER_HZ, the same on all architectures that Go supports
	return time.Duration(int64(stat.UTime)+int64(stat.STime)+int64(stat.CUTime)+int64(stat.CSTime)) * tick
}

// possibleWait returns the longest time for which threads can have waited, all together. It is
// generous: a reading is up to one look later than the time of the look.
func possibleWait(elapsed time.Duration, threads int) time.Duration {
	const slack = 500 * time.Millisecond
	return time.Duration(max(1, threads)) * (elapsed + slack)
}

// groupOf returns the group of a process. A cgroup that the NodeManager has made comes first, because
// root has chosen its name; then the application of the process's agent, which the daemon has
// verified as far as its mode asks for it. owned is false for a process that belongs to nobody in
// particular. If byParent is set, member is that of the process's parent, and a container's cgroup of any kind comes first.
// cgroup is the cgroup of the process's pod or Mesos container.
func (w *Watch) groupOf(p procfs.Proc, member Member, byParent bool) (g Group, cgroup string, owned bool, err error) {
	cgroups, err := p.Cgroups()
	if err != nil {
		return Group{}, "", false, err
	}
	path := ""
	for _, c := range cgroups {
		if o := owner.Of(c.Path); rank(o) > rank(g.Owner) {
			g.Owner, path = o, c.Path
		}
	}
	if byParent && rank(g.Owner) > rank(owner.Owner{Kind: owner.Unit}) {
		member = Member{}
	}
	switch o := g.Owner; {
	case o.Kind == owner.YARN && !o.Delegated && w.hierarchy != "" && strings.Contains(path+"/", "/"+w.hierarchy+"/"+o.ID+"/"):
		g.Flow = o.Application
	case member.Flow != "":
		g.Flow = member.Flow
		if app := owner.ApplicationOf(member.Container); app != "" {
			g.Owner = owner.Owner{Kind: owner.YARN, ID: member.Container, Application: app}
		}
	case o.Delegated:
		// Users may make any number of cgroups. All of them are one group.
		g.Owner = owner.Owner{Kind: owner.Unit, ID: "cgroups of users and containers"}
	case w.application != nil && (o.Kind == owner.Kubernetes || o.Kind == owner.Mesos):
		g.Flow = w.application(o)
	}
	return g, owner.CgroupOf(path), g.Flow != "" || g.Owner.Kind != owner.None, nil
}

// rank orders the owners that the hierarchies of cgroup v1 may name for one process.
func rank(o owner.Owner) int {
	switch {
	case o.Kind == owner.None:
		return 0
	case o.Kind == owner.Unit && o.Delegated:
		return 1
	case o.Kind == owner.Unit:
		return 2
	case o.Delegated:
		return 3
	}
	return 4
}

// containers returns the cgroups of pods and Mesos containers, with their owners, and the applications of their processes.
func (w *Watch) containers() (all map[string]owner.Owner, working map[int]string) {
	all, working = map[string]owner.Owner{}, map[int]string{}
	for pid, p := range w.processes {
		if p.cgroup == "" {
			continue
		}
		if len(all) < MaxGroups {
			all[p.cgroup] = owner.Of(p.cgroup)
		}
		if p.group.Flow != "" {
			working[pid] = p.group.Flow
		}
	}
	return all, working
}

// Working returns the processes in pods and Mesos containers whose application is known, and their applications. The
// caller must not change the result.
func (w *Watch) Working() map[int]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.working
}

// Containers returns the cgroups of the pods and Mesos containers that had processes at the last look, at most MaxGroups,
// with their owners.
func (w *Watch) Containers() map[string]owner.Owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cgroups
}

// addUp returns the sums by group. full reports that there are more groups than MaxGroups; the
// processes of the others are not counted.
func (w *Watch) addUp(now time.Time) (sums []Sum, full bool) {
	for _, g := range w.groups {
		g.running = 0
	}
	running, memory := map[Group]figures{}, map[Group]int64{}
	for _, p := range w.processes {
		if !p.owned {
			continue
		}
		g := w.groups[p.group]
		if g == nil {
			if len(w.groups) >= MaxGroups && !w.dropIdle() {
				full = true
				continue
			}
			g = &group{}
			w.groups[p.group] = g
		}
		g.running, g.seen = g.running+1, now
		sum := running[p.group]
		sum.add(p.own)
		running[p.group] = sum
		memory[p.group] += p.memory
	}
	maps.DeleteFunc(w.groups, func(_ Group, g *group) bool { return g.running == 0 && now.Sub(g.seen) > forgetAfter })
	for id, g := range w.groups {
		sum := running[id]
		sum.add(g.ended)
		sums = append(sums, Sum{id, g.running, sum.read, sum.written, sum.delays.block, sum.delays.run, sum.cpu, memory[id], Window{
			sum.read - g.last.read, sum.written - g.last.written, sum.delays.block - g.last.delays.block, sum.delays.run - g.last.delays.run, sum.cpu - g.last.cpu}})
		g.last = sum
	}
	slices.SortFunc(sums, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.Read+b.Written, a.Read+a.Written), cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Owner.ID, b.Owner.ID),
			cmp.Compare(a.Owner.Pod, b.Owner.Pod), cmp.Compare(a.Owner.Kind, b.Owner.Kind))
	})
	return sums, full
}

// dropIdle forgets the group that has been without processes for the longest time. It reports
// whether there was one.
func (w *Watch) dropIdle() bool {
	var oldest Group
	found := false
	for id, g := range w.groups {
		if g.running == 0 && (!found || g.seen.Before(w.groups[oldest].seen)) {
			oldest, found = id, true
		}
	}
	delete(w.groups, oldest)
	return found
}

// Snapshot is the result of the last call of Look.
type Snapshot struct {
	Sums       []Sum   // sorted by bytes, the largest first
	LeftOff    int     // sums that are not in Sums
	AtBound    bool    // there are more processes or groups than can be watched
	Accounting bool    // the kernel counts waits for block I/O (kernel.task_delayacct)
	Seconds    float64 // length of the windows; 0: there was only one look
	Looked     time.Time
	// Implausible reports that waits for block I/O were cut off, because the kernel has counted more of
	// them than time has passed.
	Implausible bool
}

// Snapshot returns at most n sums.
func (w *Watch) Snapshot(n int) Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, len(w.sums))
	return Snapshot{Sums: w.sums[:n:n], LeftOff: len(w.sums) - n, AtBound: w.more, Accounting: w.on, Seconds: w.seconds, Looked: w.looked, Implausible: w.cut}
}
