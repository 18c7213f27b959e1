package decision

import (
	"sync/atomic"

	"penstock/node/blockfile"
)

// memoryFile is a block file that takes no time, because the benchmark measures Penstock's time
// without the device's time. The file is either completely in the page cache or not at all.
type memoryFile struct {
	size     int64
	resident bool
	quanta   *atomic.Int64 // staged
}

func (f *memoryFile) Query(_, length int64) (blockfile.Pages, error) {
	const page = 4096
	if !f.resident {
		return blockfile.Pages{}, nil
	}
	return blockfile.Pages{Resident: (length+page-1)/page*page + page}, nil
}

func (f *memoryFile) Stage(int64, int64) error {
	f.quanta.Add(1)
	return nil
}

func (f *memoryFile) Drain(int64, int64) error { return nil }
func (f *memoryFile) Deleted() bool            { return false }
func (f *memoryFile) Size() (int64, error)     { return f.size, nil }
func (f *memoryFile) Space() (int64, error)    { return f.size, nil }
func (f *memoryFile) Close() error             { return nil }
