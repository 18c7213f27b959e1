package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxPartitions = 15       // partitions of a disk, as many as fit into one major number of many drivers
	partitionMin  = 16 << 20 // bytes of a partition
	partitionStep = 1 << 20  // bytes; partitions begin at multiples of it, as tools align them
)

// volume is a block device with a file system of its own.
type volume struct {
	device string // path
	mount  string // mount point
}

// volumes returns the disk itself, or its partitions.
func (d *Disk) volumes() []volume {
	if d.options.Partitions == 0 {
		return []volume{{d.device, d.mount}}
	}
	all := make([]volume, d.options.Partitions)
	for i := range all {
		all[i] = volume{fmt.Sprintf("%sp%d", d.device, i+1), fmt.Sprintf("%s%d", d.mount, i+1)}
	}
	return all
}

// partitionBytes returns the size of each partition. A step at the beginning of the disk stays
// free, as for a partition table.
func (o *Options) partitionBytes() int64 {
	return (o.Size - partitionStep) / int64(o.Partitions) / partitionStep * partitionStep
}

// Partition returns the range of the disk that partition i has, counted from 0, in bytes.
func (d *Disk) Partition(i int) (from, to int64) {
	size := d.options.partitionBytes()
	from = partitionStep + int64(i)*size
	return from, from + size
}

// partition adds the partitions to the kernel's table of the device. The disk gets no partition
// table of its own: partitions exist as long as the image is attached.
func (d *Disk) partition(context.Context) error {
	if d.options.Partitions == 0 {
		return nil
	}
	loop, err := os.OpenFile(d.device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	for i, v := range d.volumes() {
		from, to := d.Partition(i)
		p := unix.BlkpgPartition{Start: from, Length: to - from, Pno: int32(i + 1)}
		arg := unix.BlkpgIoctlArg{Op: unix.BLKPG_ADD_PARTITION, Datalen: int32(unsafe.Sizeof(p)), Data: (*byte)(unsafe.Pointer(&p))}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, loop.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg)))
		runtime.KeepAlive(&p)
		if errno != 0 {
			return fmt.Errorf("add partition %d to %s: %w", i+1, d.device, errno)
		}
		if err := d.makeNode(v.device); err != nil {
			return err
		}
	}
	return nil
}

// makeNode makes the file of a partition's device if it is missing, as in containers, whose /dev
// the kernel does not fill. An existing file must be that of this partition: numbers of partitions
// are reused, so a file that is left from before may be another device.
func (d *Disk) makeNode(path string) error {
	text, err := os.ReadFile(d.sysfs(filepath.Base(path) + "/dev"))
	if err != nil {
		return fmt.Errorf("number of %s: %w", path, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(strings.TrimSpace(string(text)), "%d:%d", &major, &minor); err != nil {
		return fmt.Errorf("number of %s: %q: %w", path, text, err)
	}
	var st unix.Stat_t
	switch err := unix.Stat(path, &st); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == unix.Mkdev(major, minor):
		return nil
	case err == nil:
		return fmt.Errorf("%s exists and is not the partition that was added (%d:%d): remove it", path, major, minor)
	case !errors.Is(err, unix.ENOENT):
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := d.change(d.ledger.Remove(path)); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}
