// Package blkio makes cgroups of the kernel's blkio controller, version 1. With this controller, an
// operator without Penstock can limit an application's I/O (IBIS, section 7.4). The controller
// charges the process that submits a request, so it limits a task's own reads and syncs. It does
// not limit buffered writes, which the kernel submits, or HDFS's I/O, which the DataNode submits.
package blkio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"penstock/lab/ledger"
	"penstock/node/mounts"
)

// Bounds of a weight for bfq.
const (
	WeightMin = 1
	WeightMax = 1000
)

// Group is a cgroup. Processes join it by writing to its cgroup.procs.
type Group struct {
	Path string // the cgroup's folder

	book *ledger.Ledger
	id   ledger.ID
}

// Mount returns the mount point of the controller's hierarchy.
func Mount() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return mountOf(mounts)
}

func mountOf(mountinfo []byte) (string, error) {
	for m := range mounts.Parse(string(mountinfo)) {
		if m.Kind == "cgroup" && strings.Contains(","+m.Options+",", ",blkio,") {
			return m.Point, nil
		}
	}
	return "", errors.New("the blkio controller of cgroup v1 is not mounted: " +
		"try mount -t cgroup -o blkio blkio /sys/fs/cgroup/blkio, unless cgroup v2 has it (cgroup.controllers says io)")
}

// Make creates a group below the hierarchy's root. The ledger records the group first.
func Make(book *ledger.Ledger, name string) (*Group, error) {
	root, err := Mount()
	if err != nil {
		return nil, err
	}
	g := &Group{Path: filepath.Join(root, name), book: book}
	if g.id, err = book.Cgroup(g.Path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(g.Path, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	return g, nil
}

// SetWeight sets the group's weight on every device with the scheduler bfq. Processes without a
// group have weight 100.
func (g *Group) SetWeight(weight int) error {
	if weight < WeightMin || weight > WeightMax {
		return fmt.Errorf("bfq weight %d: use %d to %d", weight, WeightMin, WeightMax)
	}
	return g.set("blkio.bfq.weight", fmt.Sprint(weight))
}

// SetCap limits the group's reads and its writes, each to the given number of bytes per second, on
// a device such as /dev/loop0.
func (g *Group) SetCap(device string, bytesPerSecond int64) error {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	line := fmt.Sprintf("%d:%d %d", unix.Major(st.Rdev), unix.Minor(st.Rdev), bytesPerSecond)
	return errors.Join(g.set("blkio.throttle.read_bps_device", line), g.set("blkio.throttle.write_bps_device", line))
}

func (g *Group) set(file, value string) error {
	if err := os.WriteFile(filepath.Join(g.Path, file), []byte(value), 0); err != nil {
		return fmt.Errorf("cgroup %s: %w", filepath.Base(g.Path), err)
	}
	return nil
}

// Remove removes the group. Its remaining processes move to the root.
func (g *Group) Remove() error { return g.book.Undo(g.id) }
