package ledger

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testMachine is a machine with one pair of kernel parameters and a folder for runs.
func testMachine(t *testing.T) (m machine, run string) {
	t.Helper()
	dir := t.TempDir()
	m = machine{sysctl: filepath.Join(dir, "sys"), blocks: filepath.Join(dir, "block"), state: filepath.Join(dir, "state")}
	write(t, m.sysctlPath("vm/dirty_bytes"), "0")
	write(t, m.sysctlPath("vm/dirty_ratio"), "20")
	write(t, m.sysctlPath("vm/swappiness"), "60")
	return m, filepath.Join(dir, "run")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, text string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%s holds %q (%v), want %q", filepath.Base(path), got, err, text)
	}
}

func open(t *testing.T, m machine, run string) *Ledger {
	t.Helper()
	l, err := m.open(run)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// die ends a run as kill -9 would: nothing is undone, and the locks are released.
func die(l *Ledger) {
	openMu.Lock()
	delete(opened, l.dir)
	openMu.Unlock()
	l.file.Close()
	for _, lock := range l.sysctls {
		lock.Close()
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestCloseUndoesTheLastChangeFirst(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	folder := filepath.Join(run, "folder")
	setting := filepath.Join(run, "setting")
	write(t, setting, "none [mq-deadline] bfq\n")
	must(l.Remove(folder))(t)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	must(l.Remove(filepath.Join(folder, "file")))(t) // the folder can only be removed after this file
	write(t, filepath.Join(folder, "file"), "")
	must(l.SetFile(setting, "bfq"))(t)
	want(t, setting, "bfq")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, setting, "mq-deadline")
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder is still there")
	}
	if _, err := os.Stat(filepath.Join(run, FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the ledger is still there")
	}
}

func TestOneLedgerPerRunInAProcess(t *testing.T) {
	m, run := testMachine(t)
	a, b := open(t, m, run), open(t, m, run)
	if a != b {
		t.Fatal("two ledgers of one run")
	}
	file := filepath.Join(run, "file")
	must(a.Remove(file))(t)
	write(t, file, "")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, file, "")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("the last Close has not undone the change")
	}
}

func TestRecoverWorksOffWhatADeadRunLeft(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	kept, gone := filepath.Join(run, "kept"), filepath.Join(run, "gone")
	id := must(l.Remove(kept))(t)
	if err := l.Undo(id); err != nil {
		t.Fatal(err)
	}
	write(t, kept, "made later, by somebody else")
	must(l.Remove(gone))(t)
	write(t, gone, "")
	if err := m.recover(run); !errors.Is(err, ErrInUse) {
		t.Fatalf("recovering a living run: %v, want ErrInUse", err)
	}
	if _, alive, err := m.recoverAll(); err != nil || len(alive) != 1 || alive[0] != run {
		t.Fatalf("alive %v (%v), want the run", alive, err)
	}
	// The run is killed while it records its next change.
	if _, err := l.file.WriteString(`{"id":3,"kind":"remove","path":"` + run); err != nil {
		t.Fatal(err)
	}
	die(l)
	recovered, alive, err := m.recoverAll()
	if err != nil || len(alive) != 0 || len(recovered) != 1 {
		t.Fatalf("recovered %v, alive %v (%v)", recovered, alive, err)
	}
	want(t, kept, "made later, by somebody else")
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Error("a recorded file was left behind")
	}
	if recovered, _, _ := m.recoverAll(); len(recovered) != 0 {
		t.Errorf("%v is still listed", recovered)
	}
}

// A cluster's folder is in the run's folder, and its processes use the run's disks.
func TestAFolderIsRecoveredBeforeTheOneThatItLiesIn(t *testing.T) {
	m, run := testMachine(t)
	inner := filepath.Join(run, "hadoop")
	die(open(t, m, run))
	die(open(t, m, inner))
	recovered, _, err := m.recoverAll()
	if err != nil || !slices.Equal(recovered, []string{inner, run}) {
		t.Errorf("%v, %v", recovered, err)
	}
}

