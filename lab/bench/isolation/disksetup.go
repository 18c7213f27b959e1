package isolation

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"penstock/lab/disk"
	"penstock/node/profile"
)

// Kinds of modelled disk.
const (
	HDD = "hdd"
	SSD = "ssd"
)

// DiskSetup describes the modelled disks. Each DataNode has two: the contested disk, and another
// disk for the floor's aggressor. The JSON leaves out fields that a hard disk lacks, so journals
// without these fields stay valid.
type DiskSetup struct {
	Kind           string `json:"kind,omitempty"` // SSD; "" is a hard disk
	BytesPerSecond int64  `json:"bytes_per_second"`
	SeekMinMicros  int64  `json:"seek_min_us"`
	SeekMaxMicros  int64  `json:"seek_max_us"`
	SizeBytes      int64  `json:"size_bytes"`
	DataNodes      int    `json:"datanodes"`
	Modelled       bool   `json:"modelled"` // false: the folder's own disk, see Notes

	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty"` // 0: BytesPerSecond
	Channels            int   `json:"channels,omitempty"`
	ReadLatencyMicros   int64 `json:"read_latency_us,omitempty"` // of a request on its channel
	WriteLatencyMicros  int64 `json:"write_latency_us,omitempty"`
	RequestKB           int   `json:"request_kb,omitempty"` // size of the largest request; 0: 1024
}

// newDisk returns the preset of a kind of disk, at the kind's usual rate.
func newDisk(kind string) (DiskSetup, error) {
	var m disk.Model
	d := DiskSetup{SizeBytes: 6 << 30, Modelled: true}
	switch kind {
	case HDD:
		m, d.DataNodes = disk.HDD(disk.HDDRate), 2
	case SSD:
		m, d.DataNodes, d.Kind = disk.SSD(disk.SSDRate), 1, SSD
		// The largest request is small in proportion to the rate. With 1 MiB, as on faster disks,
		// this disk would need more than a second for a queue full of writeback.
		d.RequestKB = 128
	default:
		return d, fmt.Errorf("--disk %q: choose %s or %s", kind, HDD, SSD)
	}
	d.BytesPerSecond, d.WriteBytesPerSecond = m.BytesPerSecond, m.WriteBytesPerSecond
	d.SeekMinMicros, d.SeekMaxMicros = m.SeekMin.Microseconds(), m.SeekMax.Microseconds()
	d.Channels = m.Channels
	d.ReadLatencyMicros, d.WriteLatencyMicros = m.ReadLatency.Microseconds(), m.WriteLatency.Microseconds()
	return d, nil
}

// SetRate changes the rate of reads, and that of writes in proportion.
func (d *DiskSetup) SetRate(bytesPerSecond int64) {
	if d.WriteBytesPerSecond > 0 && d.BytesPerSecond > 0 {
		d.WriteBytesPerSecond = int64(float64(d.WriteBytesPerSecond) / float64(d.BytesPerSecond) * float64(bytesPerSecond))
	}
	d.BytesPerSecond = bytesPerSecond
}

// useProfile records the digest of the disks' profile in the set-up. The daemon ignores a profile
// of another disk. Here such a profile is an error, because the experiment would run without the
// requested profile.
func (s *Setup) useProfile(file string) error {
	if file == "" {
		return nil
	}
	p, err := profile.Load(file)
	if err != nil {
		return err
	}
	own := profile.Device{Name: s.Disk.kindName(), Bytes: s.Disk.SizeBytes, Rotational: s.Disk.Channels == 0}
	if err := p.Fits(own); err != nil {
		return fmt.Errorf("profile %s is of another kind of disk than this experiment's: %w; profile a disk made by `penstock-lab disk run --kind %s --size %dM`",
			file, err, cmp.Or(s.Disk.Kind, HDD), s.Disk.SizeBytes/mib)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s.Penstock.ProfileSHA256 = fmt.Sprintf("%x", sha256.Sum256(content))
	return nil
}

func (d DiskSetup) model() disk.Model {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return disk.Model{BytesPerSecond: d.BytesPerSecond, WriteBytesPerSecond: d.WriteBytesPerSecond,
		SeekMin: us(d.SeekMinMicros), SeekMax: us(d.SeekMaxMicros), Channels: d.Channels,
		ReadLatency: us(d.ReadLatencyMicros), WriteLatency: us(d.WriteLatencyMicros)}
}

// caps returns the caps of the phases that "throttler" stands for: a sixth, a third, a half and two
// thirds of a disk's rate in the aggressor's direction, in whole MB/s. With a smaller cap the disk
// is idle; a larger cap has hardly any effect.
func (s Setup) caps() []int {
	rate := s.Disk.BytesPerSecond
	if _, reads := s.aggressor().directions(); !reads {
		rate = cmp.Or(s.Disk.WriteBytesPerSecond, rate)
	}
	var caps []int
	for _, part := range []float64{1. / 6, 1. / 3, 1. / 2, 2. / 3} {
		caps = append(caps, max(1, int(math.Round(part*float64(rate)/megabyte))))
	}
	return slices.Compact(caps)
}

func (d DiskSetup) kindName() string {
	if d.Kind == SSD {
		return "solid-state disk"
	}
	return "hard disk"
}

func (d DiskSetup) String() string {
	rate := float64(d.BytesPerSecond) / megabyte
	if d.Channels == 0 {
		return fmt.Sprintf("hard disks of %.1f MB/s, seeks %.1f to %.1f ms", rate,
			float64(d.SeekMinMicros)/1000, float64(d.SeekMaxMicros)/1000)
	}
	return fmt.Sprintf("solid-state disks of %.1f MB/s read, %.1f MB/s written, %d channels, latencies %.1f and %.1f ms",
		rate, float64(cmp.Or(d.WriteBytesPerSecond, d.BytesPerSecond))/megabyte, d.Channels,
		float64(d.ReadLatencyMicros)/1000, float64(d.WriteLatencyMicros)/1000)
}
