package control

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"penstock/core/ladder"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
)

// This file holds cgroups to a limit by the freezer, the last rung of the ladder for files. The duty, which
// is the part of the time for which a cgroup runs, follows from the bytes that its processes have read and
// written, by the kernel's counters of these processes.

const (
	dutyPeriod = time.Second // interval between two changes of a duty
	// maxFrozenProcesses bounds the processes whose counters are read.
	maxFrozenProcesses = 1024
)

// frozen is a cgroup that the freezer holds.
type frozen struct {
	group   cgroup.Group
	limit   int64
	duty    float64
	moved   map[int]uint64 // by process: bytes read and written
	since   time.Time
	refused int // how often the freezer had refused, when it was last asked
}

// applyFreezer holds the cgroups for which the ladder has chosen the freezer.
func (c *Control) applyFreezer(holds []*decision, now time.Time) {
	wanted := map[string]bool{}
	for _, d := range holds {
		if d.taken != ladder.Freezer {
			continue
		}
		if wanted[d.process.Cgroup] { // on another device: the freezer holds the cgroup on all
			d.Holds = true
			continue
		}
		wanted[d.process.Cgroup] = true
		if err := c.freeze(d.process, now); err != nil {
			d.Error = err.Error()
			continue
		}
		d.Holds = true
	}
	for path, f := range c.frozen {
		if !wanted[path] {
			if err := c.freezer.Lift(c.journal, f.group); err != nil {
				c.note(err)
				continue // the next Apply tries again
			}
			delete(c.frozen, path)
		}
	}
}

func (c *Control) freeze(p Process, now time.Time) error {
	if c.freezer == nil {
		var err error
		if c.freezer, err = freezer.Start(c.options.Protected); err != nil {
			return err
		}
	}
	f := c.frozen[p.Cgroup]
	if f == nil {
		g, err := freezerGroup(p.Cgroup)
		if err != nil {
			return err
		}
		f = &frozen{group: g, duty: 1}
		c.frozen[p.Cgroup] = f
	}
	f.limit = p.Limit
	if now.Sub(f.since) < dutyPeriod {
		return nil
	}
	moved, err := movedBy(f.group)
	if err != nil {
		return err
	}
	rate := 0.
	for pid, bytes := range moved {
		// A process that did not exist a second ago has moved all its bytes since.
		if before := f.moved[pid]; bytes > before {
			rate += float64(bytes - before)
		}
	}
	if f.moved != nil {
		f.duty = ladder.Duty(f.duty, rate/now.Sub(f.since).Seconds(), f.limit, freezer.MinDuty)
	}
	f.moved, f.since = moved, now
	if err := c.freezer.Hold(c.journal, f.group, f.duty, "the policy limits "+p.Flow); err != nil {
		return err
	}
	for _, h := range c.freezer.Held() {
		if h.Group == f.group && h.Refused > f.refused {
			f.refused = h.Refused
			return fmt.Errorf("the cgroup is not frozen: %w", h.Why)
		}
	}
	return nil
}

// hasProtected reports whether a cgroup contains one of the processes, which must not be frozen.
func hasProtected(path string, pids []int) bool {
	g, err := freezerGroup(path)
	if err != nil {
		return false // it does not exist yet
	}
	folder, err := g.Open()
	if err != nil {
		return false
	}
	defer folder.Close()
	return folder.Refuse(pids) != nil
}

// freezerGroup returns the cgroup of a path in the hierarchy of the freezer.
func freezerGroup(path string) (g cgroup.Group, err error) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		var h cgroup.Hierarchy
		if h, err = cgroup.Find(version, freezer.Mechanism); err != nil {
			continue
		}
		if g, err = h.At(path); err == nil {
			return g, nil
		}
	}
	return g, err
}

// movedBy returns how many bytes each process of a cgroup has read from and written to storage.
func movedBy(g cgroup.Group) (map[int]uint64, error) {
	folder, err := g.Open()
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	text, err := folder.Read("cgroup.procs")
	if err != nil {
		return nil, err
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	moved := map[int]uint64{}
	for n, line := range strings.Fields(text) {
		pid, err := strconv.Atoi(line)
		if err != nil || n >= maxFrozenProcesses {
			break
		}
		p, err := fs.Proc(pid)
		if err != nil {
			continue // it has ended
		}
		if io, err := p.IO(); err == nil {
			moved[pid] = io.ReadBytes + io.WriteBytes
		}
	}
	return moved, nil
}
