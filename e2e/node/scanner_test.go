package node

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
)

// scanner is the flow of a DataNode's block scanner.
const scanner = "scanner"

// TestScanner: the block scanner of a DataNode was off and is turned on. It reads all blocks of the
// DataNode. These reads are a flow of their own, and its bytes are the files' bytes, except for
// files that other tests have removed and that are deleted before they are scanned.
func TestScanner(t *testing.T) {
	const bytes = 40 * fixture.MiB
	ctx := shared.Begin(t, 3*time.Minute)
	shared.Remove(t, "/scanned")
	fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=/scanned seed=8 bytes=%d block=%d replication=3", bytes, block)))
	d := shared.Disks[1]
	var most int64 // bytes that may be scanned, including the files of checksums
	restart := func(settings map[string]string) {
		shared.Hadoop.StopDataNode(1)
		fixture.Must(t, shared.Hadoop.ConfigureDataNode(1, settings))
		most = blockBytes(t, d)
		if err := d.Forget(); err != nil { // so that the scanner reads from the disk
			t.Fatal(err)
		}
		restartDataNode(ctx, t, 1)
	}
	t.Cleanup(func() { restart(nil) })
	before := fixture.Flow(fixture.Device(t, shared.Look(t), d), scanner)
	restart(map[string]string{
		"dfs.datanode.scan.period.hours": "504",
		// By default the scanner reads 1 MiB/s, and then pauses for half a minute.
		"dfs.block.scanner.volume.bytes.per.second": strconv.Itoa(1 << 30),
	})
	scanned := func() int64 {
		return fixture.Flow(fixture.Device(t, shared.Look(t), d), scanner).Bytes.Read - before.Bytes.Read
	}
	fixture.Eventually(t, "the test's blocks are scanned", func() bool { return scanned() >= bytes })
	read := scanned()
	t.Logf("%.1f MB of block files, %.1f of them the test's; the scanner's flow read %.1f MB of the disk", mb(most), mb(bytes), mb(read))
	if read > most+most/20 {
		t.Errorf("the scanner's flow read %d bytes for %d", read, most)
	}
}

// blockBytes returns the size of all files of blocks and their checksums on a disk.
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
