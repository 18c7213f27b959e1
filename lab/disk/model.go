package disk

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Model determines the time that a disk takes for its requests. The zero Model takes no time.
// Channels determines the kind of disk: 0 means a hard disk with one head that seeks, and any other
// number means a solid-state disk (channels.go).
type Model struct {
	// BytesPerSecond is the transfer rate of reads, and also of writes unless WriteBytesPerSecond
	// is set. It is the sum over all channels. Reads and writes share the disk's time. 0 turns the
	// whole model off: every request is answered at once.
	BytesPerSecond int64 `json:"bytes_per_second"`
	// WriteBytesPerSecond is the transfer rate of writes. 0 means the same as for reads.
	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty"`
	// SeekMin and SeekMax are the times, including rotation, of a seek to the next track and of a seek
	// over the whole disk. A request that does not begin where the previous request ended needs a
	// seek. A head must first accelerate and then brake, so the time of a seek grows with the square
	// root of its distance.
	SeekMin time.Duration `json:"seek_min_ns"`
	SeekMax time.Duration `json:"seek_max_ns"`
	// CapacityBytes is the distance of a seek that takes SeekMax. 0 means the disk's size. A larger
	// value models a slice of a larger disk.
	CapacityBytes int64 `json:"capacity_bytes"`
	// AgeMax bounds how long requests with shorter seeks may be preferred to a waiting request. 0
	// means DefaultAgeMax.
	AgeMax time.Duration `json:"age_max_ns"`

	// Channels is the number of channels of a solid-state disk, 1 to ChannelsMax; 0: a hard disk. With
	// channels, SeekMin, SeekMax, CapacityBytes and AgeMax must be 0, because channels serve requests
	// in parallel and have no seeks.
	Channels int `json:"channels,omitempty"`
	// ReadLatency and WriteLatency are the time of a request before its transfer, on each channel
	// that works on it; 0 to 1 s. Without channels they must be 0.
	ReadLatency  time.Duration `json:"read_latency_ns,omitempty"`
	WriteLatency time.Duration `json:"write_latency_ns,omitempty"`
}

// ChannelsMax bounds the number of channels. It is the largest Options.QueueDepth, because further
// channels would never be busy.
const ChannelsMax = 128

// HDD returns a hard disk with the given transfer rate in bytes per second. Its seeks are those of
// a disk with 7,200 rotations per minute, including rotation.
func HDD(bytesPerSecond int64) Model {
	return Model{BytesPerSecond: bytesPerSecond, SeekMin: 3 * time.Millisecond, SeekMax: 14 * time.Millisecond}
}

// SSD returns a solid-state disk with 8 channels that reads the given number of bytes per second,
// and writes 5/8 of that. Its proportions are those of flash: at 40 MB/s, reads of 4 KiB, one at a
// time, reach 5.6 % of the rate. Its latencies are at least ten times those of flash, because times
// below a millisecond are not accurate. docs/design/disk.md shows its curves.
func SSD(bytesPerSecond int64) Model {
	return Model{
		BytesPerSecond: bytesPerSecond, WriteBytesPerSecond: bytesPerSecond / 8 * 5,
		Channels: 8, ReadLatency: time.Millisecond, WriteLatency: 2 * time.Millisecond,
	}
}

// Rates of the presets that this project measures with, in bytes per second. They are so low that
// two CPUs can easily keep the disk busy.
const (
	HDDRate = 12_000_000
	SSDRate = 40_000_000
)

// DefaultAgeMax is in the usual range of drives with command queueing.
const DefaultAgeMax = 500 * time.Millisecond

// Off reports whether the model takes no time.
func (m Model) Off() bool { return m.BytesPerSecond == 0 }

// Validate returns an error for an invalid model.
func (m Model) Validate() error {
	switch {
	case m.BytesPerSecond < 0:
		return errors.New("the model's rate must be 0 (no limit) or more bytes per second")
	case m.BytesPerSecond > 0 && m.BytesPerSecond < 4096:
		return fmt.Errorf("a rate of %d bytes per second is below one page per second", m.BytesPerSecond)
	case m.WriteBytesPerSecond < 0 || m.WriteBytesPerSecond > 0 && m.WriteBytesPerSecond < 4096:
		return fmt.Errorf("a rate of %d bytes per second for writes: want 0 (the rate of reads) or at least 4096", m.WriteBytesPerSecond)
	case m.SeekMin < 0 || m.SeekMax < m.SeekMin || m.SeekMax > time.Second:
		return fmt.Errorf("seeks from %v to %v: want 0 <= min <= max <= 1s", m.SeekMin, m.SeekMax)
	case m.CapacityBytes < 0 || m.AgeMax < 0:
		return errors.New("the model's capacity and age bound must not be negative")
	case m.Channels < 0 || m.Channels > ChannelsMax:
		return fmt.Errorf("%d channels: want 0 (one head that seeks) to %d", m.Channels, ChannelsMax)
	case m.Channels > 0 && (m.SeekMax > 0 || m.CapacityBytes > 0 || m.AgeMax > 0):
		return errors.New("a disk with channels has no head: its seeks, capacity and age bound must be 0")
	case m.Channels == 0 && (m.ReadLatency != 0 || m.WriteLatency != 0):
		return errors.New("latencies of reads and writes need channels: set the number of channels, or use seeks instead")
	case min(m.ReadLatency, m.WriteLatency) < 0 || max(m.ReadLatency, m.WriteLatency) > time.Second:
		return fmt.Errorf("latencies of %v for reads and %v for writes: want 0 to 1s", m.ReadLatency, m.WriteLatency)
	}
	return nil
}

