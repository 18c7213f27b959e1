package node

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
)

// scanner is the flow of a DataNode's block scanner.
const scanner = "scanner"

// TestScanner: a DataNode whose block scanner was off until now reads all of its blocks.
// That is a flow of its own, and its bytes are the files', but for those of files that
// other tests have removed and that are deleted before they are scanned.
func TestScanner(t *testing.T) {
	const bytes = 40 * fixture.MiB
	ctx := shared.Begin(t, 3*time.Minute)
	shared.Remove(t, "/scanned")
	fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=/scanned seed=8 bytes=%d block=%d replication=3", bytes, block)))
	d := shared.Disks[1]
	var most int64 // what may be scanned: with checksums, in files of their own
	restart := func(settings map[string]string) {
		shared.Hadoop.StopDataNode(1)
		fixture.Must(t, shared.Hadoop.ConfigureDataNode(1, settings))
		most = blockBytes(t, d)
		if err := d.Forget(); err != nil { // what is scanned is read from the disk
			t.Fatal(err)
		}
		restartDataNode(ctx, t, 1)
	}
	t.Cleanup(func() { restart(nil) })
	before := fixture.Flow(fixture.Device(t, shared.Look(t), d), scanner)
	restart(map[string]string{"dfs.datanode.scan.period.hours": "504"})
	scanned := func() int64 {
		return fixture.Flow(fixture.Device(t, shared.Look(t), d), scanner).Bytes.Read - before.Bytes.Read
	}
	fixture.Eventually(t, "as much is scanned as must be there", func() bool { return scanned() >= bytes })
	read := scanned()
	t.Logf("%.1f MB of block files, %.1f of them the test's; the scanner's flow read %.1f MB of the disk", mb(most), mb(bytes), mb(read))
	if read > most+most/20 {
		t.Errorf("the scanner's flow read %d bytes for %d", read, most)
	}
}

// blockBytes is the size of all files of blocks and their checksums on a disk.
func blockBytes(t *testing.T, d *disk.Disk) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dataDir(d), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(entry.Name(), "blk_") {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	fixture.Must(t, err)
	return sum
}
