// Package cost estimates how much device time a request takes, with a linear model, and corrects
// the model while the device runs (tracker.go).
//
// Shares are shares of service, and service is device time, not bytes. On a hard disk, 64 KiB at a
// new place take as long as one more megabyte of a sequential read, and an SSD writes more slowly
// than it reads. The device time of a single request cannot be observed while other requests are in
// flight, because its latency is mostly waiting. So the cost is predicted: a part for each request
// and a part for each byte, separately for reads and writes, and for sequential and random
// requests. This is the linear model of the kernel's iocost controller.
//
// IBIS (section 4) charges bytes, and takes device time into account only by the choice of the
// depth. Here, the tags of SFQ advance by device time, so weights divide the scarce resource.
//
// The unit is time at saturation: a busy device completes one second of cost per second. If a
// device works on several requests at a time, the cost of each is less than its latency.
package cost

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Limits of a model. Values beyond them are measurement errors, for example the speed of the page
// cache.
const (
	FixedMax  = time.Second           // the largest fixed part
	PerMiBMin = 10 * time.Microsecond // 105 GB/s
	PerMiBMax = 10 * time.Second      // 105 KB/s

	// Max bounds the cost of a request. Sums of costs need no check for overflow.
	Max = 1000 * time.Second
)

// Line is a cost that is linear in a request's bytes: Fixed plus PerMiB for each MiB.
type Line struct{ Fixed, PerMiB time.Duration }

// Of returns the cost of a request of that many bytes, 0 to Max, rounded down to nanoseconds.
// Negative values count as 0.
func (l Line) Of(bytes int64) time.Duration {
	hi, lo := bits.Mul64(uint64(max(l.PerMiB, 0)), uint64(max(bytes, 0)))
	if hi >= 1<<19 { // the quotient does not fit into a Duration
		return Max
	}
	transfer := time.Duration(hi<<44 | lo>>20)
	return min(min(transfer, Max)+min(max(l.Fixed, 0), Max), Max)
}

func (l Line) validate(what string) error {
	var errs []error
	if l.Fixed < 0 || l.Fixed > FixedMax {
		errs = append(errs, fmt.Errorf("cost of %s: %v for each request: use 0 to %v", what, l.Fixed, FixedMax))
	}
	if l.PerMiB < PerMiBMin {
		errs = append(errs, fmt.Errorf("cost of %s: %v for each MiB is below %v, faster than any disk: the page cache may have been measured", what, l.PerMiB, PerMiBMin))
	}
	if l.PerMiB > PerMiBMax {
		errs = append(errs, fmt.Errorf("cost of %s: %v for each MiB is above %v, slower than any disk: it may be failing, or have been busy", what, l.PerMiB, PerMiBMax))
	}
	return errors.Join(errs...)
}

// Coefficients are the costs of one direction. A request is sequential if it begins where the
// device's last request ended. Alone is the latency of a random request on an otherwise idle
// device. This latency is larger than the cost if the device works on several requests at a time. A
// zero Alone means that the latency equals the cost.
type Coefficients struct{ Random, Sequential, Alone Line }

func (c Coefficients) validate(what string) error {
	err := errors.Join(c.Random.validate("random "+what), c.Sequential.validate("sequential "+what))
	if c.Alone != (Line{}) {
		err = errors.Join(err, c.Alone.validate(what+" alone"))
	}
	if c.Random.Fixed < c.Sequential.Fixed || c.Random.PerMiB < c.Sequential.PerMiB {
		err = errors.Join(err, fmt.Errorf("cost of random %s, %v + %v/MiB, is below that of sequential ones, %v + %v/MiB: random requests cannot be cheaper",
			what, c.Random.Fixed, c.Random.PerMiB, c.Sequential.Fixed, c.Sequential.PerMiB))
	}
	return err
}

// Model contains the costs of requests on a device.
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

// wholeFrom is the part above which a request counts as keeping the whole device busy, because
// measured lines have errors of a few percent.
const wholeFrom = 0.9

// Part returns the part of the device, above 0 to 1, that a request keeps busy while it is alone.
// It is the request's cost divided by its latency.
func (m Model) Part(write bool, bytes int64) float64 {
	c := m.of(write)
	cost, alone := c.Random.Of(bytes), c.Alone.Of(bytes)
	if cost <= 0 || float64(cost) >= wholeFrom*float64(alone) {
		return 1
	}
	return float64(cost) / float64(alone)
}

// Validate returns an error for a model that no disk has: values beyond the limits, or random
// requests that are cheaper than sequential ones. Of also works for such a model.
func (m Model) Validate() error {
	return errors.Join(m.Read.validate("reads"), m.Write.validate("writes"))
}