// service returns the time for a request of length bytes at offset, when the head is at head.
func (m Model) service(op Op, head, offset, length int64) time.Duration {
	if m.Off() {
		return 0
	}
	return m.seek(head, offset) + m.transfer(op, length)
}

// transfer returns the time in which all channels of the disk together transfer length bytes.
func (m Model) transfer(op Op, length int64) time.Duration {
	rate := m.BytesPerSecond
	if op == Write && m.WriteBytesPerSecond > 0 {
		rate = m.WriteBytesPerSecond
	}
	return time.Duration(float64(length) * float64(time.Second) / float64(rate))
}

func (m Model) seek(head, offset int64) time.Duration {
	distance := offset - head
	if distance == 0 {
		return 0
	}
	part := min(1, math.Abs(float64(distance))/float64(max(m.CapacityBytes, 1)))
	seek := m.SeekMin + time.Duration(float64(m.SeekMax-m.SeekMin)*math.Sqrt(part))
	if distance > 0 {
		// The head does not seek over a small gap ahead: the gap passes under the head.
		return min(seek, m.transfer(Read, distance))
	}
	return seek
}

// request is a read or a write on the disk.
type request struct {
	op             Op
	offset, length int64
	arrived        int64 // ns on the caller's clock
	ended          int64 // ns: when the disk finishes it; set by arm.next or channels.submit
	service        int64 // ns of the disk's time
	done           chan struct{}
	ref            uint64 // set by a simulation
}

// arm is the disk's head with its queue, on a virtual clock. It serves one request at a time, and
// the next request begins at the end of the previous one, even if the caller notices the end late.
// So a late answer costs no throughput. arm has no clock, goroutine or lock.
type arm struct {
	model   Model
	head    int64 // offset after the last request
	free    int64 // ns: when the request in service ends
	waiting []*request
}

// lateMax bounds how far the virtual clock may lag behind the real clock. Without the bound, a disk
// whose server was delayed would process its queue too fast afterwards.
const lateMax = 100 * time.Millisecond

func (a *arm) submit(r *request) { a.waiting = append(a.waiting, r) }

// stop removes and returns all waiting requests, and ends the request in service.
func (a *arm) stop() []*request {
	waiting := a.waiting
	a.waiting, a.free = nil, 0
	return waiting
}

// next removes the request that the disk serves next from the queue and sets its end. It returns
// nil if no request waits. It must not be called before the previous request has ended. now is the
// time on the clock.
//
// Among the requests that had arrived when the head became free, the next one is the one with the
// shortest seek; among equal seeks, the oldest. But a request older than AgeMax goes before all
// others. Otherwise two sequential streams that are close to each other could starve a third
// stream.
func (a *arm) next(now int64) *request {
	if len(a.waiting) == 0 {
		return nil
	}
	oldest := a.waiting[0].arrived // requests are submitted nearly in order of arrival
	for _, r := range a.waiting {
		oldest = min(oldest, r.arrived)
	}
	start := max(a.free, oldest, now-int64(lateMax))
	ageMax := int64(a.model.AgeMax)
	if ageMax == 0 {
		ageMax = int64(DefaultAgeMax)
	}
	best := -1
	var bestSeek time.Duration
	for i, r := range a.waiting {
		if r.arrived > start {
			continue
		}
		if start-r.arrived > ageMax {
			if best < 0 || bestSeek >= 0 || r.arrived < a.waiting[best].arrived {
				best, bestSeek = i, -1 // prefers the aged request to every other
			}
			continue
		}
		seek := a.model.seek(a.head, r.offset)
		if best < 0 || seek < bestSeek || seek == bestSeek && r.arrived < a.waiting[best].arrived {
			best, bestSeek = i, seek
		}
	}
	r := a.waiting[best]
	a.waiting = append(a.waiting[:best], a.waiting[best+1:]...)
	r.service = int64(a.model.service(r.op, a.head, r.offset, r.length))
	r.ended = start + r.service
	a.head = r.offset + r.length
	a.free = r.ended
	return r
}

// Cost is the time that the requests of one operation take on a busy disk: Fixed + Seek for a
// request elsewhere + PerMiB for each MiB. Alone is the latency of the smallest request on an idle
// disk.
type Cost struct{ Fixed, Seek, PerMiB, Alone time.Duration }

// Cost returns the costs of an operation, with seeks over a third of span bytes, the mean distance
// of two random places.
func (m Model) Cost(op Op, span int64) Cost {
	const mib = 1 << 20
	c := Cost{PerMiB: m.transfer(op, mib)}
	if m.Channels == 0 {
		c.Seek = m.seek(0, -span/3)
		c.Alone = c.Seek
		return c
	}
	latency := m.ReadLatency
	if op == Write {
		latency = m.WriteLatency
	}
	c.Fixed, c.Alone = latency/time.Duration(m.Channels), latency
	c.PerMiB += mib / partBytes * c.Fixed
	return c
}
