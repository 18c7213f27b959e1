package doctor

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// proc is where the process file system is mounted; tests use folders of their own.
const proc = procfs.DefaultMountPoint

// process returns a process of the file system that is mounted at mount.
func process(mount string, pid int) (procfs.Proc, error) {
	fs, err := procfs.NewFS(mount)
	if err != nil {
		return procfs.Proc{}, err
	}
	return fs.Proc(pid)
}

// mapped reports whether a process has mapped a file whose path contains name into its memory.
func mapped(mount string, pid int, name string) (bool, error) {
	p, err := process(mount, pid)
	if err != nil {
		return false, err
	}
	maps, err := p.ProcMaps()
	return slices.ContainsFunc(maps, func(m *procfs.ProcMap) bool { return strings.Contains(m.Pathname, name) }), err
}

// innermost returns a process's number in its own PID namespace; 0 if it is not known.
func innermost(mount string, pid int) int {
	p, err := process(mount, pid)
	if err != nil {
		return 0
	}
	status, err := p.NewStatus()
	if err != nil || len(status.NSpids) == 0 {
		return 0
	}
	return int(status.NSpids[len(status.NSpids)-1])
}

// The main classes of the processes that may serve files of Spark's shuffles on a standalone cluster.
const (
	workerClass  = "org.apache.spark.deploy.worker.Worker"
	serviceClass = "org.apache.spark.deploy.ExternalShuffleService"
)

// serviceEnabled is the setting with which a Worker serves files of shuffles, on its command line or in spark-defaults.conf.
const serviceEnabled = "spark.shuffle.service.enabled"

// findWorkers returns the processes of the file system that is mounted at mount that run Spark's Worker or shuffle service. It
// leaves out processes whose command line it may not read.
func findWorkers(mount string) (found []Worker) {
	fs, err := procfs.NewFS(mount)
	if err != nil {
		return nil
	}
	all, err := fs.AllProcs()
	if err != nil {
		return nil
	}
	for _, p := range all {
		if line, err := p.CmdLine(); err == nil {
			if w, ok := workerOf(p.PID, line); ok {
				found = append(found, w)
			}
		}
	}
	return found
}

// workerOf reads a command line; ok is false if it is none of Spark's Worker or shuffle service.
func workerOf(pid int, line []string) (w Worker, ok bool) {
	w.PID = pid
	for _, word := range line {
		switch {
		case word == workerClass || word == serviceClass:
			ok, w.Service = true, word == serviceClass
		case word == "-D"+serviceEnabled+"=true":
			w.Serves = true
		case strings.HasPrefix(word, "-javaagent:") && strings.Contains(word, "role=worker"):
			w.HasAgent = true
		}
	}
	w.Serves = w.Serves || w.Service
	return w, ok && len(line) > 0 && strings.HasSuffix(line[0], "java")
}

// readMemory reads the machine's memory and the kernel's dirty limits.
func readMemory(mount string) (m Memory) {
	fs, err := procfs.NewFS(mount)
	if err != nil {
		return Memory{Err: err}
	}
	info, err := fs.Meminfo()
	if available := info.MemAvailableBytes; err == nil && (available == nil || *available > math.MaxInt64) {
		err = fmt.Errorf("%s has no MemAvailable", filepath.Join(mount, "meminfo"))
	} else if err == nil {
		m.Available = int64(*available)
	}
	vm, err2 := fs.VM()
	m.Err = errors.Join(err, err2)
	if err2 != nil {
		return m
	}
	for _, limit := range []struct {
		name string
		read *int64
		to   *int64
	}{
		{"dirty_background_bytes", vm.DirtyBackgroundBytes, &m.BackgroundBytes},
		{"dirty_background_ratio", vm.DirtyBackgroundRatio, &m.BackgroundRatio},
		{"dirty_bytes", vm.DirtyBytes, &m.DirtyBytes},
		{"dirty_ratio", vm.DirtyRatio, &m.DirtyRatio},
	} {
		if limit.read == nil { // the library reports no reason
			m.Err = errors.Join(m.Err, fmt.Errorf("%s does not contain a number", filepath.Join(mount, "sys/vm", limit.name)))
			continue
		}
		*limit.to = *limit.read
	}
	return m
}
