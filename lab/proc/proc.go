// Package proc measures processes and the machine: CPU time, memory, threads and descriptors.
//
// Problem: /proc counts CPU time in ticks of 10 ms, and a measured operation may take only a few
// ticks. So a process's CPU time comes from its CPU clock, and a thread's CPU time from the
// scheduler's accounts, both in nanoseconds. Only sums over many processes are in ticks.
// github.com/prometheus/procfs parses the text files.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Tick is the resolution of Descendants and MachineCPUTime: USER_HZ is 100 everywhere.
const Tick = 10 * time.Millisecond

// CPUTime returns the CPU time, user and system, that a process has used, including ended threads.
func CPUTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of a whole process, as clock_getcpuclockid(3) makes it
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ThreadsCPUTime returns the CPU time of those living threads of a process for whose names, at most
// 15 bytes each, chosen returns true. It fails if such a thread ends meanwhile.
func ThreadsCPUTime(pid int, chosen func(name string) bool) (used time.Duration, err error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		name, err := t.Comm()
		if err != nil || !chosen(name) {
			continue // err: the thread has ended
		}
		account, err := t.Schedstat()
		if err != nil {
			return 0, fmt.Errorf("CPU time of thread %s of process %d: %w", name, pid, err)
		}
		used += time.Duration(account.RunningNanoseconds)
	}
	return used, nil
}

// Descendants returns the CPU time of all descendants of a process. It includes descendants that
// are alive, and descendants that have ended, whether their parents have waited for them or not.
// living is the number of descendants that are alive. Orphaned processes become children of the
// first process of their PID namespace, so for that process the sum is complete. While a child
// starts or ends, the sum may be wrong; it is reliable only if living is 0.
func Descendants(pid int) (used time.Duration, living int, err error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, 0, err
	}
	all := map[int]procfs.ProcStat{}
	for _, p := range processes {
		stat, err := p.Stat()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the process has just ended
		}
		if err != nil {
			return 0, 0, fmt.Errorf("process %d: %w", p.PID, err)
		}
		all[p.PID] = stat
	}
	head, ok := all[pid]
	if !ok {
		return 0, 0, fmt.Errorf("there is no process %d", pid)
	}
	ticks := uint(head.CUTime + head.CSTime)
	for _, p := range all {
		if !below(all, p, pid) {
			continue
		}
		ticks += p.UTime + p.STime + uint(p.CUTime+p.CSTime)
		if p.State != "Z" && p.State != "X" {
			living++
		}
	}
	return time.Duration(ticks) * Tick, living, nil
}

// below reports whether p is a descendant of process from.
func below(all map[int]procfs.ProcStat, p procfs.ProcStat, from int) bool {
	for range len(all) { // a PID may be reused meanwhile, so the chain of parents may contain a cycle
		if p.PPID == from {
			return true
		}
		var ok bool
		if p, ok = all[p.PPID]; !ok {
			return false
		}
	}
	return false
}

// Machine describes a machine in a measurement's result. Facts that the kernel does not provide are
// zero.
type Machine struct {
	KernelRelease string
	CPUs          []int // CPUs that this process may use
	MemoryBytes   int64
}

// ThisMachine returns the machine that this process runs on.
func ThisMachine() (m Machine) {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.KernelRelease = unix.ByteSliceToString(u.Release[:])
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for cpu := range 8 * int(unsafe.Sizeof(set)) {
			if set.IsSet(cpu) {
				m.CPUs = append(m.CPUs, cpu)
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	return m
}

// MachineCPUTime returns the time that the machine's CPUs have worked since the machine started,
// including the kernel's own threads and interrupts. Guests' time is part of user time.
func MachineCPUTime() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	c := stat.CPUTotal // in seconds
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ) * float64(time.Second)).Round(Tick), nil
}

// Memory returns a process's current and peak resident size, in bytes. If the process has no memory
// any more, it returns an error.
func Memory(pid int) (resident, peak int64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := p.NewStatus()
	if err == nil && status.VmHWM == 0 {
		err = fmt.Errorf("memory of process %d: it has ended", pid)
	}
	return int64(status.VmRSS), int64(status.VmHWM), err
}

// State returns the state of a process as in ps (R, S, T, Z, ...) and its number of threads.
func State(pid int) (state string, threads int, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "", 0, err
	}
	stat, err := p.Stat()
	return stat.State, stat.NumThreads, err
}

// Descriptors returns the names of a process's open descriptors. The name of a descriptor that is
// closed meanwhile is "".
func Descriptors(pid int) ([]string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	return p.FileDescriptorTargets()
}
