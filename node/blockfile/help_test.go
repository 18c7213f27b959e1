package blockfile

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func mkfifo(name string) error { return unix.Mkfifo(name, 0o600) }

func deviceNumbers(t *testing.T, path string) (major, minor string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(int(unix.Major(st.Dev))), strconv.Itoa(int(unix.Minor(st.Dev)))
}

// onDisk reports whether path is on a file system that writes back to a device; on tmpfs pages
// stay dirty for ever.
func onDisk(t *testing.T, path string) bool {
	t.Helper()
	major, _ := deviceNumbers(t, path)
	return major != "0"
}
