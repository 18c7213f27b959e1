package kernel

import (
	"os"

	"golang.org/x/sys/unix"
)

// Pages are counts of a file's pages.
type Pages struct {
	Resident int64 // in the page cache
	Unsaved  int64 // of these, pages that the device does not have yet
}

// CountPages counts the pages of [off, off+length) of an open file with cachestat(2). length must be above 0.
//
// Now and then, cachestat counts too few pages if the range begins inside a large folio (seen on Linux 6.18). So if
// the first call finds some pages but not all, CountPages counts from the start of the largest possible folio, and
// subtracts the pages before off.
func CountPages(fd int, off, length int64) (Pages, error) {
	return pageCounter(func(off, length int64) (c pageCounts, err error) {
		var stat unix.Cachestat_t
		err = unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(length)}, &stat, 0)
		return pageCounts{Pages{Resident: int64(stat.Cache), Unsaved: int64(stat.Dirty + stat.Writeback)}, int64(stat.Evicted)}, err
	}).whole(off, length)
}

// With pages of another size, folios may be larger than maxFolioBytes, so the first count stands.
const (
	pageBytes     = 4096
	maxFolioBytes = 2 << 20 // a folio of a file is no larger than a huge page, and starts at a multiple of its size
)

// pageCounts are the counts of one call of cachestat.
type pageCounts struct {
	Pages
	evicted int64
}

// pageCounter calls cachestat once.
type pageCounter func(off, length int64) (pageCounts, error)

func (count pageCounter) whole(off, length int64) (Pages, error) {
	first, err := count(off, length)
	pages := (off+length-1)/pageBytes - off/pageBytes + 1
	before := off % maxFolioBytes
	none := first.Resident == 0 && first.evicted == 0
	if err != nil || none || first.Resident >= pages || before < pageBytes || os.Getpagesize() != pageBytes {
		return first.Pages, err
	}
	all, err := count(off-before, before+length)
	if err != nil {
		return Pages{}, err
	}
	head, err := count(off-before, before/pageBytes*pageBytes)
	// The page cache may change between the calls. The first call never counts too many.
	return Pages{
		Resident: min(pages, max(first.Resident, all.Resident-head.Resident)),
		Unsaved:  min(pages, max(first.Unsaved, all.Unsaved-head.Unsaved)),
	}, err
}
