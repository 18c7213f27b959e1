package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// files is a mechanism that changes files: it sets the content of the file Target.
func files(c Change) error {
	b, err := os.ReadFile(c.Target)
	if errors.Is(err, os.ErrNotExist) || err == nil && string(b) != c.After {
		return nil
	}
	return errors.Join(err, write(c.Target, c.Before))
}

// write replaces a file's content in one step, as the content of the kernel's own files changes.
func write(path, value string) error {
	return errors.Join(os.WriteFile(path+".new", []byte(value), 0o600), os.Rename(path+".new", path))
}

var undoFiles = map[string]Undo{"file": files}

// set sets the content of a file, with a record in the journal.
func set(j *Journal, path, value string) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return j.Make(Change{"file", path, string(before), value, "a test"}, func() error { return write(path, value) })
}

func TestMain(m *testing.M) {
	if spec := os.Getenv("PENSTOCK_JOURNAL_CHILD"); spec != "" {
		child(spec)
		return
	}
	os.Exit(m.Run())
}

// child changes files until it is killed.
func child(dir string) {
	j, err := Open(filepath.Join(dir, "run", "journal"), undoFiles)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for n := 0; ; n++ {
		path := filepath.Join(dir, fmt.Sprint("file", n%5))
		if n%7 == 6 {
			err = j.PutBack("file", path)
		} else {
			err = set(j, path, fmt.Sprint("changed ", n))
		}
		if err != nil {
			panic(err)
		}
	}
}

