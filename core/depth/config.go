package depth

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Line is the reference latency of one direction: Fixed + PerMiB for every MiB
// of the request, from profiling the device.
type Line struct{ Fixed, PerMiB time.Duration }

func (l Line) at(bytes int64) float64 {
	return float64(l.Fixed) + float64(float64(l.PerMiB)*float64(bytes))/(1<<20)
}

func (l Line) validate(direction string) error {
	if l.Fixed < 0 || l.PerMiB < 0 || l == (Line{}) {
		return fmt.Errorf("depth: reference latency of %s is %v + %v/MiB: neither may be negative and one must be above 0; profile the device", direction, l.Fixed, l.PerMiB)
	}
	return nil
}

// Config sets up a Controller. The zero value lacks only Read.
type Config struct {
	// Min and Max bound D, in requests. They must be whole, as D is given out
	// rounded down, and 1 <= Min <= Max. 0 means 1 and 12, as in the paper.
	Min, Max float64

	// Start is the first D, within the bounds. 0 means Min: a protected
	// application is safe from the first second, throughput follows.
	Start float64

	// Gain is K, in requests for a latency that is off by all of Lref, above 0.
	// 0 means 1.
	Gain float64

	// Read and Write are the reference latencies. Without Write the device
	// counts as symmetric and Read holds for both.
	Read, Write Line
}

func (c *Config) validate() error {
	if c.Min == 0 {
		c.Min = 1
	}
	if c.Max == 0 {
		c.Max = 12
	}
	if c.Start == 0 {
		c.Start = c.Min
	}
	if c.Gain == 0 {
		c.Gain = 1
	}
	if c.Write == (Line{}) {
		c.Write = c.Read
	}
	// Written so that NaN fails.
	if !(c.Min >= 1 && c.Max >= c.Min && c.Max <= 1<<16) || c.Min != math.Trunc(c.Min) || c.Max != math.Trunc(c.Max) {
		return fmt.Errorf("depth: bounds %v to %v: give whole numbers, 1 <= min <= max <= 65536", c.Min, c.Max)
	}
	if !(c.Start >= c.Min && c.Start <= c.Max) {
		return fmt.Errorf("depth: start %v is not within %v to %v", c.Start, c.Min, c.Max)
	}
	if !(c.Gain > 0 && c.Gain <= 1<<16) {
		return fmt.Errorf("depth: gain %v: it must be above 0; 1 suits most devices", c.Gain)
	}
	return errors.Join(c.Read.validate("reads"), c.Write.validate("writes"))
}

// Report is what a Controller did since New. Periods in which nothing completed
// are left out of every count.
type Report struct {
	Periods      int           // periods in which requests completed
	AtMin, AtMax int           // of these, with the depth given out at that bound while they ran
	Held         int           // of these, a rise was withheld because the depth had held nothing back
	Clipped      int           // of these, late with a fall cut short
	Latency      time.Duration // L of the last one, with the others' part
	Others       float64       // that part, 0..OthersMax
	Reference    time.Duration // Lref of the last one
	Depth        float64       // D now, not rounded
}
