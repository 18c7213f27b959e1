// Package blkio makes cgroups of the kernel's blkio controller, version 1. With them an operator
// without Penstock can limit an application's I/O (IBIS, section 7.4). The controller knows who
// submits a request, so it limits a task's own reads and syncs. It does not limit buffered writes,
// which the kernel submits, nor HDFS's I/O, which the DataNode submits.
package blkio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"penstock/lab/ledger"
)

// Weights of bfq.
const (
	WeightMin = 1
	WeightMax = 1000
)

// Group is a cgroup. Processes join it by writing to its cgroup.procs.
type Group struct {
	Path string // its folder

	book *ledger.Ledger
	id   ledger.ID
}

// Mount is where the controller's hierarchy is mounted.
func Mount() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return mountOf(mounts)
}

func mountOf(mountinfo []byte) (string, error) {
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(string(line), " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 5 || len(kind) < 3 {
			continue
		}
		if kind[0] == "cgroup" && strings.Contains(","+kind[2]+",", ",blkio,") {
			return place[4], nil
		}
	}
	return "", errors.New("the blkio controller of cgroup v1 is not mounted: " +
		"try mount -t cgroup -o blkio blkio /sys/fs/cgroup/blkio, unless cgroup v2 has it (cgroup.controllers says io)")
}

// Make creates a group below the hierarchy's root. It is in the ledger before.
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

// SetWeight gives the group a weight on every device whose scheduler is bfq; processes
// in no group have 100.
func (g *Group) SetWeight(weight int) error {
	if weight < WeightMin || weight > WeightMax {
		return fmt.Errorf("bfq weight %d: from %d to %d", weight, WeightMin, WeightMax)
	}
	return g.set("blkio.bfq.weight", fmt.Sprint(weight))
}

// SetCap holds the group's reads and its writes to so many bytes a second each on a
// device such as /dev/loop0.
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

// Remove removes the group; processes that are left in it move to the root.
func (g *Group) Remove() error { return g.book.Undo(g.id) }
