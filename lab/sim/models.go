package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/lab/disk"
)

// algorithms are the values of NodeSpec.Algorithm: the daemon's algorithms and the algorithms of
// lab/schedulers.
var algorithms = append(slices.Clone(arbiter.Algorithms), "drr", "fifo")

// config returns the configuration of the node's device. The reference latencies are the latencies
// of two quanta, as in a profile.
func (n NodeSpec) config() (DeviceConfig, error) {
	c := DeviceConfig{Quantum: int64(n.Quantum), Algorithm: cmp.Or(n.Algorithm, "sfqd2"), Depth: n.Depth}
	mib := func(rate int64) time.Duration { return time.Duration(float64(time.Second) * (1 << 20) / float64(rate)) }
	rate := int64(n.Rate)
	switch n.Disk {
	case "hdd", "":
		rate = cmp.Or(rate, 150_000_000)
		c.Model = disk.HDD(rate)
		c.Model.CapacityBytes = 4 << 40
		c.Quantum, c.Depth = cmp.Or(c.Quantum, 2<<20), cmp.Or(c.Depth, 2)
		c.Read = depth.Line{Fixed: 2 * c.Model.SeekMax, PerMiB: 2 * mib(rate)}
		if n.Profile {
			c.Cost = profiled(c.Model)
		}
	case "ssd", "nvme":
		c.Model = disk.SSD(cmp.Or(rate, 500_000_000))
		// These are the latencies of real flash; the laboratory's modelled disk is slower in all
		// respects.
		c.Model.ReadLatency, c.Model.WriteLatency = 100*time.Microsecond, 200*time.Microsecond
		if n.Disk == "nvme" {
			c.Model = disk.SSD(cmp.Or(rate, 3_000_000_000))
			c.Model.Channels, c.Model.ReadLatency, c.Model.WriteLatency = 32, 80*time.Microsecond, 20*time.Microsecond
		}
		c.Quantum, c.Depth = cmp.Or(c.Quantum, 1<<20), cmp.Or(c.Depth, 8)
		c.Read = depth.Line{Fixed: 4 * c.Model.ReadLatency, PerMiB: 2 * mib(c.Model.BytesPerSecond)}
		c.Write = depth.Line{Fixed: 4 * c.Model.WriteLatency, PerMiB: 2 * mib(c.Model.WriteBytesPerSecond)}
		if n.Profile {
			c.Cost = profiled(c.Model)
		}
	default:
		return c, fmt.Errorf("disk %q: use hdd, ssd or nvme", n.Disk)
	}
	if !slices.Contains(algorithms, c.Algorithm) {
		return c, fmt.Errorf("algorithm %q: use one of %s", c.Algorithm, strings.Join(algorithms, ", "))
	}
	if c.Quantum < 64<<10 || c.Quantum > 64<<20 {
		return c, fmt.Errorf("quantum %d: use 64KiB to 64MiB", c.Quantum)
	}
	if c.Depth < 1 || c.Depth > 1024 {
		return c, fmt.Errorf("depth %d: use 1 to 1024", c.Depth)
	}
	if err := c.Model.Validate(); err != nil {
		return c, err
	}
	if c.Seek = time.Duration(n.Seek); c.Seek < 0 || c.Seek > time.Second {
		return c, fmt.Errorf("seek %v: use at most 1s", c.Seek)
	}
	_, err := newDevice(newSpindle(&Engine{}, c.Model), c, nil)
	return c, err
}

// profiled returns what a profile of the disk measures. On a hard disk, requests at random places cost a mean seek. On a
// solid-state disk, large requests use all channels, so each costs its latency and its transfer.
func profiled(m disk.Model) cost.Model {
	line := func(fixed time.Duration, rate int64) cost.Line {
		return cost.Line{Fixed: fixed, PerMiB: time.Duration(float64(time.Second) * (1 << 20) / float64(rate))}
	}
	if m.Channels > 0 {
		read, write := line(m.ReadLatency, m.BytesPerSecond), line(m.WriteLatency, m.WriteBytesPerSecond)
		return cost.Model{Read: cost.Coefficients{Random: read, Sequential: read}, Write: cost.Coefficients{Random: write, Sequential: write}}
	}
	// The mean of the square root of the distance of two random places is 8/15.
	seek := m.SeekMin + (m.SeekMax-m.SeekMin)*8/15
	of := cost.Coefficients{Random: line(seek, m.BytesPerSecond), Sequential: line(0, m.BytesPerSecond)}
	return cost.Model{Read: of, Write: of}
}
