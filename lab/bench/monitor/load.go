package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// loadStep is the size of an operation of Load, in bytes.
const loadStep = 64 << 10

// Load reads a file or overwrites it, again and again, until ctx ends. Each of the jobs, which are goroutines,
// has an equal part of the file. Load replaces the paper's fio, so that nothing needs to be installed. Reads and
// writes go through the page cache. A reader drops its part from the page cache before each pass. A writer never
// calls fsync.
func Load(ctx context.Context, file string, write bool, jobs int) (err error) {
	flags := os.O_RDONLY
	if write {
		flags = os.O_WRONLY
	}
	f, err := os.OpenFile(file, flags, 0)
	if err != nil {
		return fmt.Errorf("load a file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	part := info.Size() / int64(max(jobs, 1)) / loadStep * loadStep
	if jobs < 1 || part == 0 {
		return fmt.Errorf("load %s: the file has %d bytes, but each of %d jobs needs at least %d", file, info.Size(), jobs, loadStep)
	}
	one := f.ReadAt
	if write {
		one = f.WriteAt
	}
	errs := make([]error, jobs)
	var running sync.WaitGroup
	for i := range jobs {
		running.Go(func() {
			buffer := make([]byte, loadStep)
			for from := int64(i) * part; ctx.Err() == nil && errs[i] == nil; {
				if !write {
					errs[i] = unix.Fadvise(int(f.Fd()), from, part, unix.FADV_DONTNEED)
				}
				for at := from; at < from+part && ctx.Err() == nil && errs[i] == nil; at += loadStep {
					_, errs[i] = one(buffer, at)
				}
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("load %s: %w", file, err)
	}
	return nil
}
