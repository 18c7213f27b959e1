package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/core/arbiter"
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
	_, err := newDevice(newSpindle(&Engine{}, c.Model), c, 0)
	return c, err
}
