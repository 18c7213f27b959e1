package control

import (
	"time"

	"penstock/core/ladder"
	"penstock/node/control/gate"
	"penstock/node/mounts"
)

// examiner finds out whether the file systems of directories may be held. While a disk hangs, the last
// answer about it stays: nothing changes there, and holds on other disks can change.
type examiner struct {
	mayHold func(dir string) error
	calls   mounts.Calls
	last    map[string]error
}

// placePatience is the longest wait for a directory's disk.
const placePatience = 250 * time.Millisecond

func newExaminer(protected []string) *examiner {
	return &examiner{mayHold: func(dir string) error { return gate.MayHold(dir, protected) }, last: map[string]error{}}
}

// of returns why the file systems of the places cannot be held; nil for one that can be. The map is
// nil if the machine has no gate. Only one goroutine may call it.
func (e *examiner) of(m ladder.Machine, places []Place) map[string]error {
	if !m[ladder.Gate].OK && !m[ladder.GateReads].OK {
		return nil
	}
	all := map[string]error{}
	for _, p := range places {
		if _, known := all[p.Path]; known {
			continue
		}
		answer, err := mounts.Do(&e.calls, 0, p.Path, placePatience, func() error { return e.mayHold(p.Path) }, nil)
		last, known := e.last[p.Path]
		switch {
		case err == nil:
			all[p.Path] = answer
		case known:
			all[p.Path] = last
		default:
			all[p.Path] = err
		}
	}
	e.last = all
	return all
}
