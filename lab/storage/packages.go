package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"penstock/lab/debian"
)

// packages are Debian's packages of both file systems, and fio, which measures them.
var packages = []string{"glusterfs-server", "moosefs-master", "moosefs-chunkserver", "moosefs-client", "fio"}

// Fetch makes sure that the programs of both file systems are in the cache, and returns their folder. If they are
// not, Fetch needs a Debian machine with apt-get.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (string, error) {
	// Other packages need another name: a folder that exists is not fetched again.
	dir, err := filepath.Abs(filepath.Join(cacheDir, "parallel-file-systems-fio"))
	if err != nil {
		return "", err
	}
	begin := time.Now()
	fetched := false
	err = debian.Make(ctx, dir, "", func(p *debian.Packages, into string) error {
		fetched = true
		progress("GlusterFS and MooseFS: fetching Debian's packages (30 MB with their lists) into %s, once", dir)
		return p.UnpackAll(ctx, into, packages...)
	})
	if err != nil {
		return "", fmt.Errorf("storage: fetch GlusterFS and MooseFS: %w", err)
	}
	if fetched {
		progress("GlusterFS and MooseFS: fetched in %.0f s", time.Since(begin).Seconds())
	}
	return dir, nil
}
