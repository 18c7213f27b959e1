package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel parameters belong to the whole machine. If two runs set the same parameter, and each
// restored the value that it found, one run's value could stay permanently. So a run locks each
// parameter that it changes. The lock file contains the original value. After a crash, the next run
// takes the original value from there, instead of the crashed run's value from the kernel.

// twins are pairs of parameters. When one of a pair is set, the kernel sets the other to zero.
// Neither can be set to zero directly.
var twins = map[string]string{
	"vm/dirty_bytes":            "vm/dirty_ratio",
	"vm/dirty_background_bytes": "vm/dirty_background_ratio",
}

// SetSysctl sets a kernel parameter such as "vm/dirty_bytes" for the rest of the run. While another
// run has locked the parameter, SetSysctl waits, at most until ctx ends. A second call in the same
// run only sets the new value. At the end, the ledger restores the value from before the run.
func SetSysctl(ctx context.Context, l *Ledger, parameter, value string) (ID, error) {
	path := l.machine.sysctlPath(parameter)
	l.mu.Lock()
	held := l.sysctls[parameter] != nil
	l.mu.Unlock()
	if held {
		return 0, os.WriteFile(path, []byte(value), 0)
	}
	lock, err := l.machine.lockSysctl(ctx, parameter)
	if err != nil {
		return 0, err
	}
	if original, err := os.ReadFile(lock.Name()); err != nil || len(original) == 0 {
		if err := l.machine.noteOriginal(lock, parameter); err != nil {
			lock.Close()
			return 0, err
		}
	}
	l.mu.Lock()
	l.sysctls[parameter] = lock
	l.mu.Unlock()
	id, err := l.record(entry{Kind: kindSysctl, Path: parameter})
	if err != nil {
		return 0, err
	}
	return id, os.WriteFile(path, []byte(value), 0)
}

// DropCaches writes back dirty pages, and drops the page cache, dentries and inodes of the whole
// machine. It takes as long as the slowest disk needs.
func DropCaches() error {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return fmt.Errorf("drop the page cache (needs root): %w", err)
	}
	return nil
}

func (m machine) sysctlPath(parameter string) string { return filepath.Join(m.sysctl, parameter) }

func (m machine) lockSysctl(ctx context.Context, parameter string) (*os.File, error) {
	path := filepath.Join(m.state, "sysctl", strings.ReplaceAll(parameter, "/", "."))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			lock.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, fmt.Errorf("another run has set %s: wait until that run ends: %w", parameter, ctx.Err())
		case <-retry.C:
		}
	}
}

// noteOriginal writes "PARAMETER VALUE" into the lock file. Applying this line restores the
// original state.
func (m machine) noteOriginal(lock *os.File, parameter string) error {
	for {
		raw, err := os.ReadFile(m.sysctlPath(parameter))
		if err != nil {
			return err
		}
		value := strings.TrimSpace(string(raw))
		if twin, ok := twins[parameter]; ok && value == "0" {
			parameter = twin
			continue
		}
		_, err = lock.WriteAt([]byte(parameter+" "+value), 0)
		return err
	}
}

func (l *Ledger) restoreSysctl(parameter string) error {
	l.mu.Lock()
	lock := l.sysctls[parameter]
	delete(l.sysctls, parameter)
	l.mu.Unlock()
	if lock == nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		var err error
		if lock, err = l.machine.lockSysctl(now, parameter); err != nil {
			return nil // a living run has locked the parameter and will restore it
		}
	}
	defer lock.Close()
	line, err := os.ReadFile(lock.Name())
	if err != nil || len(line) == 0 {
		return err // already restored
	}
	original, value, _ := strings.Cut(string(line), " ")
	if err := os.WriteFile(l.machine.sysctlPath(original), []byte(value), 0); err != nil {
		return err
	}
	return lock.Truncate(0)
}
