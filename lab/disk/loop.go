package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	sectorBytes = 4096 // the block size of the device, as on current drives
	// requestKB is the size of the largest request that the device gets, in KiB: the most that FUSE
	// passes on at once. A quantum that is larger becomes several contiguous requests, which are
	// submitted at the same time.
	requestKB = 1024
)

// attach attaches the image to a free loop device.
func (d *Disk) attach(context.Context) error {
	image, err := os.OpenFile(filepath.Join(d.fuse, imageName), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	for range 20 {
		free, err := freeLoop()
		if err != nil {
			return err
		}
		id, err := d.ledger.Loop(free, image.Name())
		if err != nil {
			return err
		}
		err = configureLoop(free, image, d.options.Partitions > 0)
		if errors.Is(err, unix.EBUSY) {
			// Another process has taken the device. The ledger must not keep it as a device of this run.
			if err := d.ledger.Undo(id); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return errors.Join(fmt.Errorf("attach %s to %s: %w", image.Name(), free, err), d.ledger.Undo(id))
		}
		d.device = free
		d.changes = append(d.changes, id)
		return d.setQueue()
	}
	return errors.New("other processes keep taking the free loop devices")
}

// freeLoop returns a loop device that is not in use. If all are in use, it returns a new one.
func freeLoop() (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w", err)
	}
	path := fmt.Sprintf("/dev/loop%d", number)
	// In many containers, the kernel does not create the nodes in /dev.
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		const loopMajor = 7
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(number)))); err != nil {
			return "", fmt.Errorf("create %s: %w", path, err)
		}
	}
	return path, nil
}

// configureLoop attaches an image to a loop device. If partitioned is true, the device can have
// partitions, and the kernel removes them when the image is detached.
func configureLoop(device string, image *os.File, partitioned bool) error {
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: sectorBytes}
	// Direct I/O is necessary: otherwise the page cache would contain everything twice, and the
	// model would see the cache's requests instead of the device's.
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	if partitioned {
		config.Info.Flags |= unix.LO_FLAGS_PARTSCAN
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], image.Name())
	if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
		return err
	}
	info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
	if err == nil && info.Flags&unix.LO_FLAGS_DIRECT_IO == 0 {
		err = errors.New("the kernel refused direct I/O on the image")
	}
	return err
}

// setQueue sets the block device's parameters for a hard disk or a solid-state disk, depending on
// the disk's first model. A loop device keeps the parameters of its last user, so each parameter is
// set now and restored when the disk is stopped.
func (d *Disk) setQueue() error {
	// The queue depth can only be set while the device has no scheduler. A scheduler that is set
	// afterwards adds its own, larger queue.
	rotational := "1"
	if d.options.Model.Channels > 0 {
		rotational = "0"
	}
	settings := []struct{ name, value string }{
		{"queue/scheduler", "none"},
		{"queue/nr_requests", strconv.Itoa(d.options.QueueDepth)},
		{"queue/rotational", rotational},
		{"queue/max_sectors_kb", strconv.Itoa(d.options.RequestKB)},
		{"queue/read_ahead_kb", strconv.Itoa(d.options.ReadaheadKB)},
		{"queue/add_random", "0"},
	}
	for _, s := range settings {
		if err := d.change(d.ledger.SetFile(d.sysfs(s.name), s.value)); err != nil {
			return fmt.Errorf("set %s of %s to %s: %w", s.name, d.device, s.value, err)
		}
	}
	return d.SetScheduler(d.options.Scheduler)
}

// SetScheduler sets the block device's I/O scheduler: none, mq-deadline, bfq or kyber, if the
// kernel has it.
func (d *Disk) SetScheduler(name string) error {
	if !d.Modelled() {
		return ErrNotModelled
	}
	if err := d.change(d.ledger.SetFile(d.sysfs("queue/scheduler"), name)); err != nil {
		return fmt.Errorf("set the I/O scheduler of %s to %q (available: %s): %w", d.device, name, d.schedulers(), err)
	}
	// The target latency of writeback throttling is set here, because the kernel chose it when the
	// loop device still looked like another kind of disk. On a rotational disk it is 75 ms, as in the
	// kernel. Under bfq it is 0, which turns throttling off, also as in the kernel. On a solid-state
	// disk the kernel uses 2 ms. Here the target is ten times that, because the model's latencies are
	// ten times those of flash (SSD): with 2 ms no read would be fast enough, and writes would be
	// slowed although no read waits. Not every kernel has this setting.
	latency := "75000"
	switch {
	case name == "bfq":
		latency = "0"
	case d.options.Model.Channels > 0:
		latency = "20000"
	}
	err := d.change(d.ledger.SetFile(d.sysfs("queue/wbt_lat_usec"), latency))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set writeback throttling of %s: %w", d.device, err)
	}
	return nil
}

// SetDirtyShare reserves a percentage of the kernel's limit on dirty pages for this disk, however
// much was written to other disks recently. The kernel's default is 0. The sum of the percentages
// of all disks must not exceed 100.
func (d *Disk) SetDirtyShare(percent int) error {
	if !d.Modelled() {
		return ErrNotModelled
	}
	if err := d.change(d.ledger.SetFile(d.sysfs("bdi/min_ratio"), strconv.Itoa(percent))); err != nil {
		return fmt.Errorf("reserve %d %% of dirty memory for %s: %w", percent, d.device, err)
	}
	return nil
}

func (d *Disk) schedulers() string {
	text, _ := os.ReadFile(d.sysfs("queue/scheduler"))
	return string(text[:max(len(text)-1, 0)])
}

func (d *Disk) sysfs(name string) string {
	return filepath.Join("/sys/block", filepath.Base(d.device), name)
}
