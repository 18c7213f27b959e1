package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"penstock/node/blockfile"
	"penstock/node/profile"
)

// target is the file or device of a load. Its methods may be called by several workers at a time,
// for ranges that do not overlap.
type target interface {
	size() int64 // bytes that requests may go to
	writable() bool
	prepare(write bool, off, n int64) error               // before a request, untimed
	do(worker int, write bool, off, n int64) error        // the request
	forget(off, n int64) error                            // after it, untimed
	lay(goOn func(laid int64) bool) (laid int64, e error) // writes data to read
	close() error
}

// files makes requests as the daemon does: it stages and drains ranges of a file. The file never
// has a name, so nothing is left of it, however the measurement ends.
type files struct {
	dir   *blockfile.Dir
	out   *os.File
	file  *blockfile.File
	space int64
	laid  int64
	text  []byte
}

// openFiles allocates space bytes in the folder.
func openFiles(path string, space int64) (_ *files, device string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	t := &files{space: space, text: make([]byte, bytesMax)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.dir, err = blockfile.OpenDir(path, sysfs); err != nil {
		return nil, "", err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, "", fmt.Errorf("free space of %s: %w", path, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < space+space/16 {
		return nil, "", fmt.Errorf("%s has %d MiB free, the measurement needs %d: make room or give less with --space",
			path, free>>20, (space+space/16)>>20)
	}
	if t.out, err = os.CreateTemp(path, ".penstock-profile-*"); err != nil {
		return nil, "", err
	}
	if t.file, err = t.dir.Open(filepath.Join(t.dir.Path, filepath.Base(t.out.Name()))); err != nil {
		return nil, "", errors.Join(err, os.Remove(t.out.Name()))
	}
	if err = os.Remove(t.out.Name()); err != nil {
		return nil, "", err
	}
	if err = t.file.PrepareStaging(); err != nil {
		return nil, "", err
	}
	// The file is contiguous if the file system supports fallocate.
	if err = unix.Fallocate(int(t.out.Fd()), 0, 0, space); errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("allocate %d MiB in %s: %w", space>>20, path, err)
	}
	for i := range t.text { // bytes that a device cannot compress
		t.text[i] = byte(uint32(i) * 2654435761 >> 13)
	}
	return t, t.dir.Device.Name, nil
}

func (t *files) size() int64    { return t.laid }
func (t *files) writable() bool { return true }

func (t *files) lay(goOn func(int64) bool) (int64, error) {
	for t.laid < t.space && goOn(t.laid) {
		if err := errors.Join(t.prepare(true, t.laid, bytesMax), t.do(0, true, t.laid, bytesMax), t.forget(t.laid, bytesMax)); err != nil {
			return t.laid, err
		}
		t.laid += bytesMax
	}
	// Metadata that the file system still has to write is not part of the measurement.
	return t.laid, t.out.Sync()
}

func (t *files) prepare(write bool, off, n int64) error {
	if !write {
		return nil
	}
	_, err := t.out.WriteAt(t.text[:n], off)
	return err
}

func (t *files) do(_ int, write bool, off, n int64) error {
	if write {
		return t.file.Drain(off, n)
	}
	return t.file.Stage(off, n)
}

func (t *files) forget(off, n int64) error {
	return unix.Fadvise(int(t.out.Fd()), off, n, unix.FADV_DONTNEED)
}

func (t *files) close() error {
	var errs []error
	if t.file != nil {
		errs = append(errs, t.file.Close())
	}
	if t.out != nil {
		errs = append(errs, t.out.Close())
	}
	if t.dir != nil {
		errs = append(errs, t.dir.Close())
	}
	return errors.Join(errs...)
}

// raw makes requests to a block device, without the page cache.
type raw struct {
	f       *os.File
	bytes   int64
	write   bool
	buffers [][]byte // one for each worker, aligned
}

// openRaw opens a device. For writing, the kernel refuses a device that is in use, mounted or
// otherwise.
func openRaw(path string, write bool) (_ *raw, device string, err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, "", err
	}
	name := filepath.Base(real)
	id, err := profile.Identify(sysfs, name)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w; name a whole disk, not a partition of it", path, err)
	}
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR | unix.O_EXCL
	}
	t := &raw{bytes: id.Bytes / bytesMax * bytesMax, write: write}
	if t.f, err = os.OpenFile(real, flags|unix.O_DIRECT, 0); err != nil {
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: it is mounted or in use, so it is not written to", err)
		}
		return nil, "", err
	}
	for range concurrencyMax {
		b, err := unix.Mmap(-1, 0, int(bytesMax), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return nil, "", errors.Join(fmt.Errorf("memory for requests: %w", err), t.close())
		}
		t.buffers = append(t.buffers, b)
	}
	return t, name, nil
}

func (t *raw) size() int64                         { return t.bytes }
func (t *raw) writable() bool                      { return t.write }
func (t *raw) prepare(bool, int64, int64) error    { return nil }
func (t *raw) forget(int64, int64) error           { return nil }
func (t *raw) lay(func(int64) bool) (int64, error) { return 0, nil }

func (t *raw) do(worker int, write bool, off, n int64) error {
	b := t.buffers[worker][:n]
	var err error
	if write {
		_, err = t.f.WriteAt(b, off)
	} else {
		_, err = t.f.ReadAt(b, off)
	}
	return err
}

func (t *raw) close() error {
	var errs []error
	for _, b := range t.buffers {
		errs = append(errs, unix.Munmap(b))
	}
	return errors.Join(append(errs, t.f.Close())...)
}