func fileWith(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(filepath.Join(dir, "run", "journal"), undoFiles)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// die ends the journal in the way in which the death of its process would.
func die(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCloseUndoesAllChanges(t *testing.T) {
	dir := t.TempDir()
	a, b := fileWith(t, dir, "a", "old a"), fileWith(t, dir, "b", "old b")
	j := open(t, dir)
	for _, value := range []string{"1", "2", "3"} {
		if err := errors.Join(set(j, a, value), set(j, b, value)); err != nil {
			t.Fatal(err)
		}
	}
	want := []Change{{"file", a, "old a", "3", "a test"}, {"file", b, "old b", "3", "a test"}}
	if got := j.Changes(); !reflect.DeepEqual(got, want) {
		t.Errorf("changes: %v", got)
	}
	if err := j.PutBack("file", b); err != nil || content(t, b) != "old b" {
		t.Errorf("put back: %v, %q", err, content(t, b))
	}
	if err := j.Close(); err != nil || content(t, a) != "old a" {
		t.Errorf("close: %v, %q", err, content(t, a))
	}
	if _, err := os.Stat(j.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file after Close: %v", err)
	}
	if err := set(j, a, "late"); err == nil || content(t, a) != "old a" {
		t.Errorf("a change after Close: %v, %q", err, content(t, a))
	}
}

func TestOpenUndoesWhatADeadProcessLeft(t *testing.T) {
	dir := t.TempDir()
	a, b := fileWith(t, dir, "a", "old a"), fileWith(t, dir, "b", "old b")
	j := open(t, dir)
	if err := errors.Join(set(j, a, "1"), set(j, b, "1"), set(j, a, "2")); err != nil {
		t.Fatal(err)
	}
	die(t, j)
	if err := os.WriteFile(b, []byte("by somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	if content(t, a) != "old a" || content(t, b) != "by somebody else" {
		t.Errorf("after the start: %q, %q", content(t, a), content(t, b))
	}
	if r := j.Restored(); len(r) != 2 || r[0].Target != b || r[0].Err != nil {
		t.Errorf("restored: %v", r)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A process can be killed before, during and after a change of a change.
func TestOpenUndoesAnInterruptedChange(t *testing.T) {
	for _, inForce := range []string{"1", "2"} {
		dir := t.TempDir()
		a := fileWith(t, dir, "a", "old")
		j := open(t, dir)
		if err := set(j, a, "1"); err != nil {
			t.Fatal(err)
		}
		err := j.Make(Change{"file", a, "1", "2", ""}, func() error {
			die(t, j)
			return os.WriteFile(a, []byte(inForce), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		j = open(t, dir)
		if content(t, a) != "old" {
			t.Errorf("killed with %s in force: %q", inForce, content(t, a))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFailedChanges(t *testing.T) {
	dir := t.TempDir()
	a := fileWith(t, dir, "a", "old")
	j := open(t, dir)
	fail := func(written string) error {
		return j.Make(Change{"file", a, content(t, a), written, ""}, func() error {
			return errors.Join(os.WriteFile(a, []byte(written), 0o600), errors.New("the device is gone"))
		})
	}
	if err := fail("half"); err == nil || content(t, a) != "old" || len(j.Changes()) != 0 {
		t.Errorf("a first change that failed: %v, %q, %v", err, content(t, a), j.Changes())
	}
	if err := set(j, a, "1"); err != nil {
		t.Fatal(err)
	}
	if err := fail("half"); err == nil || j.Changes()[0].After != "1" {
		t.Errorf("a later change that failed: %v, %v", err, j.Changes())
	}
	if err := j.Close(); err != nil || content(t, a) != "old" {
		t.Errorf("close: %v, %q", err, content(t, a))
	}
}

// A failed change may have been made. The journal remembers its value, also after further failures.
func TestTwoFailedChanges(t *testing.T) {
	dir := t.TempDir()
	a := fileWith(t, dir, "a", "old")
	j := open(t, dir)
	if err := set(j, a, "1"); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	for n, do := range []func() error{func() error { return errors.Join(write(a, "half"), failed) }, func() error { return failed }} {
		if err := j.Make(Change{"file", a, "1", fmt.Sprint("half", n)[:4], ""}, do); !errors.Is(err, failed) {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil || content(t, a) != "old" {
		t.Errorf("%v, %q", err, content(t, a))
	}
}

// The same change may fail again and again, as an attempt does that is repeated: its value is remembered once.
func TestManyFailedChanges(t *testing.T) {
	dir := t.TempDir()
	a := fileWith(t, dir, "a", "old")
	j := open(t, dir)
	if err := set(j, a, "1"); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	for range 3 * maxEarlier {
		if err := j.Make(Change{"file", a, "1", "2", ""}, func() error { return failed }); !errors.Is(err, failed) {
			t.Fatal(err)
		}
	}
	if n := j.Len(); n != 1 {
		t.Errorf("%d changes", n)
	}
	if err := j.Close(); err != nil || content(t, a) != "old" || j.Len() != 0 {
		t.Errorf("%v, %q", err, content(t, a))
	}
}

func TestUndoThatFailsIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	a := fileWith(t, dir, "a", "old")
	broken := errors.New("no access")
	j, err := Open(filepath.Join(dir, "run", "journal"), map[string]Undo{"file": func(Change) error { return broken }})
	if err != nil {
		t.Fatal(err)
	}
	if err := set(j, a, "1"); err != nil {
		t.Fatal(err)
	}
	if err := j.PutBack("file", a); !errors.Is(err, broken) || len(j.Changes()) != 1 {
		t.Errorf("put back: %v, %v", err, j.Changes())
	}
	if err := j.Close(); !errors.Is(err, broken) {
		t.Errorf("close: %v", err)
	}
	j, err = Open(filepath.Join(dir, "run", "journal"), nil) // another version, without the mechanism
	if err != nil {
		t.Fatal(err)
	}
	if r := j.Restored(); len(r) != 1 || r[0].Err == nil || !strings.Contains(r[0].Err.Error(), `the value was "old"`) {
		t.Errorf("restored without the mechanism: %v", r)
	}
	die(t, j)
	if err := open(t, dir).Close(); err != nil || content(t, a) != "old" {
		t.Errorf("the next start: %v, %q", err, content(t, a))
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := Open(j.path, undoFiles); !errors.Is(err, ErrInUse) {
		t.Errorf("a second daemon: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(path string) error{
		"others may write": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666))
		},
		"a link":    func(path string) error { return os.Symlink(filepath.Join(dir, "elsewhere"), path) },
		"no JSON":   func(path string) error { return os.WriteFile(path, []byte("{}\nnonsense\n{}\n"), 0o600) },
		"no target": func(path string) error { return os.WriteFile(path, []byte(`{"change":{"mechanism":"x"}}`+"\n"), 0o600) },
		"a huge file": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxFile+1))
		},
		"a huge line":   func(path string) error { return os.WriteFile(path, make([]byte, maxLine+1), 0o600) },
		"a folder":      func(path string) error { return os.Mkdir(path, 0o700) },
		"shared folder": func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run", "journal")
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), spoil(path)); err != nil {
				t.Fatal(err)
			}
			if j, err := Open(path, undoFiles); err == nil {
				die(t, j)
				t.Error("opened")
			} else {
				t.Log(err)
			}
		})
	}
}

func TestAnotherBoot(t *testing.T) {
	dir := t.TempDir()
	a := fileWith(t, dir, "a", "1")
	path := filepath.Join(dir, "run", "journal")
	text := `{"boot":"another"}` + "\n" + "\x00\x00 torn\n" + `{"change":{"mechanism":"file","target":"` + a + `","before":"0","after":"1"}}` + "\n"
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil || content(t, a) != "1" {
		t.Errorf("%v, %q", err, content(t, a))
	}
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(filepath.Join(dir, "run", "journal"), map[string]Undo{"none": func(Change) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	none := func() error { return nil }
	for n := range maxChanges {
		if err := j.Make(Change{"none", fmt.Sprint("target", n), "", "", ""}, none); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := j.Make(Change{"none", "one more", "", "", ""}, none); !errors.Is(err, ErrFull) {
		t.Errorf("above the limit: %v", err)
	}
	if err := j.Make(Change{"none", "target0", "", strings.Repeat("x", maxLine), ""}, none); err == nil {
		t.Error("a record that is too long was accepted")
	}
	if err := j.Make(Change{"unknown", "target", "", "", ""}, none); err == nil {
		t.Error("an unknown mechanism was accepted")
	}
	die(t, j)
	j, err = Open(j.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(j.Restored()) != maxChanges {
		t.Errorf("%d changes", len(j.Restored()))
	}
	die(t, j)
}

// The file does not grow with the number of changes.
func TestTheFileStaysSmall(t *testing.T) {
	dir := t.TempDir()
	a := fileWith(t, dir, "a", "old")
	j := open(t, dir)
	for n := range 5 * slackLines {
		if err := set(j, a, fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(j.path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(content(t, j.path), "\n"); lines > 2*slackLines || info.Size() != j.size {
		t.Errorf("%d lines, %d bytes of %d", lines, info.Size(), j.size)
	}
	die(t, j)
	if err := open(t, dir).Close(); err != nil || content(t, a) != "old" {
		t.Errorf("%v, %q", err, content(t, a))
	}
}

func TestManyGoroutines(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var all sync.WaitGroup
	for n := range 8 {
		path := fileWith(t, dir, fmt.Sprint("f", n/2), "old") // two goroutines a file
		all.Go(func() {
			for k := range 200 {
				if err := set(j, path, fmt.Sprint(n, k)); err != nil {
					t.Error(err)
				}
				if err := j.PutBack("file", path); err != nil {
					t.Error(err)
				}
				j.Changes()
			}
		})
	}
	all.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// A process is killed at random moments of its changes. The next Open puts back what was there.
func TestKilledProcess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 30 {
		dir := t.TempDir()
		for n := range 5 {
			fileWith(t, dir, fmt.Sprint("file", n), "old")
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PENSTOCK_JOURNAL_CHILD="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		// The process is killed when its journal has grown by a random number of bytes.
		path, size := filepath.Join(dir, "run", "journal"), int64(random.IntN(100_000))
		for {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > size {
				break
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		j := open(t, dir)
		for n := range 5 {
			if got := content(t, filepath.Join(dir, fmt.Sprint("file", n))); got != "old" {
				t.Errorf("round %d: file%d: %q; restored %v", round, n, got, j.Restored())
			}
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"boot":"x"}` + "\n" + `{"change":{"mechanism":"m","target":"t","before":"b","after":"a"},"earlier":["e"]}` + "\n" + `{"undone":["m","t"]}` + "\n"))
	f.Add([]byte(`{"undone":["m"`))
	f.Fuzz(func(t *testing.T, content []byte) {
		lines, err := parse(content)
		for _, l := range lines {
			if c := l.Change; err == nil && c != nil && (c.Mechanism == "" || c.Target == "") {
				t.Errorf("%q: %v", content, l)
			}
		}
	})
}
