package network

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// thread names a thread of a process.
type thread struct{ pid, tid int }

// usage is what threads, and all CPUs together, have done until a moment. The difference of two usages is what was done
// between the two moments.
type usage struct {
	machine  time.Duration // CPU time of everything on the machine, in ticks of 10 ms
	run      time.Duration // CPU time of the threads
	delay    time.Duration // of the threads in the run queue
	switches int64         // of the threads
}

func (u usage) sub(v usage) usage {
	return usage{u.machine - v.machine, u.run - v.run, u.delay - v.delay, u.switches - v.switches}
}

// look reads the usage. Looks at the same threads take about the same time, so the times of two looks at a thread
// differ by as much as the times at which the looks begin.
func look(proc procfs.FS, threads []thread) (u usage, err error) {
	stat, err := proc.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("CPU time of the machine: %w", err)
	}
	c := stat.CPUTotal // guests are part of user; a hypervisor's steal is nobody's here
	u.machine = time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ) * float64(time.Second))
	for _, t := range threads {
		p, err := proc.Thread(t.pid, t.tid)
		if err != nil {
			return usage{}, fmt.Errorf("thread %d of process %d: %w", t.tid, t.pid, err)
		}
		account, err := p.Schedstat()
		if err != nil {
			return usage{}, fmt.Errorf("delays of thread %d of process %d: %w", t.tid, t.pid, err)
		}
		status, err := p.NewStatus()
		if err != nil {
			return usage{}, fmt.Errorf("switches of thread %d of process %d: %w", t.tid, t.pid, err)
		}
		u.run += time.Duration(account.RunningNanoseconds)
		u.delay += time.Duration(account.WaitingNanoseconds)
		u.switches += int64(status.VoluntaryCtxtSwitches + status.NonVoluntaryCtxtSwitches)
	}
	return u, nil
}
