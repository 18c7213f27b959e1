package gate

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// systemPlaces are folders with files that the gate process, its supervisor, the daemon or the system need
// to make progress.
var systemPlaces = []string{"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"}

// supported are the file systems that can be held, by the number that statfs(2) returns. Btrfs has
// pre-content events, too. But a mark on btrfs is for all subvolumes, and each subvolume has a device number
// of its own. So the check of device numbers would not notice a system folder in another subvolume.
var supported = map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs"}

// ErrRefused means that a file system must not be held.
var ErrRefused = errors.New("refused")

// openPlace opens a folder whose file system may be held.
func openPlace(dir string, protected []string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("hold the file system of %s: %w", dir, err)
	}
	if err := mayHold(f, protected); err != nil {
		f.Close()
		return nil, fmt.Errorf("hold the file system of %s: %w", dir, err)
	}
	return f, nil
}

// MayHold returns why the file system of dir cannot be held; nil if it can. It changes nothing.
func MayHold(dir string, protected []string) error {
	f, err := openPlace(dir, protected)
	if err != nil {
		return err
	}
	return f.Close()
}

func mayHold(f *os.File, protected []string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	if err := mayHoldType(int64(fs.Type)); err != nil {
		return err
	}
	var dir unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &dir); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	swaps, err := swapFiles()
	if err != nil {
		return err
	}
	check := func(what string, paths []string) error {
		for _, path := range paths {
			same, err := onDevice(path, dir.Dev)
			if err != nil {
				return err
			}
			if same {
				return fmt.Errorf("%w: the file system also contains %s (%s), and the gate could wait for itself; put the data on a file system of its own",
					ErrRefused, path, what)
			}
		}
		return nil
	}
	return errors.Join(check("a folder of the system", systemPlaces), check("a file of Penstock", protected), check("a swap file", swaps))
}

func mayHoldType(kind int64) error {
	if supported[kind] == "" {
		return fmt.Errorf("%w: a file system of type %#x cannot be held; use ext4 or xfs", ErrRefused, kind)
	}
	return nil
}

// onDevice reports whether a file is on a device. For a file that does not exist, onDevice examines the
// nearest folder above it, because the file may be created there.
func onDevice(path string, dev uint64) (bool, error) {
	for {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			return st.Dev == dev, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return false, fmt.Errorf("find the file system of %s: %w", path, err)
		}
		parent := filepath.Dir(path)
		if parent == path {
			return false, nil
		}
		path = parent
	}
}

// swapFiles returns the files that the system swaps to.
func swapFiles() ([]string, error) {
	f, err := os.Open("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel has no swap
	}
	if err != nil {
		return nil, fmt.Errorf("list the swap files: %w", err)
	}
	defer f.Close()
	var swaps []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if path, ok := swapFile(lines.Text()); ok {
			swaps = append(swaps, path)
		}
	}
	return swaps, nil
}

// swapFile returns the path in a line of /proc/swaps; ok is false if the line is about a partition.
func swapFile(line string) (path string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 2 || fields[1] != "file" {
		return "", false
	}
	return unescape(fields[0]), true
}

// unescape replaces the octal codes that the kernel writes for special characters, such as \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
