package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"penstock/core/ladder"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
	"penstock/node/control/gate"
	"penstock/node/control/pacing"
	"penstock/node/control/shaper"
)

// This file decides which mechanism holds what (package ladder), and finds out what this node has.

// Examine finds out which mechanisms this node has. Mechanisms that are not among the allowed ones are
// not available. It changes nothing.
func Examine(allowed []string) ladder.Machine {
	m := ladder.Machine{}
	for _, r := range ladder.All() {
		name, _, _ := strings.Cut(string(r), " ") // both versions of cgroups are named cgroup, and both gates gate
		if !slices.Contains(allowed, name) {
			m[r] = ladder.Availability{Why: fmt.Sprintf("the settings do not name it; to use it, add %s to control.mechanisms", name)}
			continue
		}
		m[r] = examine(r)
	}
	return m
}

func examine(r ladder.Mechanism) ladder.Availability {
	var err error
	switch r {
	case ladder.Gate, ladder.GateReads:
		var ranged bool
		switch ranged, err = gate.Available(); {
		case err != nil:
		case r == ladder.Gate && !ranged:
			err = errors.New("the kernel does not report pre-content events of fanotify; Linux 6.14 or later is needed")
		case r == ladder.GateReads && ranged:
			err = errors.New("on this kernel the gate holds reads and writes")
		}
	case ladder.CgroupV1, ladder.CgroupV2:
		version, why := cgroupVersion()
		if err = why; err == nil && (version == cgroup.V2) != (r == ladder.CgroupV2) {
			err = fmt.Errorf("the machine's block I/O controller belongs to cgroup %v", version)
		}
	case ladder.Pacing:
		err = pacing.Available()
	case ladder.Shaper:
		err = shaper.Available()
	case ladder.Freezer:
		err = freezer.Available()
	}
	if err != nil {
		return ladder.Availability{Why: err.Error()}
	}
	return ladder.Availability{OK: true}
}

func cgroupVersion() (cgroup.Version, error) {
	if err := cgroup.Available(); err != nil {
		return 0, err
	}
	c, err := cgroup.Open(func() []int { return nil })
	if err != nil {
		return 0, err
	}
	return c.Version(), nil
}

// decision is the Hold of a flow of processes at a place, before it is in force.
type decision struct {
	Hold
	process Process
	place   Place
	taken   ladder.Mechanism // empty: none
}

// limitsCgroup reports whether limits or weights of a cgroup hold the flow.
func (d *decision) limitsCgroup() bool {
	return d.taken == ladder.CgroupV1 || d.taken == ladder.CgroupV2
}

// Preview returns what Apply would do on this node, and changes nothing. protected has the files that
// the daemon needs (gate.Options).
func Preview(mechanisms, protected []string, w Want) (ladder.Machine, []Hold) {
	m := Examine(mechanisms)
	var cgroups *cgroup.Controller
	if m[ladder.CgroupV1].OK || m[ladder.CgroupV2].OK {
		cgroups, _ = cgroup.Open(func() []int { return nil }) // no error: Examine has found the controller
	}
	var holds []Hold
	for _, d := range decide(w, m, cgroups, newExaminer(protected).of(m, w.Places), func() []int { return nil }) {
		holds = append(holds, d.Hold)
	}
	return m, holds
}

// decide chooses a mechanism for each flow on each device. cgroups may be nil. why is the examiner's answer.
func decide(w Want, m ladder.Machine, cgroups *cgroup.Controller, why map[string]error, pids func() []int) []*decision {
	var all []*decision
	for _, place := range w.Places {
		for _, p := range w.Processes {
			h := ladder.Hold{Weight: p.Weight, Limit: p.Limit, Marks: why[place.Path] == nil, Service: p.Service, Cgroup: p.Cgroup != "" && p.Command == "" && p.UID == gate.AnyUser}
			if e := why[place.Path]; e != nil {
				h.WhyNot = strings.ReplaceAll(e.Error(), "\n", "; ")
			}
			if h.Cgroup && cgroups != nil {
				h.Weights = cgroups.CanWeigh(place.Device) == nil
				if g, err := cgroups.At(p.Cgroup); err == nil {
					h.Writeback = cgroups.HoldsBufferedWrites(g) == nil
				}
			}
			if h.Cgroup && m[ladder.Freezer].OK {
				h.Protected = hasProtected(p.Cgroup, pids())
			}
			d := &decision{Hold: Hold{Flow: p.Flow, Where: place.Name, Weight: p.Weight, Limit: p.Limit, Steps: ladder.Choose(h, m)}, process: p, place: place}
			if taken, ok := ladder.Taken(d.Steps); ok && w.Enforce && !p.Observe {
				d.taken = taken
			}
			all = append(all, d)
		}
	}
	oneMechanism(all)
	return all
}

// oneMechanism removes decisions, so that one mechanism holds a flow on a device, even if the ladder has
// chosen different ones for its directories there, and that only the first entry that names a cgroup holds
// the cgroup. The gate's rules are the same on all devices, so on a kernel whose gate holds reads only, it does not
// hold a flow that a cgroup holds on any device. The freezer stops I/O on all devices, so it does not hold a flow that another mechanism holds
// on any device.
func oneMechanism(all []*decision) {
	type use struct {
		flow   string
		device cgroup.Device
	}
	by := map[use]ladder.Mechanism{}
	owner := map[string]string{}   // flow by cgroup
	otherwise := map[string]bool{} // flows that a mechanism other than the freezer holds
	for _, d := range all {
		k := use{d.Flow, d.place.Device}
		if d.taken.IsGate() || by[k] == "" {
			by[k] = d.taken
		}
		otherwise[d.Flow] = otherwise[d.Flow] || d.taken != "" && d.taken != ladder.Freezer
		if c := d.process.Cgroup; c != "" && owner[c] == "" {
			owner[c] = d.Flow
		}
	}
	inCgroup := map[string]bool{} // flows that a cgroup holds
	for _, d := range all {
		if d.limitsCgroup() && d.taken == by[use{d.Flow, d.place.Device}] && owner[d.process.Cgroup] == d.Flow {
			inCgroup[d.Flow] = true
		}
	}
	for _, d := range all {
		pass := func(format string, args ...any) {
			d.Steps[len(d.Steps)-1] = ladder.Step{Mechanism: d.taken, Why: fmt.Sprintf(format, args...)}
			d.taken = ""
		}
		switch first := by[use{d.Flow, d.place.Device}]; {
		case d.taken == "":
		case d.taken != first:
			pass("the mechanism %s already holds the flow on this device, because of another directory", first)
		case d.taken == ladder.GateReads && inCgroup[d.Flow]:
			pass("a cgroup holds the flow on another device, and the gate would hold it there, too")
		case d.taken == ladder.Freezer && otherwise[d.Flow]:
			pass("another mechanism holds the flow on another device, and the freezer would hold it on all")
		case !d.taken.IsGate() && owner[d.process.Cgroup] != d.Flow:
			pass("an earlier entry, %s, holds the cgroup", owner[d.process.Cgroup])
		}
	}
}
