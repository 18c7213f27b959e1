package depth

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Line is the reference latency of one direction, from the device's profile. It is Fixed plus
// PerMiB for each MiB of the request.
type Line struct{ Fixed, PerMiB time.Duration }

func (l Line) at(bytes int64) float64 {
	return float64(l.Fixed) + float64(float64(l.PerMiB)*float64(bytes))/(1<<20)
}

func (l Line) validate(direction string) error {
	if l.Fixed < 0 || l.PerMiB < 0 || l == (Line{}) {
		return fmt.Errorf("depth: reference latency of %s is %v + %v/MiB: both parts must be 0 or more, and one of them above 0; profile the device", direction, l.Fixed, l.PerMiB)
	}
	return nil
}

// Config configures a Controller. Only Read is required.
type Config struct {
	// Min and Max bound D, in requests: whole numbers, 1 <= Min <= Max. 0 means 1 and 12, as in the
	// paper.
	Min, Max float64

	// Start is the first D, within the bounds. 0 means Min: applications are then protected as soon
	// as the controller starts, and throughput rises with D.
	Start float64

	// Gain is K, above 0: the number of requests by which D changes if the error equals Lref. 0
	// means 1.
	Gain float64

	// Read and Write are the reference latencies. Without Write, Read applies to both directions.
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
	// The conditions are written so that NaN fails.
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

// Report counts what a Controller did since New. Periods without completed requests are not counted.
type Report struct {
	Periods      int           // periods in which requests completed
	AtMin, AtMax int           // of these, with the depth at that bound
	Held         int           // of these, with an increase withheld because the depth had held no request back
	Clipped      int           // of these, late periods whose decrease was clipped
	Latency      time.Duration // L of the last counted period, including the part of foreign I/O
	Others       float64       // part of foreign I/O in the last counted period, 0 to OthersMax
	Reference    time.Duration // Lref of the last counted period
	Depth        float64       // D now, not rounded
}
