// Package counters samples the byte counters of disks during a measurement and computes their
// growth between two instants.
//
// A measurement's window begins and ends at any time between samples, because a job's times are
// known only after the job. So the value of a counter at such a time is interpolated between the
// two nearest samples.
package counters

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Bytes holds the bytes that a disk has read and written since the disk was made.
type Bytes struct{ Read, Write float64 }

// Total returns the sum of the read and the written bytes.
func (b Bytes) Total() float64 { return b.Read + b.Write }

// Sample holds the counters of all disks at an instant, by the disks' names.
type Sample struct {
	At    time.Time
	Disks map[string]Bytes
}

// Samples are samples of the same disks, in the order of time.
type Samples []Sample

// Names returns the names of the disks, sorted.
func (s Samples) Names() []string {
	if len(s) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(s[0].Disks))
}

// Grown returns the growth of a disk's counters from one instant to another, by linear
// interpolation between samples. For an instant outside the samples, the nearest sample is used.
func (s Samples) Grown(from, to time.Time, name string) Bytes {
	a, b := s.at(from, name), s.at(to, name)
	return Bytes{b.Read - a.Read, b.Write - a.Write}
}

// Total returns the growth of all disks' counters together.
func (s Samples) Total(from, to time.Time) (sum Bytes) {
	for _, name := range s.Names() {
		one := s.Grown(from, to, name)
		sum.Read, sum.Write = sum.Read+one.Read, sum.Write+one.Write
	}
	return sum
}

func (s Samples) at(t time.Time, name string) Bytes {
	i, _ := slices.BinarySearchFunc(s, t, func(one Sample, t time.Time) int { return one.At.Compare(t) })
	switch {
	case len(s) == 0:
		return Bytes{}
	case i == 0:
		return s[0].Disks[name]
	case i == len(s):
		return s[i-1].Disks[name]
	}
	a, b := s[i-1], s[i]
	part := float64(t.Sub(a.At)) / float64(b.At.Sub(a.At))
	x, y := a.Disks[name], b.Disks[name]
	return Bytes{x.Read + part*(y.Read-x.Read), x.Write + part*(y.Write-x.Write)}
}

// Every calls f at once, then at each interval, and a last time when ctx ends. It returns at the
// first error.
func Every(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f()
		}
	}
}
