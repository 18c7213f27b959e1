package shares

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	clients "penstock/lab/client"
	"penstock/node/kernel"
)

// TestReadsWithoutChecksums checks that a read whose client asks for no checksums, as HBase's reads do, stages no checksum
// file. A read with checksums does.
func TestReadsWithoutChecksums(t *testing.T) {
	c := start(t)
	g := c.guests(t)
	const path, size, seed = "/unverified", 8 * mib, 400
	g.create(t, path, &filled{seed: seed}, size)
	for _, with := range []bool{false, true} {
		c.forget(t)
		args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d", path, clients.Attempt(seed), size, seed)
		if !with {
			args += " unverified=1"
		}
		fixture.Must(t, g.jvm.Run(t.Context(), "get", args))
		if pages := c.residentChecksums(t); with != (pages > 0) {
			t.Errorf("with checksums: %v: %d pages of checksum files are in the page cache", with, pages)
		}
	}
}

// residentChecksums returns the number of pages of all checksum files that are in the page cache.
func (c *cluster) residentChecksums(t *testing.T) (all int64) {
	t.Helper()
	files := 0
	fixture.Must(t, filepath.WalkDir(c.dataDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".meta" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		files++
		pages, err := kernel.CountPages(int(f.Fd()), 0, mib)
		all += pages.Resident
		return err
	}))
	if files == 0 {
		t.Fatal("there are no checksum files")
	}
	return all
}
