package shares

import (
	"fmt"
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
		if pages := c.residentChecksums(t, path); with != (pages > 0) {
			t.Errorf("with checksums: %v: %d pages of checksums are in the page cache", with, pages)
		}
	}
}

// residentChecksums returns how many pages of the checksums of an HDFS file's only block are in the page cache.
func (c *cluster) residentChecksums(t *testing.T, path string) int64 {
	t.Helper()
	names, err := filepath.Glob(c.block(t, path) + "_*.meta")
	fixture.Must(t, err)
	if len(names) != 1 {
		t.Fatalf("the block has the checksum files %q, want one", names)
	}
	f, err := os.Open(names[0])
	fixture.Must(t, err)
	defer f.Close()
	pages, err := kernel.CountPages(int(f.Fd()), 0, mib)
	fixture.Must(t, err)
	return pages.Resident
}
