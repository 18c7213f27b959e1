package stand

import (
	"os"
	"path/filepath"
	"time"

	"penstock/lab/disk"
	"penstock/node/profile"
)

// WriteProfile writes a profile of a disk into the run folder and returns its path. The profile is
// computed from the model, so it has no errors of measurement. quantum is in bytes. The reference
// latencies are those of several quanta at a time, plus a tenth: two for a hard disk, which is the
// smallest depth that keeps it busy; three for a solid-state disk, whose channels would be idle for
// 2 % of the time with two.
func (s *Stand) WriteProfile(d *disk.Disk, m disk.Model, quantum int64) (string, error) {
	device, err := profile.Identify("/sys", filepath.Base(d.Device()))
	if err != nil {
		return "", err
	}
	if m.CapacityBytes == 0 {
		m.CapacityBytes = device.Bytes
	}
	read, write := m.Cost(disk.Read, device.Bytes), m.Cost(disk.Write, device.Bytes)
	depth := 2
	if m.Channels > 0 {
		depth = 3
	}
	p := profile.Profile{
		Version: profile.Version, Device: device,
		Cost:      profile.Cost{Read: coefficients(read), Write: new(profile.Coefficients)},
		Reference: profile.Reference{Read: reference(read, depth), Write: new(profile.Latency)},
		Quantum:   profile.Bytes(quantum),
	}
	*p.Cost.Write, *p.Reference.Write = coefficients(write), reference(write, depth)
	text, err := p.Text()
	if err != nil {
		return "", err
	}
	name := s.Path(d.Name() + ".profile")
	return name, os.WriteFile(name, text, 0o600)
}

// coefficients returns the coefficients of a model's costs. Small requests cost Fixed more than large
// ones; a line through both is off by half of that.
func coefficients(c disk.Cost) profile.Coefficients {
	line := func(fixed time.Duration) profile.Line {
		return profile.Line{Fixed: profile.Duration(fixed), PerMiB: profile.Duration(c.PerMiB)}
	}
	return profile.Coefficients{Random: line(c.Fixed/2 + c.Seek), Sequential: line(0), Alone: line(c.Alone)}
}

func reference(c disk.Cost, depth int) profile.Latency {
	const tenth = 1.1
	times := func(d time.Duration) profile.Duration { return profile.Duration(float64(depth) * tenth * float64(d)) }
	return profile.Latency{Line: profile.Line{Fixed: times(c.Fixed + c.Seek), PerMiB: times(c.PerMiB)}, Concurrency: depth}
}
