package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"penstock/lab/asroot"
	"penstock/lab/guest"
	"penstock/lab/seccomp"
)

func init() { seccomp.Apply() }

// inGuest is set by e2e/guest, which runs this program on an earlier kernel.
const inGuest = "PENSTOCK_KERNEL_TESTS"

func TestMain(m *testing.M) {
	guest.RunIfInside(guest.Tests(inGuest))
	asroot.Main(m, "^(TestCalls|TestWithoutTheCalls|TestBeneath.*|TestDeepPaths|TestSwappedComponents|TestMountOf)$")
}

// The kernels of the test machines have the calls since Linux's own releases had them.
func TestCalls(t *testing.T) {
	var u unix.Utsname
	must(t, unix.Uname(&u))
	release := unix.ByteSliceToString(u.Release[:])
	t.Logf("Linux %s", release)
	for _, c := range Calls() {
		err := c.Missing()
		if want := seccomp.Refused() || number(t, release) < number(t, table[c].since); (err != nil) != want {
			t.Errorf("%v: %v, refused: %v", c, err, seccomp.Refused())
		}
		if err != nil && !strings.Contains(err.Error(), c.String()) {
			t.Errorf("the error does not name %v: %v", c, err)
		}
	}
}

// number returns 1000 times the first number of a release plus the second.
func number(t *testing.T, release string) int {
	t.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("release %q: %v", release, err)
	}
	return 1000*major + minor
}

// refusals are how kernels without the calls, and filters, answer.
var refusals = []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EACCES}

func TestWithoutTheCalls(t *testing.T) {
	if seccomp.Refused() {
		return
	}
	numbers := make([]int, 0, calls)
	for _, c := range table {
		numbers = append(numbers, c.number)
	}
	for _, errno := range refusals {
		seccomp.Rerun(t, errno, numbers, "^(TestCalls|TestBeneath.*|TestDeepPaths|TestSwappedComponents|TestOtherMounts)$", 5)
	}
	seccomp.Rerun(t, unix.EPERM, append(numbers, unix.SYS_NAME_TO_HANDLE_AT), "^(TestBeneath.*|TestOtherMounts)$", 2)
}

// opener is OpenBeneath, or the walk on a kernel that does not need it.
type opener func(dir int, path string, flags int, mounts Mounts) (int, error)

// both runs a test with OpenBeneath and with the walk.
func both(t *testing.T, test func(t *testing.T, open opener)) {
	t.Run("OpenBeneath", func(t *testing.T) { test(t, OpenBeneath) })
	t.Run("walk", func(t *testing.T) { test(t, walk) })
}

func directory(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBeneath(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "root")
	long := strings.Repeat("n", 255)
	odd := "\xff\x01 \n\\é*"
	must(t, os.MkdirAll(filepath.Join(root, "a/b", odd), 0o755))
	for _, name := range []string{"a/file", "a/b/" + odd + "/" + odd, long, "..x", "...", "../outside"} {
		must(t, os.WriteFile(root+"/"+name, []byte(name), 0o644))
	}
	for name, to := range map[string]string{"out": top, "in": "a", "a/up": "..", "a/link": "file", "dangling": "nothing", "a/self": "/proc/self/cwd"} {
		must(t, os.Symlink(to, filepath.Join(root, name)))
	}
	must(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	tests := []struct {
		path  string
		flags int
		want  error
	}{
		{"a/file", unix.O_RDONLY, nil},
		{"a//file", unix.O_RDONLY, nil},
		{"./a/./file", unix.O_RDONLY, nil},
		{"a/b/" + odd + "/" + odd, unix.O_RDONLY, nil},
		{long, unix.O_RDONLY, nil},
		{"..x", unix.O_RDONLY, nil},
		{"...", unix.O_RDONLY, nil},
		{"pipe", unix.O_RDONLY | unix.O_NONBLOCK, nil},
		{"a", unix.O_RDONLY | unix.O_DIRECTORY, nil},
		{"a", unix.O_PATH | unix.O_DIRECTORY, nil},
		{"a/", unix.O_RDONLY, nil},
		{".", unix.O_RDONLY | unix.O_DIRECTORY, nil},
		{"./", unix.O_RDONLY, nil},
		{"a/file", unix.O_PATH, nil},

		{"", unix.O_RDONLY, unix.ENOENT},
		{"nothing", unix.O_RDONLY, unix.ENOENT},
		{"nothing/..", unix.O_RDONLY, unix.ENOENT},
		{"a/nothing/file", unix.O_RDONLY, unix.ENOENT},
		{"a/file/x", unix.O_RDONLY, unix.ENOTDIR},
		{"a/file/", unix.O_RDONLY, unix.ENOTDIR},
		{"a/file/.", unix.O_RDONLY, unix.ENOTDIR},
		{"a/file", unix.O_RDONLY | unix.O_DIRECTORY, unix.ENOTDIR},
		{long + "n", unix.O_RDONLY, unix.ENAMETOOLONG},
		{long + "n/file", unix.O_RDONLY, unix.ENAMETOOLONG},
		{"a/fi\x00le", unix.O_RDONLY, unix.EINVAL},

		{"..", unix.O_RDONLY, unix.EXDEV},
		{"../outside", unix.O_RDONLY, unix.EXDEV},
		{"./../outside", unix.O_RDONLY, unix.EXDEV},
		{"a/../../outside", unix.O_RDONLY, unix.EXDEV},
		{"/", unix.O_RDONLY, unix.EXDEV},
		{root + "/a/file", unix.O_RDONLY, unix.EXDEV},

		{"out/outside", unix.O_RDONLY, unix.ELOOP},
		{"out", unix.O_RDONLY, unix.ELOOP},
		{"out/", unix.O_RDONLY, unix.ELOOP},
		{"out", unix.O_RDONLY | unix.O_DIRECTORY, unix.ELOOP},
		{"out", unix.O_PATH, unix.ELOOP},
		{"out", unix.O_PATH | unix.O_DIRECTORY, unix.ELOOP},
		{"in/file", unix.O_RDONLY, unix.ELOOP},
		{"a/up/a/file", unix.O_RDONLY, unix.ELOOP},
		{"a/link", unix.O_RDONLY, unix.ELOOP},
		{"dangling", unix.O_RDONLY, unix.ELOOP},
		{"a/self/x", unix.O_RDONLY, unix.ELOOP},
	}
	both(t, func(t *testing.T, open opener) {
		dir, before := directory(t, root), descriptors(t)
		for _, tt := range tests {
			for _, mounts := range []Mounts{OneMount, AnyMount} {
				fd, err := open(dir, tt.path, tt.flags, mounts)
				if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("%q, flags %#x: %v, want %v", tt.path, tt.flags, err, tt.want)
				}
				if err != nil {
					continue
				}
				if got, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || got&unix.FD_CLOEXEC == 0 {
					t.Errorf("%q: the descriptor stays open in programs that are started, %v", tt.path, err)
				}
				same(t, fd, filepath.Join(root, tt.path))
				unix.Close(fd)
			}
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors are open, before it were %d", after, before)
		}
	})
}

