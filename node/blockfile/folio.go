package blockfile

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// folioBytes is the size that the kernel can bring in at once (a PMD-sized folio on x86-64, and
// on arm64 with pages of 4 KiB).
const folioBytes = 2 << 20

// folios records how many requests for a whole folio in a row have failed on a data directory's
// file system.
type folios struct{ missed atomic.Int32 }

// folioTries is the number of failures after which a file system counts as one without large
// folios. A single failure proves little: another reader may have read the first page before.
const folioTries = 8

// stageFolio brings in the folio at off, a multiple of folioBytes, and reports whether all of it
// is now resident. It does nothing if a part is already resident.
//
// readahead(2) fills the page cache with single pages. Sending bytes from single pages costs the
// DataNode up to twice the CPU time of sending them from large folios, which the kernel's own
// readahead creates. A page fault in a mapping advised MADV_HUGEPAGE brings in one large folio (on
// file systems that have them: xfs since Linux 5.18, ext4 since 6.16), and MADV_RANDOM limits the
// fault to one folio. Only the first page is touched: a kernel without large folios fetches only
// that page, and the caller then fetches the rest.
//
// The kernel marks such a folio as the place where a reader's readahead continues. A reader that
// reaches the mark looks for a missing page within the length of its readahead. If that length is
// shorter than the folio (Device.Folios), the reader finds no missing page and reads nothing.
func (b *File) stageFolio(off int64) bool {
	if !b.dir.Device.Folios || b.dir.folios.missed.Load() >= folioTries {
		return false
	}
	if size, err := b.Size(); err != nil || off+folioBytes > size {
		return false
	}
	if pages, err := b.Query(off, folioBytes); err != nil || pages.Resident > 0 {
		return false
	}
	mem, err := unix.Mmap(int(b.f.Fd()), off, int(PageSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return false
	}
	defer unix.Munmap(mem)
	for _, advice := range []int{unix.MADV_HUGEPAGE, unix.MADV_RANDOM, unix.MADV_POPULATE_READ} {
		// The caller meets the file's own errors (truncated, unreadable) again.
		if err := unix.Madvise(mem, advice); err != nil {
			b.dir.folios.missed.Add(1)
			return false
		}
	}
	pages, err := b.Query(off, folioBytes)
	if err != nil || pages.Resident < folioBytes {
		b.dir.folios.missed.Add(1)
		return false
	}
	b.dir.folios.missed.Store(0)
	return true
}
