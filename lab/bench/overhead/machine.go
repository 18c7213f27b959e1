package overhead

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"penstock/lab/disk"
	"penstock/lab/stand"
)

// Options are the paths of the real environment; they do not affect figures.
type Options struct {
	RunDir   string // private, absolute
	CacheDir string // downloads; kept between runs
	AgentJar string
	Binary   string   // penstock itself, for the daemon
	JVMArgs  []string // further arguments of both DataNodes, for example for a profiler
	Say      func(format string, args ...any)
}

// stand returns the part of a stand's description that Machine and YARNMachine have in common:
// disks for data, named after their use, and the kernel's dirty limits. Without root the limits
// stay as they are.
func (o Options) stand(c Conditions, disks ...string) stand.Spec {
	spec := stand.Spec{Dir: o.RunDir, Binary: o.Binary, AgentJar: o.AgentJar, Cache: o.CacheDir, Progress: o.Say, DisksOptional: true,
		Sysctls: stand.DirtyBytes(c.DirtyBackgroundBytes, c.DirtyBytes)}
	for _, name := range disks {
		spec.Disks = append(spec.Disks, fastDisk(name, c.DiskBytes))
	}
	return spec
}

func fastDisk(name string, bytes int64) disk.Options {
	return disk.Options{Name: name, Size: bytes, Scheduler: "none", LogBytesMax: mib}
}

// awaitNone waits until count returns at most 0. what names the counted things in errors. An error
// of count ends the wait.
func awaitNone(ctx context.Context, s *stand.Stand, what string, count func() (int64, error)) error {
	var failed error
	err := s.Await(ctx, "no "+what, func(context.Context) (bool, error) {
		n, err := count()
		if failed = err; err != nil || n <= 0 {
			return true, nil
		}
		return false, fmt.Errorf("%d are left", n)
	})
	return errors.Join(failed, err)
}

// awaitDeleted waits until the blocks on a disk have at most held bytes.
func awaitDeleted(ctx context.Context, s *stand.Stand, d *disk.Disk, held int64) error {
	return awaitNone(ctx, s, "bytes of deleted blocks on "+d.Name(), func() (int64, error) {
		n, err := blockBytes(d.Mount())
		return n - held, err
	})
}

// blockBytes returns the bytes of all blocks below a folder, with their checksums.
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
