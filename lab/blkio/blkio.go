// Package blkio makes cgroups of the kernel's blkio controller, version 1. With this controller, an
// operator without Penstock can limit an application's I/O (IBIS, section 7.4). The controller
// charges the process that submits a request, so it limits a task's own reads and syncs. It does
// not limit buffered writes, which the kernel submits, or HDFS's I/O, which the DataNode submits.
package blkio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"penstock/lab/cgroup"
	"penstock/lab/ledger"
)

// Bounds of a weight for bfq.
const (
	WeightMin = 1
	WeightMax = 1000
)

// Group is a cgroup. Processes join it by writing to its cgroup.procs.
type Group struct{ *cgroup.Group }

// Mount returns the mount point of the controller's hierarchy.
func Mount() (string, error) { return cgroup.Mount("blkio") }

// Make creates a group below the hierarchy's root. The ledger records the group first.
func Make(book *ledger.Ledger, name string) (*Group, error) {
	root, err := Mount()
	if err != nil {
		return nil, err
	}
	g, err := cgroup.Make(book, root, name)
	if err != nil {
		return nil, err
	}
	return &Group{g}, nil
}

// SetWeight sets the group's weight on every device with the scheduler bfq. Processes without a
// group have weight 100.
func (g *Group) SetWeight(weight int) error {
	if weight < WeightMin || weight > WeightMax {
		return fmt.Errorf("bfq weight %d: use %d to %d", weight, WeightMin, WeightMax)
	}
	return g.Set("blkio.bfq.weight", fmt.Sprint(weight))
}

// SetCap limits the group's reads and its writes, each to the given number of bytes per second, on
// a device such as /dev/loop0.
func (g *Group) SetCap(device string, bytesPerSecond int64) error {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	line := fmt.Sprintf("%d:%d %d", unix.Major(st.Rdev), unix.Minor(st.Rdev), bytesPerSecond)
	return errors.Join(g.Set("blkio.throttle.read_bps_device", line), g.Set("blkio.throttle.write_bps_device", line))
}
