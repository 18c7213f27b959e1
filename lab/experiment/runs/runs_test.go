package runs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"penstock/lab/ledger"
)

func TestWithin(t *testing.T) {
	t.Chdir(t.TempDir())
	failed := errors.New("failed")
	for _, c := range []struct {
		path   string
		keep   bool
		err    error
		remain bool
	}{{"", false, nil, false}, {"", true, nil, true}, {"", false, failed, true}, {"given", false, nil, true}} {
		var dir, said string
		err := Within(c.path, "x-", c.keep, func(format string, args ...any) { said = fmt.Sprintf(format, args...) }, func(d string) error {
			dir = d
			if _, err := os.Stat(d); err != nil {
				t.Error(err)
			}
			return c.err
		})
		_, stat := os.Stat(dir)
		if !errors.Is(err, c.err) || (stat == nil) != c.remain || strings.Contains(said, dir) != c.remain {
			t.Errorf("%+v: %v; the folder: %v; printed %q", c, err, stat, said)
		}
	}
}

func TestMake(t *testing.T) {
	t.Chdir(t.TempDir())
	a, err := Make("", "x-")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Make("", "x-")
	if err != nil {
		t.Fatal(err)
	}
	if !a.Ours || a.Path == b.Path || !filepath.IsAbs(a.Path) || !strings.HasPrefix(filepath.Base(a.Path), "x-") {
		t.Errorf("%+v and %+v", a, b)
	}
	for range 2 { // there already, the second time
		if f, err := Make("given", "x-"); err != nil || f.Ours || filepath.Base(f.Path) != "given" {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

func TestRecover(t *testing.T) {
	t.Chdir(t.TempDir())
	silent := func(string, ...any) {}
	if err := Recover("x-", silent); err != nil {
		t.Errorf("nothing to put back: %v", err)
	}
	// The process has ended, and nobody has the ledger open.
	dir := filepath.Join(parent, "x-1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ledger.FileName), []byte("no ledger"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Recover("y-", silent); err != nil {
		t.Errorf("another's folder: %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file")
	hello := func(w io.Writer) error { _, err := io.WriteString(w, "hello"); return err }
	if err := WriteFile(path, hello); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	if err := WriteFile(path, func(w io.Writer) error { io.WriteString(w, "hal"); return bad }); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := WriteFile("", func(io.Writer) error { return bad }); err != nil {
		t.Errorf("no file: %v", err)
	}
}

// A rename would replace /dev/null for the whole machine.
func TestWriteFileKeepsWhatIsNotARegularFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := WriteFile(path, func(w io.Writer) error { _, err := io.WriteString(w, "hello"); return err }); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 5)
	if _, err := io.ReadFull(pipe, text); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	if found, err := os.Stat(path); err != nil || found.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("%v, %v", found.Mode(), err)
	}
}
