package contest

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"penstock/lab/disk"
	"penstock/lab/stand"
)

// Units of sizes and of rates. Disks are sold, and modelled, in decimal megabytes.
const (
	MiB      = 1 << 20
	Megabyte = 1_000_000
)

// Kinds of modelled disk.
const (
	HDD = "hdd"
	SSD = "ssd"
)

// Disk describes the modelled disks. There is a contested disk for each DataNode. The JSON leaves out
// fields that a hard disk lacks, so journals without these fields stay valid.
type Disk struct {
	Kind           string `json:"kind,omitempty"` // SSD; "" is a hard disk
	BytesPerSecond int64  `json:"bytes_per_second"`
	SeekMinMicros  int64  `json:"seek_min_us"`
	SeekMaxMicros  int64  `json:"seek_max_us"`
	SizeBytes      int64  `json:"size_bytes"`
	DataNodes      int    `json:"datanodes"`
	Modelled       bool   `json:"modelled"` // false: the folder's own disk

	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty"` // 0: BytesPerSecond
	Channels            int   `json:"channels,omitempty"`
	ReadLatencyMicros   int64 `json:"read_latency_us,omitempty"` // of a request on its channel
	WriteLatencyMicros  int64 `json:"write_latency_us,omitempty"`
	RequestKB           int   `json:"request_kb,omitempty"` // size of the largest request; 0: 1024
}

// NewDisk returns the preset of a kind of disk, at the kind's usual rate.
func NewDisk(kind string) (Disk, error) {
	var m disk.Model
	d := Disk{SizeBytes: 6 << 30, Modelled: true}
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
func (d *Disk) SetRate(bytesPerSecond int64) {
	if d.WriteBytesPerSecond > 0 && d.BytesPerSecond > 0 {
		d.WriteBytesPerSecond = int64(float64(d.WriteBytesPerSecond) / float64(d.BytesPerSecond) * float64(bytesPerSecond))
	}
	d.BytesPerSecond = bytesPerSecond
}

// WriteRate returns the rate of writes, in bytes per second.
func (d Disk) WriteRate() int64 { return cmp.Or(d.WriteBytesPerSecond, d.BytesPerSecond) }

// Model returns the disk's model.
func (d Disk) Model() disk.Model {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return disk.Model{BytesPerSecond: d.BytesPerSecond, WriteBytesPerSecond: d.WriteBytesPerSecond,
		SeekMin: us(d.SeekMinMicros), SeekMax: us(d.SeekMaxMicros), Channels: d.Channels,
		ReadLatency: us(d.ReadLatencyMicros), WriteLatency: us(d.WriteLatencyMicros)}
}

// Options returns the options of the disk with the given name.
func (d Disk) Options(name, scheduler string) disk.Options {
	return disk.Options{Name: name, Size: d.SizeBytes, Scheduler: scheduler, RequestKB: d.RequestKB}
}

// Validate returns an error for a disk that cannot be modelled.
func (d Disk) Validate() error {
	switch {
	case d.BytesPerSecond < 1_000_000:
		return fmt.Errorf("disk rate %d bytes/s: at least 1000000", d.BytesPerSecond)
	case d.Kind != "" && d.Kind != SSD || (d.Kind == SSD) != (d.Channels > 0):
		return fmt.Errorf("disk kind %q with %d channels: %q needs channels, and a hard disk has neither a kind nor channels", d.Kind, d.Channels, SSD)
	case d.DataNodes < 1:
		return fmt.Errorf("%d DataNodes: at least 1", d.DataNodes)
	}
	return nil
}

// KindName returns the kind of disk for a reader.
func (d Disk) KindName() string {
	if d.Kind == SSD {
		return "solid-state disk"
	}
	return "hard disk"
}

func (d Disk) String() string {
	rate := float64(d.BytesPerSecond) / Megabyte
	if d.Channels == 0 {
		return fmt.Sprintf("hard disks of %.1f MB/s, seeks %.1f to %.1f ms", rate,
			float64(d.SeekMinMicros)/1000, float64(d.SeekMaxMicros)/1000)
	}
	return fmt.Sprintf("solid-state disks of %.1f MB/s read, %.1f MB/s written, %d channels, latencies %.1f and %.1f ms",
		rate, float64(d.WriteRate())/Megabyte, d.Channels,
		float64(d.ReadLatencyMicros)/1000, float64(d.WriteLatencyMicros)/1000)
}

// Kernel holds the kernel's parameters. Dirty limits are in proportion to the disk, because the page
// cache of a large machine could hold all of an experiment's data.
type Kernel struct {
	Scheduler            string `json:"scheduler"` // in all phases except the native ones
	DirtyBytes           int64  `json:"dirty_bytes"`
	DirtyBackgroundBytes int64  `json:"dirty_background_bytes"`
	DirtyExpireCentisecs int64  `json:"dirty_expire_centisecs"`
}

// DefaultKernel has dirty limits of a few seconds of the disks' rate.
func DefaultKernel() Kernel {
	return Kernel{Scheduler: "mq-deadline", DirtyBytes: 64 * MiB, DirtyBackgroundBytes: 32 * MiB, DirtyExpireCentisecs: 3000}
}

// DirtyLimits returns the kernel's dirty limits as parameters to set.
func (k Kernel) DirtyLimits() []stand.Sysctl {
	return append([]stand.Sysctl{{Name: "vm/dirty_bytes", Value: strconv.FormatInt(k.DirtyBytes, 10)}},
		Background(k.DirtyBackgroundBytes, k.DirtyExpireCentisecs)...)
}

// Background returns the parameters for the amount and the age of dirty data at which the kernel
// starts to write.
func Background(bytes, centisecs int64) []stand.Sysctl {
	return []stand.Sysctl{{Name: "vm/dirty_background_bytes", Value: strconv.FormatInt(bytes, 10)},
		{Name: "vm/dirty_expire_centisecs", Value: strconv.FormatInt(centisecs, 10)}}
}
