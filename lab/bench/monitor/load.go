package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// loadStep is the size of an operation of Load, in bytes.
const loadStep = 64 << 10

// Load reads a file or overwrites it, from the begin to the end, again and again, until ctx ends. It
// plays the part of fio in the paper, so that nothing needs to be installed. Reads and writes go through
// the page cache. Each pass of a reader finds a cold file. A writer never calls fsync.
func Load(ctx context.Context, file string, write bool) (err error) {
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
	if info.Size() < loadStep {
		return fmt.Errorf("load %s: it has %d bytes, and a load needs at least %d", file, info.Size(), loadStep)
	}
	buffer := make([]byte, loadStep)
	for ctx.Err() == nil {
		if err := pass(ctx, f, buffer, info.Size(), write); err != nil {
			return fmt.Errorf("load a file: %w", err)
		}
	}
	return nil
}

func pass(ctx context.Context, f *os.File, buffer []byte, size int64, write bool) error {
	if !write {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return &os.PathError{Op: "drop from the page cache", Path: f.Name(), Err: err}
		}
	}
	one := f.ReadAt
	if write {
		one = f.WriteAt
	}
	for at := int64(0); at+loadStep <= size && ctx.Err() == nil; at += loadStep {
		if _, err := one(buffer, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
