package control

import (
	"errors"
	"testing"

	"penstock/core/ladder"
	"penstock/node/mounts"
	"penstock/node/mounts/mountstest"
)

// While a disk hangs, the last answer about it counts.
func TestPlacesOnADiskThatHangs(t *testing.T) {
	sound, other := t.TempDir(), mountstest.OtherDisk(t)
	places := []Place{{Path: sound}, {Path: other}, {Path: sound}}
	machine := ladder.Machine{ladder.Gate: {OK: true}}
	refused := errors.New("refused")
	asked := map[string]int{}
	e := newExaminer(nil)
	e.mayHold = func(dir string) error {
		asked[dir]++
		if dir == sound {
			return refused
		}
		return nil
	}
	check := func(want error) {
		t.Helper()
		if why := e.of(machine, places); why[sound] != refused || !errors.Is(why[other], want) || len(why) != 2 {
			t.Errorf("%v", why)
		}
	}
	check(nil)
	answer := mountstest.Hang(t, &e.calls, other)
	check(nil)
	if asked[sound] != 2 || asked[other] != 1 {
		t.Errorf("examined: %v", asked)
	}
	e.last = nil
	check(mounts.ErrHangs) // it hangs from the start
	answer()
	check(nil)
	if why := e.of(ladder.Machine{}, places); why != nil {
		t.Errorf("without a gate: %v", why)
	}
}
