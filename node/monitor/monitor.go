// Package monitor reads the kernel's counters of a block device and computes the foreign I/O: the
// part that Penstock did not cause.
//
// Problem: a device serves more than its governed flows: the operating system, logs, intermediate
// files, other services, HDFS's own checksum files and the file system's journal. Their requests
// take device time that no weight covers, and an operator who sees a flow below its entitlement
// must be able to find the reason. Choice: the kernel counts every byte of the device
// (/sys/block/NAME/stat), the daemon counts every byte that it moved or charged, and the
// difference is foreign. This costs the read of one small file per second and needs no right.
// (IBIS has nothing comparable: its section 3 interposes on all the I/O that it wants to share.)
//
// The two counts are not read at the same instant, and bytes do not enter them at the same instant,
// so their difference varies by the bytes in transit. Foreign therefore works with a lower and an
// upper bound and counts only bytes that must be foreign; the comment on Foreign lists the errors
// of this method. Package blockio attributes foreign I/O to processes and cgroups.
package monitor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Counters are the counters of a block device since its creation (the kernel's
// Documentation/block/stat.rst).
type Counters struct {
	Reads        int64 // requests
	Writes       int64
	ReadBytes    int64
	WrittenBytes int64
	InFlight     int64         // requests at the device or in its queue now
	Busy         time.Duration // time with at least one request; wraps at 2^32 ms
}

const (
	sectorBytes = 512 // unit of the stat file, regardless of the device's sector size
	busyWrap    = 1 << 32 * time.Millisecond
	maxStat     = 4096 // bytes; the kernel writes about 150
)

// ParseStat reads the text of a stat file: at least 11 numbers; later kernels write more.
func ParseStat(text string) (Counters, error) {
	fields := strings.Fields(text)
	if len(fields) < 11 {
		return Counters{}, fmt.Errorf("block device stat: %d fields, want at least 11", len(fields))
	}
	var n [11]int64
	for i := range n {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || v < 0 {
			return Counters{}, fmt.Errorf("block device stat: field %d is %q, not a count", i+1, fields[i])
		}
		n[i] = v
	}
	const most = 1 << 62
	if n[2] > most/sectorBytes || n[6] > most/sectorBytes || n[9] >= 1<<32 {
		return Counters{}, errors.New("block device stat: a count is beyond what a device can have done")
	}
	return Counters{
		Reads: n[0], Writes: n[4],
		ReadBytes: n[2] * sectorBytes, WrittenBytes: n[6] * sectorBytes,
		InFlight: n[8], Busy: time.Duration(n[9]) * time.Millisecond,
	}, nil
}

// Read returns the counters of a device by its kernel name. sysfs is the root of sysfs: "/sys",
// except in tests. A file system without a block device has no counters.
func Read(sysfs, name string) (Counters, error) {
	text, err := readSmall(filepath.Join(sysfs, "block", name, "stat"))
	if err != nil {
		return Counters{}, fmt.Errorf("counters of device %s: %w", name, err)
	}
	return ParseStat(text)
}

// Utilisation returns the part of the time between two readings in which the device had work,
// 0..1.
func Utilisation(before, after Counters, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	busy := after.Busy - before.Busy
	if busy < 0 {
		busy += busyWrap
	}
	return min(1, float64(busy)/float64(elapsed))
}

func readSmall(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, maxStat)
	n, err := f.Read(b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
