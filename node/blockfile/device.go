package blockfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"penstock/settings/plain"
)

// Device is what one scheduler governs: the block device that carries everything of a file system,
// below the partitions, logical volumes and mappings that lie between them. Two directories on one
// disk have one Device; otherwise each would get a scheduler of its own, and the shares of neither
// would hold. (IBIS, section 9, calls the DataNodes of such directories virtual DataNodes.)
//
// A file system on several disks, such as a RAID or a striped volume, has the device that combines
// them. Such a device may share disks with other devices; Overlaps reports it.
type Device struct {
	Name       string   // kernel name such as sda, loop3 or md0; dev-MAJ:MIN if there is no block device
	Disks      []string // kernel names of the physical disks, sorted; empty if there is no block device
	Rotational bool     // according to the kernel; true if the kernel does not report it
	Local      bool     // no server is needed for its files: a block device, or one of the kernel's own file systems
	Readahead  int64    // maximum bytes of one readahead(2)
	Folios     bool     // large folios may be staged: the kernel's own readahead is shorter than one
}

// Overlaps reports whether the two devices have a physical disk in common.
func (d Device) Overlaps(other Device) bool {
	return slices.ContainsFunc(d.Disks, func(disk string) bool { return slices.Contains(other.Disks, disk) })
}

const (
	// defaultReadahead is the kernel's default, for devices that report none.
	defaultReadahead = 128 << 10
	// maxParts is the maximum number of block devices below one file system.
	maxParts = 1024
)

// deviceOf returns the device of an open directory. sysfs is the root of sysfs.
func deviceOf(root *os.File, sysfs string) (Device, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return Device{}, fmt.Errorf("data directory %s: %w", root.Name(), err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	top, err := filepath.EvalSymlinks(filepath.Join(sysfs, "dev/block", number))
	if err != nil {
		// tmpfs, overlay, network file systems: no block device to look up.
		return Device{Name: "dev-" + number, Rotational: true, Local: local(root), Readahead: defaultReadahead}, nil
	}
	top = whole(top)
	carrier, disks, err := carrierOf(top)
	if err != nil {
		return Device{}, fmt.Errorf("data directory %s: %w", root.Name(), err)
	}
	device := Device{Name: filepath.Base(carrier), Disks: disks, Rotational: true, Local: true, Readahead: defaultReadahead}
	if v, err := queueValue(carrier, "rotational"); err == nil {
		device.Rotational = v != 0
	}
	// The file system's readahead is that of the device that it is mounted from, which may be a
	// logical volume. The kernel silently cuts a readahead(2) to the larger of max_sectors_kb and
	// read_ahead_kb.
	if kb, err := queueValue(top, "max_sectors_kb"); err == nil {
		device.Readahead = max(device.Readahead, kb<<10)
	}
	if kb, err := queueValue(top, "read_ahead_kb"); err == nil {
		device.Readahead = max(device.Readahead, kb<<10)
		device.Folios = kb<<10 < folioBytes
	}
	device.Readahead = device.Readahead / PageSize * PageSize
	return device, nil
}

// carrierOf returns the lowest block device that carries everything of the device at top, and the
// kernel names of the physical disks below, sorted. If there is one disk, the disk is the carrier,
// even if several mappings lie between, as for a thin pool. Otherwise carrierOf goes down from top
// while there is a single device below. Devices are directories in sysfs, without links.
func carrierOf(top string) (carrier string, disks []string, err error) {
	below, err := disksBelow(top)
	if err != nil {
		return "", nil, err
	}
	if carrier = top; len(below) == 1 {
		carrier = below[0]
	}
	// Several disks lie below, so this ends at the device that combines them.
	for len(below) > 1 {
		next, err := slavesOf(carrier)
		if err != nil {
			return "", nil, err
		}
		if len(next) != 1 {
			break
		}
		carrier = next[0]
	}
	for _, disk := range below {
		disks = append(disks, filepath.Base(disk))
	}
	slices.Sort(disks)
	return carrier, disks, nil
}

// disksBelow returns the physical disks that a block device consists of: the device itself if there
// is nothing below it. There is at least one.
func disksBelow(device string) (disks []string, err error) {
	seen := map[string]bool{device: true}
	for next := []string{device}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		below, err := slavesOf(at)
		if err != nil {
			return nil, err
		}
		if len(below) == 0 {
			disks = append(disks, at)
		}
		for _, b := range below {
			if !seen[b] {
				seen[b], next = true, append(next, b)
			}
		}
		if len(seen) > maxParts {
			return nil, fmt.Errorf("%s consists of more than %d block devices", filepath.Base(device), maxParts)
		}
	}
	if len(disks) == 0 {
		return nil, fmt.Errorf("%s consists of devices that are made of each other", filepath.Base(device))
	}
	return disks, nil
}

// slavesOf returns the whole disks and mapped devices directly below a block device.
func slavesOf(device string) (below []string, err error) {
	links, err := filepath.Glob(filepath.Join(device, "slaves", "*"))
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		at, err := filepath.EvalSymlinks(link)
		if err != nil {
			return nil, fmt.Errorf("the device %s below %s: %w", filepath.Base(link), filepath.Base(device), plain.File(err))
		}
		if at = whole(at); !slices.Contains(below, at) {
			below = append(below, at)
		}
	}
	return below, nil
}

// whole returns the directory of the disk that a partition belongs to, and any other directory as
// it is.
func whole(at string) string {
	if _, err := os.Stat(filepath.Join(at, "partition")); err == nil {
		return filepath.Dir(at)
	}
	return at
}

// local reports whether a file system without a block device is served by the kernel alone.
func local(root *os.File) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return false
	}
	switch uint64(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, zfsMagic:
		return true
	}
	return false
}

const zfsMagic = 0x2fc12fc1 // of OpenZFS

func queueValue(sysfsDevice, name string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(sysfsDevice, "queue", name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}
