package blockfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
)

func dataDir(t *testing.T) (*Dir, string) {
	t.Helper()
	root := t.TempDir()
	d, err := OpenDir(root, "/sys")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, root
}

func put(t *testing.T, name string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpenStaysBeneath(t *testing.T) {
	d, root := dataDir(t)
	outside := filepath.Join(t.TempDir(), "secret")
	put(t, outside, 10)
	put(t, filepath.Join(root, "current/blk_1"), 10)
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(root, "dir")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		outside,
		root,
		root + "/link",
		root + "/dir/secret",
		root + "/../" + filepath.Base(filepath.Dir(outside)) + "/secret",
		root + "/current", // not a regular file
		root + "x/current/blk_1",
	} {
		if f, err := d.Open(path); err == nil {
			f.Close()
			t.Errorf("%s could be opened", path)
		}
	}
	if _, err := d.Open(outside); !errors.Is(err, ErrOutside) {
		t.Errorf("outside: %v", err)
	}
	f, err := d.Open(root + "/current/../current/blk_1")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestFIFOIsRefusedAtOnce(t *testing.T) {
	d, root := dataDir(t)
	name := filepath.Join(root, "pipe")
	if err := mkfifo(name); err != nil {
		t.Fatal(err)
	}
	if f, err := d.Open(name); err == nil {
		f.Close()
		t.Error("a pipe could be opened")
	}
}

func TestFinalisedBlockIsFound(t *testing.T) {
	d, root := dataDir(t)
	// Block 1073741825 + 0x1f0500: subdir31/subdir5.
	final := root + "/current/BP-1/current/finalized/subdir31/subdir5/blk_1075774721"
	put(t, final, 8)
	put(t, final+"_1001.meta", 8)
	for _, path := range []string{
		root + "/current/BP-1/current/rbw/blk_1075774721",
		root + "/current/BP-1/tmp/blk_1075774721",
		root + "/current/BP-1/current/rbw/blk_1075774721_1001.meta",
	} {
		f, err := d.Open(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		f.Close()
	}
	if f, err := d.Open(root + "/current/BP-1/current/rbw/blk_7"); err == nil {
		f.Close()
		t.Error("a block that is nowhere could be opened")
	}
}

func TestQueryStageDrain(t *testing.T) {
	d, root := dataDir(t)
	name := filepath.Join(root, "blk_2")
	const size = 3<<20 + 100
	put(t, name, size)
	f, err := d.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Size(); err != nil || got != size {
		t.Errorf("size %d, %v", got, err)
	}
	pages, err := f.Query(0, size)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64((size + 4095) / 4096 * 4096); pages.Resident != want {
		t.Errorf("a file just written has %d resident bytes, want %d", pages.Resident, want)
	}
	mc, err := f.mincore(0, size)
	if err != nil || mc.Resident != pages.Resident {
		t.Errorf("mincore says %d, %v", mc.Resident, err)
	}
	if err := f.Drain(0, size); err != nil {
		t.Fatal(err)
	}
	if pages, _ = f.Query(0, size); kernel.Cachestat.Missing() == nil && pages.Unsaved != 0 && onDisk(t, root) {
		t.Errorf("%d bytes unsaved after draining", pages.Unsaved)
	}
	if err := f.PrepareStaging(); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]int64{{0, size}, {size - 1, 1}, {size, 4096}, {size - 50, 4096}, {4096, 0}} {
		if err := f.Stage(r[0], r[1]); err != nil {
			t.Errorf("stage %v: %v", r, err)
		}
	}
	if f.Deleted() {
		t.Error("deleted before it was")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if !f.Deleted() {
		t.Error("not deleted after it was")
	}
}

// Whatever the kernel and the file system support, a staged range is complete.
func TestStageWithAndWithoutFolios(t *testing.T) {
	d, root := dataDir(t)
	name := filepath.Join(root, "blk_3")
	const size = 5<<20 + 100
	for _, tt := range []struct {
		name   string
		folios bool
		missed int32
		warm   int64 // bytes that are resident before
	}{
		{"as the device has it", d.Device.Folios, 0, 0},
		{"folios", true, 0, 0},
		{"the last try", true, folioTries - 1, 0},
		{"given up", true, folioTries, 0},
		{"none", false, 0, 0},
		{"a part is there", true, 0, 4096},
	} {
		put(t, name, size)
		f, err := d.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Drain(0, size); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(int(f.f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		d.Device.Folios = tt.folios
		d.folios.missed.Store(tt.missed)
		if err := f.PrepareStaging(); err != nil {
			t.Fatal(err)
		}
		if err := f.read(make([]byte, tt.warm), 0); err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < size; at += 4 << 20 {
			if err := f.Stage(at, 4<<20); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		if pages, err := f.Query(0, size); err != nil || pages.Resident < size {
			t.Errorf("%s: %d of %d bytes resident, %v", tt.name, pages.Resident, size, err)
		}
		if missed := d.folios.missed.Load(); missed > folioTries {
			t.Errorf("%s: tried %d times in vain", tt.name, missed)
		}
		f.Close()
	}
}

func FuzzFinalPath(f *testing.F) {
	f.Add("current/BP-1/current/rbw/blk_1")
	f.Add("x/tmp/blk_-9223372036854775808_1.meta")
	f.Add("/tmp/blk_")
	f.Fuzz(func(t *testing.T, rel string) {
		if final, ok := finalPath(rel); ok && filepath.Base(final) != filepath.Base(rel) {
			t.Errorf("%q became %q", rel, final)
		}
	})
}

// Without its descriptor, a directory is opened by its path for each file, as long as it is the same directory.
func TestAClosedDirectoryIsFoundAgain(t *testing.T) {
	for way, pid := range map[string]int{"in this process's mounts": 0, "in a process's mounts": os.Getpid()} {
		t.Run(way, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "data")
			put(t, filepath.Join(root, "blk_1"), 10)
			d, err := OpenDirOf(pid, root, "/sys")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Close(), d.Close()); err != nil {
				t.Fatal(err)
			}
			open := func() error {
				f, err := d.Open(filepath.Join(root, "blk_1"))
				if err == nil {
					f.Close()
				}
				return err
			}
			if err := open(); err != nil {
				t.Fatal(err)
			}
			away := root + ".away"
			move := func(from, to string) {
				t.Helper()
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
			move(root, away)
			if err := open(); !errors.Is(err, ErrMoved) {
				t.Errorf("without the directory: %v", err)
			}
			put(t, filepath.Join(root, "blk_1"), 10)
			if err := open(); !errors.Is(err, ErrMoved) {
				t.Errorf("another directory at its place: %v", err)
			}
			move(root, root+".other")
			if err := os.Symlink(away, root); err != nil {
				t.Fatal(err)
			}
			if err := open(); err != nil && kernel.Openat2.Missing() == nil {
				t.Errorf("through a link: %v", err)
			}
			if err := os.Chown(away, 1001, -1); err != nil {
				t.Fatal(err)
			}
			if err := open(); !errors.Is(err, ErrMoved) {
				t.Errorf("with another owner: %v", err)
			}
		})
	}
}