// A path with ".." that stays below is the one that the walk refuses and openat2 does not.
func TestBeneathAndUp(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
	if fd, err := walk(directory(t, root), "a/../a", unix.O_RDONLY, OneMount); !errors.Is(err, unix.EXDEV) {
		t.Errorf("descriptor %d, %v", fd, err)
	}
}

func TestBeneathWithoutTheRightToSearch(t *testing.T) {
	if os.Geteuid() == 0 {
		runtime.LockOSThread() // never unlocked: the thread ends without its capabilities
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		must(t, unix.Capset(&header, &none[0]))
	}
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	must(t, os.Chmod(filepath.Join(root, "a"), 0o600))
	defer os.Chmod(filepath.Join(root, "a"), 0o700)
	for name, open := range map[string]opener{"OpenBeneath": OpenBeneath, "walk": walk} {
		for _, path := range []string{"a/b", "a/./b", "a/nothing"} {
			if fd, err := open(directory(t, root), path, unix.O_RDONLY, OneMount); !errors.Is(err, unix.EACCES) {
				t.Errorf("%s %s: descriptor %d, %v", name, path, fd, err)
			}
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

func same(t *testing.T, fd int, path string) {
	t.Helper()
	var got, want unix.Stat_t
	must(t, unix.Fstat(fd, &got))
	must(t, unix.Lstat(path, &want))
	if got.Dev != want.Dev || got.Ino != want.Ino {
		t.Errorf("%q: another file was opened", path)
	}
}

// A path has at most 4,095 bytes, so at most 2,048 components.
func TestDeepPaths(t *testing.T) {
	root := t.TempDir()
	deepest := strings.Repeat("d/", unix.PathMax/2-1) + "d" // 4,095 bytes
	// The path from the root of the file system would be too long.
	at := directory(t, root)
	for i := range strings.Count(deepest, "d") {
		must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		if i > 0 {
			unix.Close(at)
		}
		at = next
	}
	both(t, func(t *testing.T, open opener) {
		dir := directory(t, root)
		for path, want := range map[string]error{
			deepest:                          nil,
			deepest[:len(deepest)-2] + "/x":  unix.ENOENT,
			deepest + "/":                    unix.ENAMETOOLONG,
			deepest + "d":                    unix.ENAMETOOLONG,
			strings.Repeat("/", 4095) + "d":  unix.ENAMETOOLONG,
			"d" + strings.Repeat("/", 4094):  nil,
			strings.Repeat("./", 2047) + "d": nil,
		} {
			fd, err := open(dir, path, unix.O_RDONLY|unix.O_DIRECTORY, OneMount)
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%d bytes: %v, want %v", len(path), err, want)
			}
			if err == nil {
				unix.Close(fd)
			}
		}
	})
}

// While one goroutine exchanges each component of the path with a link that leads outside, nothing
// outside is ever opened.
func TestSwappedComponents(t *testing.T) {
	// The two goroutines must really run at the same time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	both(t, func(t *testing.T, open opener) {
		top := t.TempDir()
		inside, outside := filepath.Join(top, "inside"), filepath.Join(top, "outside")
		for _, dir := range []string{inside, outside} {
			must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "a/b/file"), []byte(filepath.Base(dir)), 0o644))
		}
		var swaps [][2]string
		for _, name := range []string{"a/b/file", "a/b", "a"} {
			link := filepath.Join(inside, strings.ReplaceAll(name, "/", "-")+".link")
			must(t, os.Symlink(filepath.Join(outside, name), link))
			swaps = append(swaps, [2]string{filepath.Join(inside, name), link})
		}
		stop, stopped := make(chan struct{}), make(chan error)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					stopped <- nil
					return
				default:
				}
				s := swaps[i/2%len(swaps)] // there and back
				if err := unix.Renameat2(unix.AT_FDCWD, s[0], unix.AT_FDCWD, s[1], unix.RENAME_EXCHANGE); err != nil {
					<-stop
					stopped <- err
					return
				}
			}
		}()
		dir := directory(t, inside)
		opened, refused := 0, 0
		const least = 3000
		for tries := 0; tries < 1000000 && (opened < least || refused < least); tries++ {
			fd, err := open(dir, "a/b/file", unix.O_RDONLY, OneMount)
			switch {
			case errors.Is(err, unix.ELOOP):
				refused++
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT): // of openat2, during a rename
			case err != nil:
				t.Fatal(err)
			default:
				text := make([]byte, 16)
				n, err := unix.Read(fd, text)
				unix.Close(fd)
				if err != nil || string(text[:n]) != "inside" {
					t.Fatalf("a file with %q was opened, %v", text[:n], err)
				}
				opened++
			}
		}
		close(stop)
		must(t, <-stopped)
		if opened == 0 || refused == 0 {
			t.Errorf("%d opened, %d refused: nothing was swapped during the opening", opened, refused)
		}
	})
}

