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
)

// sync returns when the place's disk has all that was written to it.
func (m *Machine) sync(place int) error {
	f, err := os.Open(m.disks[place].Mount())
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
	return m.disks[place].Forget()
}

const deletePatience = 60 * time.Second

// deleteFiles deletes what was written and waits until the DataNodes have.
func (m *Machine) deleteFiles(ctx context.Context) error {
	for i := range m.disks {
		files, err := m.cluster.FS().List(ctx, placeDir(i))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := m.cluster.FS().Remove(ctx, f.Path); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, deletePatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for _, d := range m.disks {
		for {
			n, err := blockFiles(d.Mount())
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%d blocks on %s are not deleted: %w", n, d.Name(), ctx.Err())
			}
		}
	}
	return nil
}

// blockFiles counts the blocks below a folder.
func blockFiles(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), "blk_") {
			n++
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}
