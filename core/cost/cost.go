// Package cost says how much of a device's time a request takes, by a linear
// model, and corrects the model while the device runs (tracker.go).
//
// Shares are shares of service, and service is device time, not bytes: on a hard
// disk 64 KiB from a new place take as long as a megabyte read on, and a flash
// disk writes slower than it reads. The time of a single request cannot be seen
// from outside while others are in flight: its latency is mostly waiting. So the
// cost is predicted: a part for the request and a part for each byte, for reads
// and writes, where the device goes on and where it has to go to a new place.
// That is the linear model of the kernel's iocost controller. IBIS (section 4)
// charges bytes and leaves the device's time to the choice of the depth; here
// the tags of SFQ move by device time, so that weights share out what is scarce.
//
// The unit is time at saturation: a second of a busy device does a second of
// cost. Where a device works on several requests at a time, each costs less than
// it takes.
package cost

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// The bounds of a model. What lies beyond them is no disk but a mistake, such
// as a rate that was measured from the page cache.
const (
	FixedMax  = time.Second           // of a line's part for each request
	PerMiBMin = 10 * time.Microsecond // 105 GB/s
	PerMiBMax = 10 * time.Second      // 105 KB/s

	// Max is the cost of a request that would cost more. Whoever adds up costs
	// can do so without looking for overflow.
	Max = 1000 * time.Second
)

// Line is a cost that grows with a request's bytes: Fixed + PerMiB for every
// MiB.
type Line struct{ Fixed, PerMiB time.Duration }

// Of returns the cost of a request of so many bytes, 0 to Max, rounded down to
// nanoseconds. Negative parts and negative bytes count as 0.
func (l Line) Of(bytes int64) time.Duration {
	hi, lo := bits.Mul64(uint64(max(l.PerMiB, 0)), uint64(max(bytes, 0)))
	if hi >= 1<<19 { // what is left after the division does not fit a Duration
		return Max
	}
	transfer := time.Duration(hi<<44 | lo>>20)
	return min(min(transfer, Max)+min(max(l.Fixed, 0), Max), Max)
}

func (l Line) validate(what string) error {
	var errs []error
	if l.Fixed < 0 || l.Fixed > FixedMax {
		errs = append(errs, fmt.Errorf("cost of %s: %v for each request: it must be 0 to %v", what, l.Fixed, FixedMax))
	}
	if l.PerMiB < PerMiBMin {
		errs = append(errs, fmt.Errorf("cost of %s: %v for each MiB is below %v: no disk is that fast; was memory measured?", what, l.PerMiB, PerMiBMin))
	}
	if l.PerMiB > PerMiBMax {
		errs = append(errs, fmt.Errorf("cost of %s: %v for each MiB is above %v: no disk is that slow; is it failing, or busy with something else?", what, l.PerMiB, PerMiBMax))
	}
	return errors.Join(errs...)
}

// Coefficients are one direction's lines. A request is Sequential if it begins
// where the device's last one ended. Alone is the latency of a random request
// while the device has no other: more than its cost where the device works on
// several at a time. Zero means as much as its cost.
type Coefficients struct{ Random, Sequential, Alone Line }

func (c Coefficients) validate(what string) error {
	err := errors.Join(c.Random.validate("random "+what), c.Sequential.validate("sequential "+what))
	if c.Alone != (Line{}) {
		err = errors.Join(err, c.Alone.validate(what+" alone"))
	}
	if c.Random.Fixed < c.Sequential.Fixed || c.Random.PerMiB < c.Sequential.PerMiB {
		err = errors.Join(err, fmt.Errorf("cost of random %s, %v + %v/MiB, is below that of sequential ones, %v + %v/MiB: a new place cannot be cheaper",
			what, c.Random.Fixed, c.Random.PerMiB, c.Sequential.Fixed, c.Sequential.PerMiB))
	}
	return err
}

// Model is a device's costs.
type Model struct{ Read, Write Coefficients }

// Of returns the device time of a request, 0 to Max.
func (m Model) Of(write, sequential bool, bytes int64) time.Duration {
	c := m.of(write)
	if sequential {
		return c.Sequential.Of(bytes)
	}
	return c.Random.Of(bytes)
}

func (m *Model) of(write bool) *Coefficients {
	if write {
		return &m.Write
	}
	return &m.Read
}

// wholeFrom is the part of the device above which a request is taken to keep all
// of it busy: measured lines are some percent off.
const wholeFrom = 0.9

// Part returns which part of the device a request keeps busy while it is alone,
// above 0 to 1: its cost by its latency.
func (m Model) Part(write bool, bytes int64) float64 {
	c := m.of(write)
	cost, alone := c.Random.Of(bytes), c.Alone.Of(bytes)
	if cost <= 0 || float64(cost) >= wholeFrom*float64(alone) {
		return 1
	}
	return float64(cost) / float64(alone)
}

// Validate refuses what no disk has: parts outside of the bounds above, and
// random requests that are cheaper than sequential ones. Of works for models
// that it refuses, too.
func (m Model) Validate() error {
	return errors.Join(m.Read.validate("reads"), m.Write.validate("writes"))
}
