package monitor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DirtyBackground returns how many bytes may be dirty in the page cache before the kernel begins to
// write them out by itself, for all devices together. procfs is the root of procfs: "/proc", except
// in tests. The value depends on vm.dirty_background_bytes or vm.dirty_background_ratio, and on the
// free memory.
func DirtyBackground(procfs string) (int64, error) {
	f, err := os.Open(filepath.Join(procfs, "vmstat"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return parseDirtyBackground(f)
}

func parseDirtyBackground(vmstat io.Reader) (int64, error) {
	const name, most = "nr_dirty_background_threshold", 1 << 40 // pages
	lines := bufio.NewScanner(io.LimitReader(vmstat, 1<<20))
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), name+" ")
		if !ok {
			continue
		}
		pages, err := strconv.ParseInt(value, 10, 64)
		if err != nil || pages < 0 || pages > most {
			return 0, fmt.Errorf("vmstat: %s is %q, not a count", name, value)
		}
		return pages * int64(os.Getpagesize()), nil
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("vmstat has no %s", name))
}
