// Package cgroup makes cgroups for the processes of a run. The run's ledger records each cgroup before it is made, so it
// is removed at the end of the run, or by the next run after a crash.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"penstock/lab/ledger"
	"penstock/node/mounts"
)

// Group is a cgroup. Processes join it by writing to its cgroup.procs.
type Group struct {
	Path string // the cgroup's folder

	book *ledger.Ledger
	id   ledger.ID
}

// Make creates a group below the root of a hierarchy. The name must be unique on the machine while the group exists.
func Make(book *ledger.Ledger, hierarchy, name string) (*Group, error) {
	g := &Group{Path: filepath.Join(hierarchy, name), book: book}
	var err error
	if g.id, err = book.Cgroup(g.Path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(g.Path, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make a cgroup: %w", err), book.Undo(g.id))
	}
	return g, nil
}

// Set writes a value to one of the group's files.
func (g *Group) Set(file, value string) error {
	if err := os.WriteFile(filepath.Join(g.Path, file), []byte(value), 0); err != nil {
		return fmt.Errorf("cgroup %s: %w", filepath.Base(g.Path), err)
	}
	return nil
}

// Add moves a process to the group.
func (g *Group) Add(pid int) error { return g.Set("cgroup.procs", strconv.Itoa(pid)) }

// Remove removes the group. Its remaining processes move to the cgroup above.
func (g *Group) Remove() error { return g.book.Undo(g.id) }

// Mount returns the mount point of the hierarchy of a controller of version 1, such as blkio.
func Mount(controller string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return mountOf(mounts, controller)
}

func mountOf(mountinfo []byte, controller string) (string, error) {
	for m := range mounts.Parse(string(mountinfo)) {
		if m.Kind == "cgroup" && strings.Contains(","+m.Options+",", ","+controller+",") {
			return m.Point, nil
		}
	}
	return "", fmt.Errorf("the %s controller of cgroup v1 is not mounted: try mount -t cgroup -o %[1]s %[1]s /sys/fs/cgroup/%[1]s, "+
		"unless cgroup v2 has it (see cgroup.controllers)", controller)
}
