package kernel

import "golang.org/x/sys/unix"

// Pages are counts of a file's pages.
type Pages struct {
	Resident int64 // in the page cache
	Unsaved  int64 // of these, pages that the device does not have yet
}

// CountPages counts the pages of [off, off+length) of an open file with cachestat(2). length must be above 0.
//
// On Linux 6.18, cachestat may count too few pages if the range begins inside a large folio: it ends before the
// range does. So if the first call finds some pages but not all, CountPages counts from the start of the largest
// possible folio, and subtracts the pages before off.
func CountPages(fd int, off, length int64) (Pages, error) {
	all, err := countPages(fd, off, length)
	pages := (off+length-1)/pageBytes - off/pageBytes + 1
	before := off % maxFolioBytes
	if err != nil || all.Resident == 0 || all.Resident >= pages || before < pageBytes {
		return all, err
	}
	if all, err = countPages(fd, off-before, before+length); err != nil {
		return all, err
	}
	head, err := countPages(fd, off-before, before/pageBytes*pageBytes)
	// The page cache may change between the calls.
	return Pages{Resident: max(0, all.Resident-head.Resident), Unsaved: max(0, all.Unsaved-head.Unsaved)}, err
}

const (
	pageBytes     = 4096
	maxFolioBytes = 2 << 20 // a folio of a file is no larger than a huge page, and starts at a multiple of its size
)

func countPages(fd int, off, length int64) (Pages, error) {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(length)}, &stat, 0)
	return Pages{Resident: int64(stat.Cache), Unsaved: int64(stat.Dirty + stat.Writeback)}, err
}
