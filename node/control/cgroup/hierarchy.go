package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"penstock/node/kernel"
)

// Version is a version of the kernel's interface to cgroups.
type Version int

// Versions. Both may be in use at the same time, each with other controllers.
const (
	V1 Version = 1
	V2 Version = 2
)

// String returns v1 or v2.
func (v Version) String() string { return "v" + strconv.Itoa(int(v)) }

func parseVersion(text string) (Version, error) {
	switch text {
	case "v1":
		return V1, nil
	case "v2":
		return V2, nil
	}
	return 0, fmt.Errorf("%q is not a version of cgroups: use v1 or v2", text)
}

// Names of the controllers of block I/O, in v1 and in v2.
const (
	controllerV1 = "blkio"
	controllerV2 = "io"
)

// Hierarchy is a mounted hierarchy of cgroups.
type Hierarchy struct {
	Version    Version
	Controller string // the controller that Find was called with
	Mount      string // where the hierarchy is mounted

	// base is the path of the cgroup that is mounted there: "/", except in some containers.
	base string
}

// Find returns the hierarchy of a controller of cgroup v1, or the hierarchy of cgroup v2, which all
// controllers share; controller is then only a name for errors.
func Find(version Version, controller string) (Hierarchy, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return Hierarchy{}, fmt.Errorf("read the table of mounts: %w", err)
	}
	h, ok := find(mounts, version, controller)
	if !ok {
		return Hierarchy{}, fmt.Errorf("cgroup %s with the controller %s is not mounted on this machine: mount it, or use another mechanism", version, controller)
	}
	return h, nil
}

// find returns a hierarchy from the table of mounts. It prefers a mount of the whole hierarchy to a mount of
// a part. Of several equal mounts it returns the last one, which may cover the others.
func find(mounts []*procfs.MountInfo, version Version, controller string) (found Hierarchy, ok bool) {
	for _, m := range mounts {
		switch version {
		case V1:
			if _, has := m.SuperOptions[controller]; m.FSType != "cgroup" || !has {
				continue
			}
		case V2:
			if m.FSType != "cgroup2" {
				continue
			}
		}
		h := Hierarchy{Version: version, Controller: controller, Mount: unescape(m.MountPoint), base: unescape(m.Root)}
		if path.Clean(h.base) != h.base || !strings.HasPrefix(h.base, "/") {
			continue // a path with /.. is outside of this process's cgroup namespace, so paths cannot be compared
		}
		if !ok || h.base == "/" || found.base != "/" {
			found, ok = h, true
		}
	}
	return found, ok
}

