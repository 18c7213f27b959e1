package process

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/lab/ledger"
)

// start starts a shell script, which is ended when the test ends.
func start(t *testing.T, dir, script string) *Process {
	t.Helper()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := Start(Options{Book: book, Name: "server", Log: filepath.Join(dir, "server.log")}, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var ready = regexp.MustCompile(`ready at (\S+)`)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	old := start(t, dir, "echo ready at 1; exit 0")
	if got, err := old.Find(t.Context(), ready); err != nil || got[1] != "1" {
		t.Fatal(got, err)
	}
	if err := old.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The output of an earlier process does not belong to the next one, and an incomplete line is
	// not a line.
	next := start(t, dir, "printf 'ready at 2'; sleep 0.1; echo 3; exec sleep 600")
	if got, err := next.Find(t.Context(), ready); err != nil || got[1] != "23" {
		t.Error(got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := next.Find(ctx, regexp.MustCompile("never")); err == nil || !strings.Contains(err.Error(), "ready at 23") {
		t.Errorf("%v: the error has not the last lines", err)
	}
	if err := next.Stop(time.Minute); err != nil || next.Alive() || !next.Failed() {
		t.Errorf("%v, alive %v", err, next.Alive())
	}
}

func TestFailure(t *testing.T) {
	p := start(t, t.TempDir(), "echo no such port; exit 3")
	_, found := p.Find(t.Context(), ready)
	for what, err := range map[string]error{"Find": found, "Wait": p.Wait(t.Context()), "Failure": p.Failure()} {
		if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such port") || !strings.Contains(err.Error(), "server") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestStop(t *testing.T) {
	// One process ignores SIGTERM, and one is stopped.
	p := start(t, t.TempDir(), "trap '' TERM; echo ready at 1; while :; do sleep 1; done")
	if _, err := p.Find(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(50 * time.Millisecond); err == nil || p.Alive() {
		t.Errorf("%v, alive %v", err, p.Alive())
	}
	p = start(t, t.TempDir(), "exec sleep 600")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(time.Minute); err != nil || p.Alive() {
		t.Errorf("%v, alive %v", err, p.Alive())
	}
	p.Kill() // it has ended, so this has no effect
	(*Process)(nil).Kill()
	if err := (*Process)(nil).Stop(0); err != nil || (*Process)(nil).Alive() {
		t.Error(err)
	}
}

// Processes that the first process of a PID namespace has started, in another session, die with it.
// PID namespaces need root.
func TestOwnPIDs(t *testing.T) {
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	p, err := Start(Options{Book: book, Name: "server", Log: filepath.Join(dir, "log"), OwnPIDs: true},
		"/bin/sh", "-c", "setsid sleep 6543 & echo ready at $$; while :; do sleep 1; done")
	if os.Geteuid() != 0 {
		if err == nil {
			t.Error("a PID namespace without root")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Find(t.Context(), ready); err != nil || got[1] != "1" {
		t.Fatal(got, err)
	}
	p.Kill()
	// The kernel ends the namespace's other processes before its first process can be waited for.
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cmdlines {
		if text, err := os.ReadFile(c); err == nil && string(text) == "sleep\x006543\x00" {
			t.Errorf("left: %s", c)
		}
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x\n", 100_000)+"one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Tail(path, 2); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	if got := Tail(path+"x", 2); !strings.Contains(got, syscall.ENOENT.Error()) {
		t.Errorf("missing file: %q", got)
	}
}
