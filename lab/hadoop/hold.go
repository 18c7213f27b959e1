package hadoop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"penstock/lab/poll"
)

// Hold stops the tasks of applications at their first connection to a DataNode, so that jobs can
// begin to move data at the same moment, whatever the order and the time in which their JVMs start.
// The tasks need not know. Their umbilical and the ResourceManager bear a stop of some minutes
// (mapreduce.task.timeout).
type Hold struct {
	c       *Cluster
	cancel  context.CancelFunc
	watches sync.WaitGroup

	mu      sync.Mutex
	stopped map[string]map[int]bool // application -> processes
	err     error
}

// holdEvery is the interval at which tasks are looked for. A task moves at most a few MB in it.
const holdEvery = 20 * time.Millisecond

// Hold begins to stop tasks of the cluster, until Release.
func (c *Cluster) Hold() *Hold {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hold{c: c, cancel: cancel, stopped: map[string]map[int]bool{}}
	h.watches.Go(func() {
		err := poll.Until(ctx, holdEvery, func() (bool, error) { return false, h.look() })
		if ctx.Err() == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.err = err
		}
	})
	return h
}

// Await returns when as many tasks of each application are stopped as tasks says.
func (h *Hold) Await(ctx context.Context, tasks map[string]int) error {
	missing := ""
	err := poll.Until(ctx, holdEvery, func() (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		missing = ""
		for app, n := range tasks {
			if have := len(h.stopped[app]); have < n {
				missing += fmt.Sprintf("; %s has %d of %d tasks", app, have, n)
			}
		}
		return missing == "", h.err
	})
	if err != nil {
		return fmt.Errorf("wait until all tasks have connected to a DataNode%s: %w", missing, err)
	}
	return nil
}

// Release lets the tasks continue, and stops no further tasks. It may be called twice.
func (h *Hold) Release() error {
	h.cancel()
	h.watches.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, pids := range h.stopped {
		for pid := range pids {
			if err := unix.Kill(pid, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("continue the task in process %d: %w", pid, err))
			}
		}
	}
	clear(h.stopped)
	return errors.Join(errs...)
}

// taskOf returns the application of a task's JVM, from its command line.
func taskOf(command []string) (application string, ok bool) {
	_, application, ok = attemptOf(command)
	return application, ok
}

// look stops the tasks that have a connection to a DataNode of this cluster.
func (h *Hold) look() error {
	table, err := procfs.NewFS("/proc")
	if err != nil {
		return err
	}
	connections, err := table.NetTCP()
	if err != nil {
		return err
	}
	sockets := map[string]bool{}
	for _, line := range connections {
		for _, dn := range h.c.ports.dn {
			if line.RemPort == uint64(dn.data) {
				sockets[fmt.Sprintf("socket:[%d]", line.Inode)] = true
			}
		}
	}
	if len(sockets) == 0 {
		return nil
	}
	all, err := table.AllProcs()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range all {
		command, err := p.CmdLine()
		app, is := taskOf(command)
		if err != nil || !is || h.stopped[app][p.PID] {
			continue // ended meanwhile, or not to be stopped
		}
		files, err := p.FileDescriptorTargets()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("descriptors of process %d: %w", p.PID, err)
		}
		for _, file := range files {
			if !sockets[file] {
				continue
			}
			if err := unix.Kill(p.PID, unix.SIGSTOP); err != nil {
				break // it has ended
			}
			if h.stopped[app] == nil {
				h.stopped[app] = map[int]bool{}
			}
			h.stopped[app][p.PID] = true
			break
		}
	}
	return nil
}