// unescape returns a path of the table of mounts, in which the kernel writes spaces, tabs, line ends
// and backslashes as three octal digits.
func unescape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] == '\\' && len(s) >= 4 {
			if c, err := strconv.ParseUint(s[1:4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				s = s[4:]
				continue
			}
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

// maxPath is the longest path of a cgroup, in bytes.
const maxPath = 4096

// ErrGone means that a cgroup no longer exists, or that another one has its name now.
var ErrGone = errors.New("the cgroup no longer exists")

// Group is one cgroup of a hierarchy.
type Group struct {
	Hierarchy Hierarchy
	// Path is the path from the root of the hierarchy, as in /proc/PID/cgroup. It begins with a slash.
	Path string
	// ID is the inode of the cgroup's folder. The kernel gives no other cgroup the same number until the
	// machine restarts. (The time stamps of the folder cannot identify it, because the kernel forgets
	// them when it frees memory.)
	ID uint64
}

// String returns the version and the path, such as v2:/system.slice/fio.service.
func (g Group) String() string { return g.Hierarchy.Version.String() + ":" + g.Path }

// Root reports whether g is the root of its hierarchy, as far as this process sees it.
func (g Group) Root() bool { return g.Path == g.Hierarchy.base }

// At returns the cgroup at a path from the root of the hierarchy.
func (h Hierarchy) At(path string) (Group, error) {
	g := Group{Hierarchy: h, Path: path}
	f, err := g.open()
	if err != nil {
		return Group{}, err
	}
	defer f.Close()
	g.ID = f.id
	return g, nil
}

// OfProcess returns the cgroup of a process.
func (h Hierarchy) OfProcess(pid int) (Group, error) {
	path, err := h.pathOf(pid)
	if err != nil {
		return Group{}, err
	}
	return h.At(path)
}

func (h Hierarchy) pathOf(pid int) (string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "", fmt.Errorf("the cgroup of process %d: %w", pid, err)
	}
	lines, err := p.Cgroups()
	if err != nil {
		return "", fmt.Errorf("the cgroup of process %d: %w", pid, err)
	}
	for _, l := range lines {
		if h.Version == V2 && l.HierarchyID == 0 || h.Version == V1 && slices.Contains(l.Controllers, h.Controller) {
			return strings.TrimSuffix(l.Path, " (deleted)"), nil
		}
	}
	return "", fmt.Errorf("find the cgroup of process %d: the process has no cgroup %s with the controller %s", pid, h.Version, h.Controller)
}

// below returns the path of a cgroup's folder from the mount point.
func (h Hierarchy) below(group string) (string, error) {
	switch {
	case len(group) > maxPath:
		return "", fmt.Errorf("the path of a cgroup has %d bytes: use at most %d", len(group), maxPath)
	case !strings.HasPrefix(group, "/") || path.Clean(group) != group || strings.ContainsRune(group, 0):
		return "", fmt.Errorf("%q is not the path of a cgroup: such a path begins with a slash, and none of its parts is empty, a dot, or two dots", group)
	case group == "/..", strings.HasPrefix(group, "/../"):
		return "", fmt.Errorf("the cgroup %s is outside of this process's cgroup namespace: run the daemon in the machine's own namespace", group)
	case group == h.base:
		return ".", nil
	case h.base == "/":
		return group[1:], nil
	}
	rest, ok := strings.CutPrefix(group, h.base+"/")
	if !ok {
		return "", fmt.Errorf("the cgroup %s is not below %s, and only the part below it is mounted at %s: run the daemon outside of containers", group, h.base, h.Mount)
	}
	return rest, nil
}

// beneath opens name below the folder dir without following links and without leaving its file
// system.
func beneath(dir int, name string, flags int) (int, error) {
	return kernel.OpenBeneath(dir, name, flags, kernel.OneMount)
}

// Open opens the folder of the cgroup. It returns an error that wraps ErrGone if the cgroup has been
// removed, even if another one has its name now.
func (g Group) Open() (*Folder, error) {
	f, err := g.open()
	if err != nil {
		return nil, err
	}
	if f.id != g.ID {
		f.Close()
		return nil, fmt.Errorf("cgroup %s: %w; another cgroup has its name now", g, ErrGone)
	}
	return f, nil
}

func (g Group) open() (*Folder, error) {
	below, err := g.Hierarchy.below(g.Path)
	if err != nil {
		return nil, err
	}
	root, err := unix.Open(g.Hierarchy.Mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %s: %w", g, g.Hierarchy.Mount, err)
	}
	defer unix.Close(root)
	fd, err := beneath(root, below, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("cgroup %s: %w", g, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: open its folder below %s: %w", g, g.Hierarchy.Mount, err)
	}
	f := &Folder{group: g, fd: fd}
	if f.id, err = g.Hierarchy.identify(fd); err != nil {
		f.Close()
		return nil, fmt.Errorf("cgroup %s: %w", g, err)
	}
	return f, nil
}

// identify returns the inode of a folder. It returns an error if the folder is not a cgroup of the
// hierarchy's version.
func (h Hierarchy) identify(fd int) (uint64, error) {
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil {
		return 0, err
	}
	magic := int64(unix.CGROUP_SUPER_MAGIC)
	if h.Version == V2 {
		magic = unix.CGROUP2_SUPER_MAGIC
	}
	if int64(system.Type) != magic {
		return 0, fmt.Errorf("another file system is mounted over cgroup %s at %s: unmount it", h.Version, h.Mount)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// Folder is the open folder of a cgroup. It always means this cgroup, even if the cgroup is removed and
// another one gets its name.
type Folder struct {
	group Group
	fd    int
	id    uint64
}

// Close closes the folder.
func (f *Folder) Close() error { return unix.Close(f.fd) }

// maxValue is the size of the longest file that Read returns, in bytes.
const maxValue = 1 << 20

// Read returns the text of a file of the cgroup, without the line end. The error wraps fs.ErrNotExist if the
// file does not exist, and ErrGone if the cgroup has been removed.
func (f *Folder) Read(name string) (string, error) {
	b, err := f.readAt(f.fd, name, maxValue)
	if err != nil {
		return "", f.failed("read", name, err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// Write writes a value to a file of the cgroup.
func (f *Folder) Write(name, value string) error {
	fd, err := beneath(f.fd, name, unix.O_WRONLY)
	if err == nil {
		// The kernel takes one call as one command.
		_, err = unix.Write(fd, []byte(value))
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return f.failed(fmt.Sprintf("write %q to", value), name, err)
	}
	return nil
}

// failed returns an error that describes a failed operation. If the file is missing because the cgroup has
// been removed, the error wraps ErrGone.
func (f *Folder) failed(operation, name string, err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist) {
		var st unix.Stat_t
		if unix.Fstat(f.fd, &st) != nil || st.Nlink == 0 || f.removed() {
			return fmt.Errorf("cgroup %s: %w", f.group, ErrGone)
		}
	}
	return fmt.Errorf("cgroup %s: %s %s: %w", f.group, operation, name, err)
}

// removed reports whether the cgroup has been removed. The folder of a removed cgroup has no files.
func (f *Folder) removed() bool {
	fd, err := beneath(f.fd, "cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return true
	}
	unix.Close(fd)
	return false
}

func (f *Folder) readAt(dir int, name string, limit int) ([]byte, error) {
	fd, err := beneath(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var text []byte
	block := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, block)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return text, nil
		}
		if text = append(text, block[:n]...); len(text) > limit {
			return nil, fmt.Errorf("longer than %d bytes", limit)
		}
	}
}
