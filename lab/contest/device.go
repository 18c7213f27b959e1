package contest

import (
	"fmt"
	"strings"
	"time"
)

// Backlog is the bound on a flow's dirty data on a disk, in bytes, where spills are not governed.
const Backlog = 12 * MiB

// Latency is the reference latency of a request: fixed + per_mib * MiB.
type Latency struct {
	FixedMillis  float64 `json:"fixed_ms"`
	PerMiBMillis float64 `json:"per_mib_ms"`
}

// Device has the daemon's settings of the contested disks.
type Device struct {
	Algorithm    string  `json:"algorithm"`
	QuantumBytes int64   `json:"quantum_bytes"`
	Ahead        int     `json:"ahead"`                   // quanta staged ahead of a reader
	BacklogBytes int64   `json:"backlog_bytes,omitempty"` // bound on an application's backlog on a disk; 0: the daemon's default
	Depth        int     `json:"depth,omitempty"`         // fixed depth; 0: SFQ(D2) chooses it
	DepthMin     float64 `json:"depth_min"`
	DepthMax     float64 `json:"depth_max"`
	DepthStart   float64 `json:"depth_start"`
	DepthGain    float64 `json:"depth_gain"`
	// Profile is the path of the disk's profile, whose latencies replace the two below; "": none.
	Profile        string  `json:"profile,omitempty"`
	ReferenceRead  Latency `json:"reference_read"`
	ReferenceWrite Latency `json:"reference_write"`
}

// NewDevice returns the settings for a kind of disk at the kind's usual rate. On the hard disk, a
// quantum of 2 MiB pays for its seek. Without seeks, a smaller quantum loses nothing. The reference
// latencies are the time of two quanta plus a tenth, because depth 2 is the smallest depth that keeps
// the disk busy. On 8 channels a quantum takes two rounds of 64 KiB per channel: 28 ms for a read and
// 46 ms for a write.
func NewDevice(kind string) Device {
	d := Device{Algorithm: "sfqd2", QuantumBytes: 2 * MiB, Ahead: 2, BacklogBytes: Backlog, DepthMin: 1, DepthMax: 12, DepthStart: 2, DepthGain: 0.5,
		ReferenceRead: Latency{FixedMillis: 20, PerMiBMillis: 180}, ReferenceWrite: Latency{FixedMillis: 20, PerMiBMillis: 180}}
	if kind == SSD {
		d.QuantumBytes = MiB
		d.ReferenceRead = Latency{FixedMillis: 4, PerMiBMillis: 58}
		d.ReferenceWrite = Latency{FixedMillis: 6, PerMiBMillis: 95}
	}
	return d
}

// Settings returns the section device of the daemon's settings, indented by two spaces.
func (d Device) Settings() string {
	line := func(l Latency) string {
		millis := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
		return fmt.Sprintf("{fixed: %v, per_mib: %v}", millis(l.FixedMillis), millis(l.PerMiBMillis))
	}
	lines := []string{"algorithm: " + d.Algorithm, fmt.Sprintf("quantum: %d", d.QuantumBytes), fmt.Sprintf("ahead: %d", d.Ahead)}
	if d.BacklogBytes > 0 { // the sum over all disks is less than the kernel's limit
		lines = append(lines, fmt.Sprintf("backlog: %d", d.BacklogBytes), fmt.Sprintf("dirty: %d", d.BacklogBytes))
	}
	depth := fmt.Sprintf("fixed: %d", d.Depth)
	if d.Depth == 0 {
		depth = fmt.Sprintf("min: %v, max: %v, start: %v, gain: %v", d.DepthMin, d.DepthMax, d.DepthStart, d.DepthGain)
	}
	if d.Profile != "" {
		lines = append(lines, fmt.Sprintf("profile: %q", d.Profile))
	} else {
		depth += ", read: " + line(d.ReferenceRead) + ", write: " + line(d.ReferenceWrite)
	}
	lines = append(lines, "depth: {"+depth+"}")
	return "  " + strings.Join(lines, "\n  ") + "\n"
}
