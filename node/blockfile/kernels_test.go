package blockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"penstock/lab/guest"
	"penstock/lab/seccomp"
	"penstock/node/kernel"
)

func init() { seccomp.Apply() }

func TestMain(m *testing.M) {
	guest.RunIfInside(guest.Tests("PENSTOCK_BLOCKFILE_TESTS")) // by e2e/guest, on an earlier kernel
	os.Exit(m.Run())
}

// Whatever calls the kernel lacks or a filter refuses, all tests of files pass.
func TestWithoutNewerCalls(t *testing.T) {
	if seccomp.Refused() {
		return
	}
	for _, calls := range [][]int{{unix.SYS_OPENAT2, unix.SYS_CACHESTAT}, {unix.SYS_OPENAT2}, {unix.SYS_CACHESTAT}} {
		for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
			seccomp.Rerun(t, errno, calls, "^Test(Open|FIFO|Finalised|Query|Stage|Mincore|Residency)", 7)
		}
	}
}

// mincore and cachestat count the same pages.
func TestMincoreCountsAsCachestat(t *testing.T) {
	if kernel.Cachestat.Missing() != nil {
		return // in a process of TestWithoutNewerCalls
	}
	d, root := dataDir(t)
	name := filepath.Join(root, "blk_1")
	const size = (mincorePages+100)<<12 + 123 // more than one call
	put(t, name, size)
	f, err := d.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.PrepareStaging(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		if err := f.Drain(0, size); err != nil {
			rt.Fatal(err)
		}
		if err := unix.Fadvise(int(f.f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			rt.Fatal(err)
		}
		offset := rapid.Int64Range(0, size+2*PageSize)
		for range rapid.IntRange(0, 4).Draw(rt, "reads") {
			if err := f.read(make([]byte, rapid.IntRange(1, 1<<20).Draw(rt, "bytes")), offset.Draw(rt, "read")); err != nil {
				rt.Fatal(err)
			}
		}
		for range 8 {
			off := offset.Draw(rt, "offset")
			length := rapid.OneOf(rapid.Int64Range(1, size+PageSize), rapid.Just(int64(1)<<62)).Draw(rt, "length")
			want, err := f.Query(off, length)
			if err != nil {
				rt.Fatal(err)
			}
			got, err := f.mincore(off, length)
			// The kernel may take pages away at any time.
			if again, _ := f.Query(off, length); err != nil || got.Resident != want.Resident && again == want {
				rt.Errorf("%d bytes from %d: mincore %d, cachestat %d, %v", length, off, got.Resident, want.Resident, err)
			}
		}
	})
}

// All pages are counted wherever the range begins, also inside a large folio.
func TestQueryInsideLargeFolios(t *testing.T) {
	if kernel.Cachestat.Missing() != nil {
		return // in a process of TestWithoutNewerCalls
	}
	d, root := dataDir(t)
	name := filepath.Join(root, "blk_1")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size, step = 32 << 20, 3 << 20
	for at := 0; at < size; at += step {
		if _, err := file.Write(make([]byte, min(step, size-at))); err != nil { // ext4 and xfs make large folios of such writes
			t.Fatal(err)
		}
	}
	f, err := d.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wrong := 0
	for off := int64(0); off < size; off += 68 << 10 {
		for _, length := range []int64{64 << 10, 816 << 10, 2 << 20, 5 << 20} {
			length = min(length, size-off)
			pages, err := f.Query(off, length)
			if err != nil {
				t.Fatal(err)
			}
			if pages.Resident != length {
				mc, err := f.mincore(off, length)
				// The kernel may take pages away at any time.
				again, _ := f.Query(off, length)
				if wrong++; err != nil || mc.Resident != again.Resident && again == pages {
					t.Fatalf("%d KiB from %d KiB: %d bytes resident, and %d by mincore, %v", length>>10, off>>10, pages.Resident, mc.Resident, err)
				}
			}
		}
	}
	if wrong > 100 {
		t.Errorf("pages were missing in %d ranges", wrong)
	}
}

// A user without rights gets an error, and not the answer that all pages are resident.
func TestResidencyIsForUsersWithRights(t *testing.T) {
	d, root := dataDir(t)
	files := map[string]*File{}
	for name, at := range map[string]struct {
		owner int
		mode  os.FileMode
	}{
		"of another": {1001, 0o644}, "own": {65534, 0o444}, "writable": {1001, 0o666},
	} {
		path := filepath.Join(root, name)
		put(t, path, 3*int(PageSize))
		if err := errors.Join(os.Chmod(path, at.mode), os.Chown(path, at.owner, 65534)); err != nil {
			t.Fatal(err)
		}
		f, err := d.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[name] = f
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		_ = unix.Setfsuid(65534)
		for name, f := range files {
			for way, query := range map[string]func(off, length int64) (Pages, error){"Query": f.Query, "mincore": f.mincore} {
				pages, err := query(0, 3*PageSize)
				if name == "of another" {
					if !errors.Is(err, unix.EPERM) {
						t.Errorf("%s of a file of another user: %+v, %v", way, pages, err)
					}
				} else if err != nil || pages.Resident != 3*PageSize {
					t.Errorf("%s of the file %q: %+v, %v", way, name, pages, err)
				}
			}
		}
	}()
	<-ended
}

func BenchmarkQuery(b *testing.B) {
	root := b.TempDir()
	d, err := OpenDir(root, "/sys")
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	name := filepath.Join(root, "blk_1")
	if err := os.WriteFile(name, make([]byte, 128<<20), 0o644); err != nil {
		b.Fatal(err)
	}
	f, err := d.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for way, query := range map[string]func(off, length int64) (Pages, error){"cachestat": f.Query, "mincore": f.mincore} {
		for _, mib := range []int64{1, 4, 128} {
			b.Run(fmt.Sprintf("%s/%dMiB", way, mib), func(b *testing.B) {
				for b.Loop() {
					if _, err := query(0, mib<<20); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
