package profile

import (
	"fmt"
	"io"
	"time"

	"penstock/settings"
)

// Describe writes the profile for people to read.
func (p *Profile) Describe(out io.Writer) {
	kind := "flash or virtual"
	if p.Device.Rotational {
		kind = "hard disk"
	}
	fmt.Fprintf(out, "device           %s %s, %.1f GB, %s\n", p.Device.Name, p.Device.Model, float64(p.Device.Bytes)/1e9, kind)
	line := func(name string, l Line, more string) {
		fixed, perMiB := time.Duration(l.Fixed), time.Duration(l.PerMiB)
		fmt.Fprintf(out, "%-16s %v + %v/MiB%s\n", name, fixed.Round(time.Microsecond), perMiB.Round(time.Microsecond), more)
	}
	direction := func(name string, c Coefficients, l Latency) {
		rate := 0.0
		if c.Sequential.PerMiB > 0 {
			rate = float64(1<<20) / time.Duration(c.Sequential.PerMiB).Seconds()
		}
		line("random "+name, c.Random, "")
		line("going on", c.Sequential, "  ("+settings.Rate(rate)+")")
		line("latency alone", c.Alone, "")
		line("reference", l.Line, fmt.Sprintf("  (%d at a time)", l.Concurrency))
	}
	direction("reads", p.Cost.Read, p.Reference.Read)
	if p.Cost.Write != nil && p.Reference.Write != nil {
		direction("writes", *p.Cost.Write, *p.Reference.Write)
	}
	fmt.Fprintf(out, "quantum          %v\n", p.Quantum)
}
