package gate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What the gate sees of each way to read and write a file. docs/design/control.md has this table.
func TestWhatIsHeldAndWhatEscapes(t *testing.T) {
	rows := []struct{ operation, want string }{
		// This row is first, because the kernel needs a moment to forget a removed mark.
		{"opened before the mark", "not seen"},
		{"read", "read 0+65536"},
		{"pread", "read 4096+65536"},
		{"readv", "read 0+65536"},
		{"preadv2", "read 0+65536"},
		{"direct read", "direct read 0+65536"},
		{"write", "write 0+65536"},
		{"pwrite", "write 4096+65536"},
		{"writev", "write 0+65536"},
		{"pwritev2", "write 0+65536"},
		{"appending write", "write 1048576+65536"},
		{"direct write", "direct write 0+65536"},
		{"sendfile", "read 0+65536"},
		{"splice out of the file", "read 0+65536"},
		{"splice into the file", "write 0+16384"},
		{"copy_file_range", "read 0+65536, write 0+65536"},
		{"io_uring read, read-only", "read 0+65536"},
		{"io_uring write, read-write", "unknown 0+65536"},
		{"io_uring write, descriptor closed", "unknown 0+65536"},
		{"libaio direct read, read-only", "direct read 0+65536"},
		{"libaio direct write, read-write", "direct write 0+65536"},
		{"mmap", "passes as a mapping"},
		{"read of a mapping", "not seen"},
		{"write to a mapping", "not seen"},
		{"readahead", "not seen"},
		{"fadvise WILLNEED", "not seen"},
		{"ftruncate", "passes as a change of size"},
		{"truncate", "passes as a change of size"},
		{"open with O_TRUNC", "not seen"},
		{"fallocate", "passes as a change of size"},
		{"unlink", "not seen"},
		{"fsync of dirty pages", "not seen"},
		{"opened while watched", "write 0+65536"},
		{"inherited descriptor", "write 0+65536"},
		{"another thread", "write 0+65536"},
		{"another mount namespace", "write 0+65536"},
		{"overlayfs over it, write", "write 0+65536"},
		{"overlayfs over it, read", "read 0+65536"},
	}
	if len(rows) != len(operations) {
		t.Fatalf("%d rows, and %d operations", len(rows), len(operations))
	}
	for _, kind := range []string{"ext4", "xfs"} {
		dir := disk(t, kind)
		for _, row := range rows {
			t.Run(kind+" "+row.operation, func(t *testing.T) {
				if got := seen(t, dir, row.operation); got != row.want {
					t.Errorf("seen %q, want %q", got, row.want)
				}
			})
		}
	}
}

// seen returns what the gate reports of an operation: its kind and range if it is held, and otherwise why it
// passes, or "not seen".
func seen(t *testing.T, dir, operation string) string {
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take})
	dir, err := os.MkdirTemp(dir, "")
	must(t, err)
	name := filepath.Join(dir, "file")
	if operation != "opened before the mark" {
		must(t, g.Watch(dir))
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	must(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, fileBytes))
	must(t, err)
	must(t, f.Sync())
	must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	var hows []how
	if operation == "inherited descriptor" {
		hows = append(hows, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{f} })
	}
	p := startHelper(t, hows, "operate", operation, name)
	p.line()
	must(t, g.Classes([]Rule{{Class: 1, UID: AnyUser, PID: p.pid()}}))
	must(t, g.Mark(dir))
	p.begin()
	var all []string
	for {
		select {
		case r := <-h.requests:
			what := fmt.Sprintf("%v %d+%d", r.Op, r.Offset, r.Length)
			if r.Direct {
				what = "direct " + what
			}
			if !slices.Contains(all, what) {
				all = append(all, what)
			}
			must(t, g.Allow(r.ID))
		case line := <-p.lines:
			if line != "done <nil>" {
				all = append(all, line)
			}
			must(t, g.Classes(nil)) // returns after the worker has counted
			s := freshStats(t, g)
			switch {
			case len(all) > 0: // io_uring tries a read twice: the second time it is resident
			case s.Mapped > 0:
				return "passes as a mapping"
			case s.Resized > 0:
				return "passes as a change of size"
			case s.Resident > 0:
				return "passes as resident"
			default:
				return "not seen"
			}
			return strings.Join(all, ", ")
		}
	}
}
