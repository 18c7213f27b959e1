package isolation

import (
	"context"
	"fmt"
	"math"
)

// fullSpeed is the protected job alone on disks without a limit: only the CPU bounds its reads.
var fullSpeed = Phase{Name: "full-speed", Unlimited: true}

const (
	// calibratedPart is the protected job's demand at full speed as a part of the disks' rate. On
	// disks of that rate the job uses 5 to 10 percentage points less, because reading and
	// computing overlap only partly. Both values lie between demandMin and demandMax.
	calibratedPart = 0.70
	// rateBound bounds the rate to between a quarter of the kind's usual rate and four times that
	// rate. At a quarter, a quantum takes 0.7 s; at four times, the aggressor's output still fits
	// on the disk.
	rateBound = 4
	// calibratedSeconds bounds the time for which the protected job does I/O, on a slow machine
	// too. The job's input shrinks accordingly, but not below leastInput of its size.
	calibratedSeconds = 18
	leastInput        = 1. / 3
	// calibratedBytes is the number of bytes that the aggressor writes at least on disks of their
	// kind's usual rate. On other disks it writes in proportion to their rate, to outlast the
	// protected job, but not less than slowestBytes of that number: a slow disk may mean a slow
	// CPU, on which the protected job takes longer.
	calibratedBytes = 2560 * mib
	slowestBytes    = 0.6
)

// calibrationInput returns the size of the protected job's input in the first run. It is half of
// the usual size: this is enough to measure the job's rate, and the first report appears sooner.
func calibrationInput(p ProtectedSetup) int64 {
	half := p.InputBytes / 2
	return max(half-half%(mib*int64(p.Files)), mib*int64(p.Files))
}

// Calibration describes the chosen rate of the disks and the run from which the rate follows.
type Calibration struct {
	DemandMBps float64 `json:"demand_mb_s"` // of the protected job alone on disks without a limit, while it does I/O
	RuntimeS   float64 `json:"runtime_s"`   // of that run
	RateMBps   float64 `json:"rate_mb_s"`   // of each disk
	Disks      int     `json:"disks"`
	LeastMBps  float64 `json:"least_mb_s"`
	MostMBps   float64 `json:"most_mb_s"`
	Part       float64 `json:"part"` // the demand / the rate of all disks
}

// Calibrate returns the set-up with a disk rate that fits this machine: the protected job alone
// uses most of the rate, but not all of it. r is the job's run on disks without a limit. The same
// run always gives the same set-up.
func Calibrate(s Setup, r Run) (Setup, Calibration, error) {
	if !(r.DemandMBps > 0) {
		return s, Calibration{}, fmt.Errorf("measure %s alone: the disks' counters show no I/O; set the disks' rate with --disk-rate", s.protected().title())
	}
	own := float64(s.Disk.BytesPerSecond) / megabyte
	c := Calibration{DemandMBps: r.DemandMBps, RuntimeS: r.RuntimeS, Disks: s.Disk.DataNodes, LeastMBps: own / rateBound, MostMBps: own * rateBound}
	disks := float64(c.Disks)
	rate := math.Round(10*r.DemandMBps/calibratedPart/disks) / 10
	c.RateMBps = min(max(rate, c.LeastMBps), c.MostMBps)
	c.Part = r.DemandMBps / (c.RateMBps * disks)

	faster := c.RateMBps / own
	s.Disk.SetRate(int64(math.Round(c.RateMBps * megabyte)))
	scale := func(bytes int64) int64 { return max(1, int64(math.Round(float64(bytes)*faster/mib))) * mib }
	s.Kernel.DirtyBackgroundBytes = scale(s.Kernel.DirtyBackgroundBytes)
	s.Kernel.DirtyBytes = max(scale(s.Kernel.DirtyBytes), s.Kernel.DirtyBackgroundBytes+mib)
	if s.Penstock.BacklogBytes > 0 {
		s.Penstock.BacklogBytes = max(scale(s.Penstock.BacklogBytes), 2*s.Penstock.QuantumBytes)
	}
	if s.Penstock.DirtyBackgroundBytes > 0 {
		s.Penstock.DirtyBackgroundBytes = min(scale(s.Penstock.DirtyBackgroundBytes), s.Kernel.DirtyBytes-mib)
	}
	s.Penstock.ReferenceRead.PerMiBMillis /= faster
	s.Penstock.ReferenceWrite.PerMiBMillis /= faster
	s.Aggressor.Bytes = int64(float64(max(s.Aggressor.Bytes, calibratedBytes)) * max(slowestBytes, faster))
	if p := &s.Protected; p.InputBytes > 0 {
		most := int64(r.DemandMBps * megabyte * calibratedSeconds)
		p.InputBytes = min(p.InputBytes, max(most, int64(float64(p.InputBytes)*leastInput)))
		p.InputBytes -= p.InputBytes % (mib * int64(p.Files))
	}
	return s, c, s.Validate()
}

// text returns a sentence about the chosen rate and the reason for it.
func (c Calibration) text(protected string) string {
	percent, outside := demandPercent(c.Part)
	text := fmt.Sprintf("The disks (%d) have a rate of %.1f MB/s each. %s alone, on disks without a limit, moves %.1f MB/s while it does I/O: %.0f %% of the rate of all disks",
		c.Disks, c.RateMBps, protected, c.DemandMBps, percent)
	if outside {
		text += fmt.Sprintf(", not %.0f to %.0f %%, because the rate is bounded: %g to %g MB/s", demandMin*100, demandMax*100, c.LeastMBps, c.MostMBps)
	}
	return text + "."
}

// calibrate runs the protected job alone on disks without a limit, chooses their rate, and changes
// the set-up and the machine accordingly. input is the job's usual input, in bytes.
func (x *Experiment) calibrate(ctx context.Context, m *Machine, input int64) error {
	t := Turn{fullSpeed, 1}
	r, err := x.turn(ctx, t, nil)
	if err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	x.finished(r)
	x.Setup.Protected.InputBytes = input
	setup, c, err := Calibrate(x.Setup, r)
	if err != nil {
		return err
	}
	first := Summarise(setup, []Phase{fullSpeed}, []Run{r})
	first.Calibration, first.pending = &c, len(x.missing(nil))
	if err := x.writeReport(first); err != nil {
		return err
	}
	x.Setup, x.calibration = setup, &c
	x.say("%s", c.text(setup.protected().title()))
	return m.change(ctx, x.Phases)
}
