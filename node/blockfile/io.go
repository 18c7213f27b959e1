package blockfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
)

// PageSize is the unit of residency counts and of ranges, in bytes.
var PageSize = int64(os.Getpagesize())

// probeBytes is the distance between the bytes that Stage reads to wait for a range, and the length
// of the reads that fetch pages that readahead left out.
const probeBytes = 128 << 10

// Pages is the state of a range in the page cache, in bytes (whole pages).
type Pages struct {
	Resident int64
	Unsaved  int64 // dirty or under writeback
}

// File is one open block or meta file.
type File struct {
	f      *os.File
	dir    *Dir
	closed func() // nil: the descriptor is not counted
}

// OnClose makes Close call closed, once, after the functions of earlier calls. It must be called
// before the file is shared.
func (b *File) OnClose(closed func()) {
	before := b.closed
	b.closed = sync.OnceFunc(func() {
		if before != nil {
			before()
		}
		closed()
	})
}

// Name returns the path under which the file was opened.
func (b *File) Name() string { return b.f.Name() }

// Size returns the file's present length, in bytes.
func (b *File) Size() (int64, error) {
	st, err := b.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Space returns the bytes that the file occupies on its file system. They include bytes that are
// only in the page cache, since file systems count them at once.
func (b *File) Space() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(b.f.Fd()), &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Blocks * 512, nil
}

// Owner returns the user that owns the file.
func (b *File) Owner() (uint32, error) { return ownerOf(b.f) }

// Close closes the descriptor.
func (b *File) Close() error {
	err := b.f.Close()
	if b.closed != nil {
		b.closed()
	}
	return err
}

// Query returns the state of [off, off+length) in the page cache. Only the file's owner and users with the
// right to write to the file may ask for it. For other users, the error is unix.EPERM.
//
// Kernels before Linux 6.5 have no cachestat(2). Residency then comes from mincore(2), and
// every resident page counts as unsaved.
func (b *File) Query(off, length int64) (Pages, error) {
	if length <= 0 {
		return Pages{}, nil
	}
	if kernel.Cachestat.Missing() != nil {
		return b.mincore(off, length)
	}
	pages, err := kernel.CountPages(int(b.f.Fd()), off, length)
	if err != nil {
		return Pages{}, fmt.Errorf("cachestat %s: %w", b.f.Name(), err)
	}
	return Pages{Resident: pages.Resident * PageSize, Unsaved: pages.Unsaved * PageSize}, nil
}

// PrepareStaging turns off the kernel's readahead on this descriptor, so that pages from
// readahead(2) carry no readahead marks.
func (b *File) PrepareStaging() error {
	f := b.f
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		return fmt.Errorf("fadvise %s: %w", f.Name(), err)
	}
	return nil
}

// Stage brings [off, off+length) into the page cache and returns when all of it is resident. The
// range may extend beyond the end of the file.
//
// Whole folios are requested as folios, the rest by readahead(2). readahead(2) always reports
// success: it only queues requests, is cut to the device's largest request, and may leave out pages
// under memory pressure. So the range is requested in parts that are small enough not to be cut,
// awaited, and checked; missing pages are then read. Folios are resident when stageFolio returns.
// They are not read here, since a read through this descriptor would reach their mark and fetch the
// next folio.
func (b *File) Stage(off, length int64) error {
	type part struct{ off, end int64 }
	var parts []part // for readahead(2)
	for at, n := off, int64(0); at < off+length; at += n {
		if at%folioBytes == 0 && off+length-at >= folioBytes && b.stageFolio(at) {
			n = folioBytes
			continue
		}
		n = min(b.dir.Device.Readahead, off+length-at)
		if _, _, errno := unix.Syscall(unix.SYS_READAHEAD, b.f.Fd(), uintptr(at), uintptr(n)); errno != 0 {
			return fmt.Errorf("readahead %s at %d: %w", b.f.Name(), at, errno)
		}
		if last := len(parts) - 1; last >= 0 && parts[last].end == at {
			parts[last].end += n
		} else {
			parts = append(parts, part{at, at + n})
		}
	}
	// A read of one byte waits for its page. The block layer may split and reorder a range, so
	// several pages are read.
	var probe [1]byte
	for _, p := range parts {
		for at := p.off; at < p.end; at += probeBytes {
			if err := b.read(probe[:], at); err != nil {
				return err
			}
		}
		if err := b.complete(p.off, p.end-p.off); err != nil {
			return err
		}
	}
	return nil
}

// complete waits for the last page of the range and reads missing pages, in parts.
func (b *File) complete(off, length int64) error {
	if length <= 0 {
		return nil
	}
	var probe [1]byte
	if err := b.read(probe[:], off+length-1); err != nil {
		return err
	}
	size, err := b.Size()
	if err != nil {
		return err
	}
	end := min(off+length, size)
	if end <= off {
		return nil
	}
	start := off / PageSize * PageSize
	pages, err := b.Query(off, end-off)
	if err != nil || pages.Resident >= (end-start+PageSize-1)/PageSize*PageSize {
		return err
	}
	buf := make([]byte, probeBytes)
	for at := off; at < end; at += probeBytes {
		if err := b.read(buf[:min(probeBytes, end-at)], at); err != nil {
			return err
		}
	}
	return nil
}

func (b *File) read(p []byte, at int64) error {
	if _, err := b.f.ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("staging %s at %d: %w", b.f.Name(), at, err)
	}
	return nil
}

// Drain writes the dirty pages of [off, off+length) to the device and returns when the device has
// them. It writes only data: no metadata, no barrier. HDFS alone remains responsible for the
// guarantees of hsync.
func (b *File) Drain(off, length int64) error {
	f := b.f
	if length <= 0 {
		return nil
	}
	const flags = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if err := unix.SyncFileRange(int(f.Fd()), off, length, flags); err != nil {
		return fmt.Errorf("sync_file_range %s at %d: %w", f.Name(), off, err)
	}
	return nil
}

// Deleted reports whether the file has lost its last name: its contents then need not reach the
// device.
func (b *File) Deleted() bool {
	var st unix.Stat_t
	return unix.Fstat(int(b.f.Fd()), &st) == nil && st.Nlink == 0
}

// Wrap returns a File for an open file on the directory's file system. Close closes the file.
func (d *Dir) Wrap(f *os.File) *File { return &File{f: f, dir: d} }
