package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func containsText(t []byte, piece string) bool { return bytes.Contains(t, []byte(piece)) }

// file is a file as it was read.
type file struct {
	exists bool
	text   []byte
	path   string // after resolving links
}

// fileMax is the maximum size of an edited file, in bytes. Configuration files are much smaller.
const fileMax = 16 << 20

// readFile reads a file; it follows a link. It refuses a file that could not be restored by writing
// a new file in its place.
func readFile(path string) (file, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return file{}, fmt.Errorf("%s is a link to nothing: repair or delete it", path)
		}
		return file{path: path}, nil
	}
	if err != nil {
		return file{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return file{}, err
	}
	switch stat, ok := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return file{}, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > fileMax:
		return file{}, fmt.Errorf("%s has %d bytes; more than %d are not edited", path, info.Size(), fileMax)
	case ok && stat.Nlink > 1:
		return file{}, fmt.Errorf("%s has %d hard links, and replacing it would leave the other links with the old text: replace the links by separate files", path, stat.Nlink)
	}
	data, err := os.ReadFile(real)
	return file{exists: true, text: data, path: real}, err
}

// disk makes the changes. A test can make each step fail.
type disk struct {
	step func(what, path string) error
}

func (d *disk) before(what, path string) error {
	if d.step == nil {
		return nil
	}
	return d.step(what, path)
}

const temporary = ".penstock-tmp"

func temporaryName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+temporary)
}

// write replaces a file atomically. The new file has the permissions and owner of the old file or,
// if there was no file, of its folder.
func (d *disk) write(path string, data []byte) (err error) {
	like := path
	mode := fs.FileMode(0o644)
	info, err := os.Stat(path)
	switch {
	case err == nil:
		mode = info.Mode().Perm()
	case errors.Is(err, fs.ErrNotExist):
		like = filepath.Dir(path)
		if info, err = os.Stat(like); err != nil {
			return err
		}
	default:
		return err
	}
	name := temporaryName(path)
	if err := d.remove(name); err != nil {
		return err
	}
	if err := d.before("create", name); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data[:len(data)/2]); err != nil {
		return err
	}
	if err := d.before("fill", name); err != nil {
		return err
	}
	if _, err := f.Write(data[len(data)/2:]); err != nil {
		return err
	}
	if err := own(f, info); err != nil {
		return fmt.Errorf("set the owner of %s to that of %s: %w (run as root or as that owner)", path, like, err)
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := d.before("rename", path); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	return settle(filepath.Dir(path))
}

// own gives f the owner and group of the file that info describes.
func own(f *os.File, info fs.FileInfo) error {
	want, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if have, ok := now.Sys().(*syscall.Stat_t); ok && have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}

// settle syncs a folder, so that changes of the names in it survive a crash.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// remove deletes a file, which may be missing.
func (d *disk) remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := d.before("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return settle(filepath.Dir(path))
}

// mkdir makes a folder with the permissions and owner of its parent.
func (d *disk) mkdir(path string) error {
	if err := d.before("mkdir", path); err != nil {
		return err
	}
	around, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	if err := os.Mkdir(path, around.Mode().Perm()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return own(f, around)
}

// rmdir deletes a folder if it is empty.
func (d *disk) rmdir(path string) error {
	if err := d.before("rmdir", path); err != nil {
		return err
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

// lock keeps two runs from changing one folder. The kernel releases the lock when the process ends,
// even if it is killed.
func lock(dir string) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: another penstock install is changing this folder (%w)", dir, err)
	}
	return func() { f.Close() }, nil
}
