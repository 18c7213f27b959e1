package node

import (
	"context"
	"maps"
	"sync"
	"time"

	"penstock/node/ipc"
	"penstock/node/monitor/processes"
	"penstock/node/orchestrators"
	"penstock/node/status"
)

// This file follows the processes of applications, containers and systemd units, and reports in the
// status what they have read and written and how long they have waited.

const (
	// processesPeriod is the time between two looks if a look takes at most a two-hundredth of it. What a process does after the last
	// look at it is lost unless its parent is of the same application, and tasks of MapReduce are short.
	processesPeriod   = time.Second
	slowestPeriod     = 5 * time.Second
	maxStatusOwners   = 256
	turnOnAccounting  = "waits for block I/O are not counted: sysctl kernel.task_delayacct=1 turns them on, for processes of all kinds"
	impossibleWaits   = "the kernel has counted more waits for block I/O than time has passed (a fault of Linux, seen in 6.18 when CPUs are busy): they are cut off, and may still be too large"
	noProcessAccounts = "processes are not followed: "
)

// processWatch is the watch and its last error.
type processWatch struct {
	*processes.Watch // nil: it could not be opened

	names *orchestrators.Directory // nil: no containers of orchestrators are known

	mu      sync.Mutex
	mistake string
	// members are the processes with an agent, by their registrations, with the flows of their
	// streams. A mode that trusts accepts the flow that the process claims.
	members map[*registration]member
}

type member struct {
	pid int
	processes.Member
}

func newProcessWatch(hierarchy string) *processWatch {
	w, err := processes.New(hierarchy)
	p := &processWatch{Watch: w, members: map[*registration]member{}}
	if err != nil {
		p.mistake = noProcessAccounts + err.Error()
	}
	return p
}

// nameBy makes the watch use the applications that orchestrators report.
func (w *processWatch) nameBy(names *orchestrators.Directory) {
	if w.names = names; w.Watch != nil && names != nil {
		w.ApplicationOf(names.Application)
	}
}

// enter adds the process of an agent that works for one application.
func (w *processWatch) enter(r *registration, p ipc.Peer) {
	if r.own == "" {
		return
	}
	start, err := processes.StartOf(int(p.PID))
	if err != nil {
		return // the process has ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members[r] = member{int(p.PID), processes.Member{Flow: r.own, Container: p.Owner.Container, Start: start}}
}

// leave removes the process of an agent.
func (w *processWatch) leave(r *registration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.members, r)
}

// flows returns the processes with an agent and those in containers of orchestrators, and the flows for which they work.
func (w *processWatch) flows() map[int]string {
	all := map[int]string{}
	if w.Watch != nil {
		maps.Copy(all, w.Working())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		all[m.pid] = m.Flow
	}
	return all
}

// follow looks at the processes until ctx ends.
func (w *processWatch) follow(ctx context.Context) {
	if w.Watch == nil {
		return
	}
	defer w.Close()
	ticker := time.NewTicker(processesPeriod)
	defer ticker.Stop()
	for {
		members := map[int]processes.Member{}
		unclear := map[int]bool{}
		w.mu.Lock()
		for _, m := range w.members {
			if other, two := members[m.pid]; two && other != m.Member {
				unclear[m.pid] = true // its connections name several flows
			}
			members[m.pid] = m.Member
		}
		w.mu.Unlock()
		maps.DeleteFunc(members, func(pid int, _ processes.Member) bool { return unclear[pid] })
		mistake, begun := "", time.Now()
		if err := w.Look(begun, members); err != nil {
			mistake = err.Error()
		}
		ticker.Reset(lookPeriod(time.Since(begun)))
		w.mu.Lock()
		w.mistake = mistake
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// lookPeriod returns the time until the next look if one takes this long. However many processes there are, looks take a small part
// of a CPU's time: half a per cent, or up to five per cent if slowestPeriod is too short for that.
func lookPeriod(look time.Duration) time.Duration {
	return max(processesPeriod, min(200*look, slowestPeriod), 20*look)
}

func (w *processWatch) status() status.Processes {
	w.mu.Lock()
	out := status.Processes{Error: w.mistake, Top: []status.ProcessGroup{}}
	w.mu.Unlock()
	if w.Watch == nil {
		return out
	}
	s := w.Snapshot(maxStatusOwners)
	out.BlockDelayCounted, out.LeftOff, out.AtBound, out.Seconds = s.Accounting, s.LeftOff, s.AtBound, s.Seconds
	switch {
	case !s.Accounting:
		out.Note = turnOnAccounting
	case s.Implausible:
		out.Note = impossibleWaits
	}
	for _, g := range s.Sums {
		out.Top = append(out.Top, status.ProcessGroup{Flow: g.Flow, Owner: namedOwner(w.names, g.Owner), Processes: g.Processes,
			Bytes: status.Pair{Read: g.Read, Written: g.Written}, BlockDelayNS: g.BlockDelay.Nanoseconds(), RunDelayNS: g.RunDelay.Nanoseconds(),
			CPUNS: g.CPU.Nanoseconds(), MemoryBytes: g.Memory,
			Window: status.ProcessWindow{Bytes: status.Pair{Read: g.Window.Read, Written: g.Window.Written},
				BlockDelayNS: g.Window.BlockDelay.Nanoseconds(), RunDelayNS: g.Window.RunDelay.Nanoseconds(), CPUNS: g.Window.CPU.Nanoseconds()}})
	}
	return out
}