// Other mounts: another file system, the same one at another place, a file, and one inside of another.
func TestOtherMounts(t *testing.T) {
	both(t, func(t *testing.T, open opener) {
		root := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(root, "own/below"), 0o755))
		must(t, os.MkdirAll(filepath.Join(root, "bind"), 0o755))
		must(t, os.MkdirAll(filepath.Join(root, "memory"), 0o755))
		for _, name := range []string{"own/below/file", "covered", "file"} {
			must(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
		}
		runtime.LockOSThread() // never unlocked: the thread ends with its mounts
		must(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
		must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		mount := func(source, target, kind string, flags uintptr) {
			target = filepath.Join(root, target)
			must(t, unix.Mount(filepath.Join(root, source), target, kind, flags, ""))
			t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
		}
		mount("own", "bind", "", unix.MS_BIND)
		mount("", "memory", "tmpfs", 0)
		must(t, os.WriteFile(filepath.Join(root, "memory/file"), nil, 0o644))
		must(t, os.MkdirAll(filepath.Join(root, "memory/back"), 0o755))
		mount("own", "memory/back", "", unix.MS_BIND)
		mount("file", "covered", "", unix.MS_BIND)
		dir := directory(t, root)
		for path, another := range map[string]bool{
			"own/below/file": false, "file": false, "own/below": false,
			"bind": true, "bind/below": true, "bind/below/file": true, "memory": true, "memory/file": true,
			"memory/back/below/file": true, "covered": true, "memory/nothing": true,
		} {
			for _, mounts := range []Mounts{OneMount, AnyMount} {
				want := error(nil)
				switch {
				case another && mounts == OneMount:
					want = unix.EXDEV
				case path == "memory/nothing":
					want = unix.ENOENT
				}
				fd, err := open(dir, path, unix.O_RDONLY, mounts)
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("%s, %v: %v, want %v", path, mounts, err, want)
				}
				if err == nil {
					unix.Close(fd)
				}
			}
		}
	})
}

func TestMountOf(t *testing.T) {
	for _, path := range []string{"/", "/proc", "/sys", t.TempDir()} {
		fd := directory(t, path)
		quick, err := mountOf(fd)
		must(t, err)
		slow, err := mountInProc(fd)
		must(t, err)
		if quick != slow {
			t.Errorf("%s is in the mount %d or %d", path, quick, slow)
		}
	}
	if _, err := mountOf(descriptor); err == nil {
		t.Error("a descriptor that is not open has a mount")
	}
}

// BenchmarkOpen opens a file at the depth of a finalised block.
func BenchmarkOpen(b *testing.B) {
	root := b.TempDir()
	path := "current/BP-1/current/finalized/subdir31/subdir5/blk_1075774721"
	must(b, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
	must(b, os.WriteFile(filepath.Join(root, path), nil, 0o644))
	dir := directory(b, root)
	for name, open := range map[string]opener{"openat2": OpenBeneath, "walk": walk} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				fd, err := open(dir, path, unix.O_RDONLY, OneMount)
				must(b, err)
				unix.Close(fd)
			}
		})
	}
}
