package blockfile

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// mincorePages is the maximum number of pages of one call, so that a query of any length needs
	// no more than this many bytes of memory.
	mincorePages = 1024
	// beyondEnd is the distance, in bytes, between the end of a file and a page that no write can have
	// reached meanwhile.
	beyondEnd = 1 << 30
)

// mincore returns the state of [off, off+length) on kernels without cachestat. mincore(2) reports resident pages, and not
// which of them are dirty, so all of them count as unsaved. Pages that are being read count as missing
// (cachestat counts them as resident).
//
// Since Linux 5.2, mincore reports all pages as resident if the user neither owns the file nor may
// write to it. A page beyond the end of the file is never resident, so one that is reported as resident reveals
// this. It is needed only if no page of the range is missing. Earlier kernels answer every user.
//
// preadv2(2) with RWF_NOWAIT needs only the right to read. But it copies the data, before Linux 5.9 it may start
// readahead without its turn, and it marks pages as used.
func (b *File) mincore(off, length int64) (Pages, error) {
	size, err := b.Size()
	if err != nil {
		return Pages{}, err
	}
	start, end := off/PageSize*PageSize, size
	if length < size-off {
		end = off + length
	}
	if end <= start {
		return Pages{}, nil
	}
	pages := (end - start + PageSize - 1) / PageSize
	var resident int64
	for at := int64(0); at < pages; at += mincorePages {
		n, err := b.residentPages(start+at*PageSize, min(mincorePages, pages-at))
		if err != nil {
			return Pages{}, err
		}
		resident += n
	}
	if resident == pages {
		n, err := b.residentPages((size+beyondEnd)/PageSize*PageSize, 1)
		if err != nil {
			return Pages{}, err
		}
		if n > 0 {
			return Pages{}, fmt.Errorf("mincore %s: only the owner and users who may write to the file learn which pages are resident: %w", b.f.Name(), unix.EPERM)
		}
	}
	return Pages{Resident: resident * PageSize, Unsaved: resident * PageSize}, nil
}

// residentPages returns the number of resident pages among at most mincorePages pages from off, a multiple
// of PageSize. The mapping gives no access, so nothing can touch a page of it.
func (b *File) residentPages(off, pages int64) (resident int64, err error) {
	mem, err := unix.Mmap(int(b.f.Fd()), off, int(pages*PageSize), unix.PROT_NONE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("mmap %s: %w", b.f.Name(), err)
	}
	defer unix.Munmap(mem)
	var states [mincorePages]byte
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), uintptr(unsafe.Pointer(&states)))
	if errno != 0 {
		return 0, fmt.Errorf("mincore %s: %w", b.f.Name(), errno)
	}
	for _, s := range states[:pages] {
		resident += int64(s & 1)
	}
	return resident, nil
}
