package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"penstock/lab/ledger"
	"penstock/node/control/join"
)

// Memory is a group that limits and measures the memory of its processes, page cache included.
type Memory struct {
	*Group
	files memoryFiles
}

// memoryFiles are the files of the memory controller in one of its versions.
type memoryFiles struct {
	limit           string
	resident, cache string // names in memory.stat
	events          string // the file that counts processes that were killed
}

var (
	memoryV1 = memoryFiles{"memory.limit_in_bytes", "rss", "cache", "memory.oom_control"}
	memoryV2 = memoryFiles{"memory.max", "anon", "file", "memory.events"}
)

// MemoryUse is the memory of a group at an instant.
type MemoryUse struct {
	Resident, Cache int64 // bytes of the processes' own memory, and of files in the page cache
	Killed          int64 // processes that the kernel has killed because of the limit
}

// MakeMemory makes a group whose processes may use limit bytes together. If cgroup v1 does not have the memory controller,
// the group is one of cgroup v2.
func MakeMemory(book *ledger.Ledger, name string, limit int64) (*Memory, error) {
	m := &Memory{files: memoryV1}
	root, err := Mount("memory")
	if err != nil {
		if root, err = unifiedMemory(err); err != nil {
			return nil, err
		}
		m.files = memoryV2
	}
	if m.Group, err = Make(book, root, name); err != nil {
		return nil, err
	}
	if err := m.Set(m.files.limit, strconv.FormatInt(limit, 10)); err != nil {
		return nil, errors.Join(err, m.Remove())
	}
	return m, nil
}

// unifiedMemory returns the root of cgroup v2 if its groups have the memory controller. Its errors contain v1, the reason why cgroup v1 cannot be used.
func unifiedMemory(v1 error) (string, error) {
	root, err := join.Root()
	if err != nil {
		return "", errors.Join(v1, err)
	}
	enabled, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	if err != nil {
		return "", errors.Join(v1, err)
	}
	if !slices.Contains(strings.Fields(string(enabled)), "memory") {
		return "", fmt.Errorf("%w; and cgroup v2 does not have it for its groups: try echo +memory > %s", v1, filepath.Join(root, "cgroup.subtree_control"))
	}
	return root, nil
}

// Use returns the group's memory.
func (m *Memory) Use() (u MemoryUse, err error) {
	stat, err := m.read("memory.stat")
	if err != nil {
		return u, err
	}
	events, err := m.read(m.files.events)
	if err != nil {
		return u, err
	}
	for name, into := range map[string]*int64{m.files.resident: &u.Resident, m.files.cache: &u.Cache} {
		value, known := stat[name]
		if !known {
			return u, fmt.Errorf("cgroup %s: memory.stat has no %s", filepath.Base(m.Path), name)
		}
		*into = value
	}
	u.Killed = events["oom_kill"] // kernels before 4.13 do not count them
	return u, nil
}

// read reads a file with a name and a number on each line.
func (m *Memory) read(file string) (map[string]int64, error) {
	text, err := os.ReadFile(filepath.Join(m.Path, file))
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all, nil
}
