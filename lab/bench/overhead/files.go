package overhead

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/disk"
)

// syncDisk returns when the disk has all that was written to it.
func syncDisk(d *disk.Disk) error {
	f, err := os.Open(d.Mount())
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

// forget drops what the page cache has of the place's files, and of nobody
// else's.
func (m *Machine) forget(place int) error {
	return m.Disks[place].Forget()
}

const deletePatience = 60 * time.Second

// deleteFiles deletes what was written and waits until the DataNodes have.
func (m *Machine) deleteFiles(ctx context.Context) error {
	for i := range 2 {
		files, err := m.Hadoop.FS().List(ctx, placeDir(i))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := m.Hadoop.FS().Remove(ctx, f.Path); err != nil {
				return err
			}
		}
	}
	for _, d := range m.Disks[:2] {
		if err := awaitDeleted(ctx, d, 0); err != nil {
			return err
		}
	}
	return nil
}

// awaitDeleted waits until no more than so many bytes of blocks are left on a disk.
func awaitDeleted(ctx context.Context, d *disk.Disk, left int64) error {
	ctx, cancel := context.WithTimeout(ctx, deletePatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := blockBytes(d.Mount())
		if err != nil {
			return err
		}
		if n <= left {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d bytes of blocks on %s are not deleted: %w", n-left, d.Name(), ctx.Err())
		}
	}
}

// blockBytes adds up the blocks below a folder, with their checksums.
func blockBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), "blk_") {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}
