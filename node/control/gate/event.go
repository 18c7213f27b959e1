package gate

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// event is an event of the fanotify group.
type event struct {
	mask    uint64
	fd, tid int32
	// offset and length are the range of the operation, in bytes. They are -1 if the kernel has not
	// reported a range, as with FAN_ACCESS_PERM.
	offset, length int64
}

const (
	eventBytes   = 24 // struct fanotify_event_metadata
	headerBytes  = 4  // struct fanotify_event_info_header
	rangeBytes   = 24 // struct fanotify_event_info_range
	eventVersion = 3
)

// waits reports whether a process waits for the answer to e.
func (e *event) waits() bool {
	return e.mask&(unix.FAN_PRE_ACCESS|unix.FAN_ACCESS_PERM) != 0
}

// parseEvent reads the first event of b into e and returns the rest of b. It does not allocate,
// except for errors.
func parseEvent(b []byte, e *event) (rest []byte, err error) {
	if len(b) < eventBytes {
		return nil, fmt.Errorf("event of %d bytes: the kernel's events have at least %d", len(b), eventBytes)
	}
	length := int(binary.NativeEndian.Uint32(b))
	begin := int(binary.NativeEndian.Uint16(b[6:]))
	if b[4] != eventVersion || length > len(b) || begin < eventBytes || begin > length {
		return nil, fmt.Errorf("event of version %d with %d of %d bytes, information at %d: this program cannot read the fanotify events of this kernel",
			b[4], length, len(b), begin)
	}
	*e = event{
		mask:   binary.NativeEndian.Uint64(b[8:]),
		fd:     int32(binary.NativeEndian.Uint32(b[16:])),
		tid:    int32(binary.NativeEndian.Uint32(b[20:])),
		offset: -1, length: -1,
	}
	for info := b[begin:length]; len(info) >= headerBytes; {
		size := int(binary.NativeEndian.Uint16(info[2:]))
		if size < headerBytes || size > len(info) {
			return nil, fmt.Errorf("information of %d bytes in an event that has %d more", size, len(info))
		}
		if info[0] == unix.FAN_EVENT_INFO_TYPE_RANGE && size >= rangeBytes {
			e.offset = atMost(binary.NativeEndian.Uint64(info[8:]), math.MaxInt64)
			e.length = atMost(binary.NativeEndian.Uint64(info[16:]), math.MaxInt64-uint64(e.offset))
		}
		info = info[size:]
	}
	return b[length:], nil
}

func atMost(n, limit uint64) int64 { return int64(min(n, limit)) }