// A dead run's loop device may have been freed by hand and may now belong to a living run.
func TestSettingsOfALoopDeviceThatIsSomebodyElsesStay(t *testing.T) {
	for name, test := range map[string]struct{ backing, after string }{
		"its own": {"/run-a/disk", "128"}, "somebody else's": {"/run-b/disk", "4096"}, "nobody's": {"", "4096"},
	} {
		t.Run(name, func(t *testing.T) {
			m, run := testMachine(t)
			setting, backing := filepath.Join(m.blocks, "penstock-none/queue/read_ahead_kb"), filepath.Join(m.blocks, "penstock-none/loop/backing_file")
			write(t, setting, "128")
			write(t, backing, "/run-a/disk")
			l := open(t, m, run)
			if _, err := l.Loop("/dev/penstock-none", "/run-a/disk"); err != nil {
				t.Fatal(err)
			}
			if _, err := l.SetFile(setting, "4096"); err != nil {
				t.Fatal(err)
			}
			die(l)
			write(t, backing, test.backing)
			// There is no such device, so no device of this machine is detached.
			_ = m.recover(run)
			want(t, setting, test.after)
		})
	}
}

func TestOpenRecoversFirst(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	setting := filepath.Join(run, "setting")
	write(t, setting, "1")
	must(l.SetFile(setting, "2"))(t)
	die(l)
	l = open(t, m, run)
	want(t, setting, "1")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSysctlIsPutBack(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	swappiness := m.sysctlPath("vm/swappiness")
	must(SetSysctl(t.Context(), l, "vm/swappiness", "10"))(t)
	must(SetSysctl(t.Context(), l, "vm/swappiness", "20"))(t)
	want(t, swappiness, "20")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, swappiness, "60")
}

// The kernel refuses a zero in dirty_bytes; setting the ratio restores the old state.
func TestSysctlWithATwin(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	must(SetSysctl(t.Context(), l, "vm/dirty_bytes", "67108864"))(t)
	write(t, m.sysctlPath("vm/dirty_ratio"), "0") // as the kernel does
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, m.sysctlPath("vm/dirty_ratio"), "20")
	want(t, m.sysctlPath("vm/dirty_bytes"), "67108864") // the real kernel zeroes it
}

// A run that follows a crashed one must not mistake the crashed run's value for the original value.
// Recovering the crashed run must not disturb the new one.
func TestSysctlAfterACrash(t *testing.T) {
	m, run := testMachine(t)
	swappiness := m.sysctlPath("vm/swappiness")
	crashed := open(t, m, run)
	must(SetSysctl(t.Context(), crashed, "vm/swappiness", "10"))(t)

	second := open(t, m, run+"2")
	busy, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := SetSysctl(busy, second, "vm/swappiness", "20"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("two living runs set the same parameter: %v", err)
	}
	die(crashed)
	must(SetSysctl(t.Context(), second, "vm/swappiness", "20"))(t)
	if err := m.recover(run); err != nil {
		t.Fatal(err)
	}
	want(t, swappiness, "20")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, swappiness, "60")
}

// family is a process and a grandchild of it in a session of its own, as a daemon of YARN has.
type family struct {
	cmd        *exec.Cmd
	grandchild string
}

func startFamily(t *testing.T, l *Ledger) family {
	t.Helper()
	cmd := exec.Command("sh", "-c", "setsid sleep 600 & echo $!; trap '' TERM; wait; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must(l.StartProcess(cmd))(t)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return family{cmd, strings.TrimSpace(line)}
}

// endsBy checks that end ends both processes.
func (f family) endsBy(t *testing.T, end func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f.cmd.Wait() }()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the process is still there")
	}
	// The grandchild has ended, or it is a zombie.
	stat, err := os.ReadFile(filepath.Join("/proc", f.grandchild, "stat"))
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the grandchild is still there: %s", stat)
	}
}

func TestRecoverEndsTheRunsProcesses(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	f := startFamily(t, l)
	die(l)
	f.endsBy(t, func() error { return m.recover(run) })
}

// EndProcesses ends the processes that were started before it. Close ends those that were started later.
func TestEndProcesses(t *testing.T) {
	m, run := testMachine(t)
	l := open(t, m, run)
	startFamily(t, l).endsBy(t, l.EndProcesses)
	startFamily(t, l).endsBy(t, l.Close)
}

func TestAnotherProcessWithTheSamePidIsLeftAlone(t *testing.T) {
	started, err := processStarted(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := end(os.Getpid(), started+1); err != nil { // would end this test
		t.Fatal(err)
	}
}
