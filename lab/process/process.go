// Package process runs the servers and clients of a run: real programs, whose output goes to a file.
//
// A process is in the run's ledger and in a process group of its own. It dies with its parent. It is
// ready when a line of its log says so, and when it ends too early, the error has the last lines.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/poll"
)

// Options of a process.
type Options struct {
	Book *ledger.Ledger // of the run that it belongs to
	Name string         // in errors
	Log  string         // path; its output is appended
	Dir  string         // working directory; default this process's
	Env  []string       // default this process's
	// OwnPIDs makes it the first process of a PID namespace, which needs root: whatever it starts
	// dies with it, however it ends.
	OwnPIDs bool
}

// Process is one that was started. Its methods may be called from any goroutine. Those that end it do
// nothing if it is nil.
type Process struct {
	name, log string
	began     int64 // length of the log in bytes at its start
	cmd       *exec.Cmd
	exited    <-chan struct{}
}

// Start starts a program with its arguments.
func Start(o Options, argv ...string) (*Process, error) {
	out, err := os.OpenFile(o.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	began, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	p := &Process{name: o.Name, log: o.Log, began: began, cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = o.Env, o.Dir, out, out
	if o.OwnPIDs {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	if p.exited, err = o.Book.Spawn(p.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	return p, nil
}

// Log returns the path of its log.
func (p *Process) Log() string { return p.log }

// PID returns its id, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when it has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Alive reports whether it has not ended; nil has.
func (p *Process) Alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Failed reports whether it has ended other than with exit code 0.
func (p *Process) Failed() bool { return !p.Alive() && !p.cmd.ProcessState.Success() }

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%v to %s: %w", s, p.name, err)
	}
	return nil
}

// Stop ends its process group with SIGTERM, or with SIGKILL after the grace, and returns when it has
// gone. The error says that it needed the second.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Alive() {
		return nil
	}
	syscall.Kill(-p.PID(), syscall.SIGTERM)
	syscall.Kill(-p.PID(), syscall.SIGCONT)
	select {
	case <-p.exited:
		return nil
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("%s does not end within %v of SIGTERM: see %s", p.name, grace, p.log)
	}
}

// Kill ends its process group with SIGKILL and returns when it has gone.
func (p *Process) Kill() {
	if p.Alive() {
		syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.exited
	}
}

// Failure describes one that has ended and should not have.
func (p *Process) Failure() error {
	return fmt.Errorf("%s: %v; the last lines of %s:\n%s", p.name, p.cmd.ProcessState, p.log, Tail(p.log, 15))
}

// Wait returns when it has ended. It is an error if it failed, or ctx ends before.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.name, ctx.Err())
	}
	if p.Failed() {
		return p.Failure()
	}
	return nil
}

// Find waits until a whole line of what it has written matches, and returns the match and its groups.
// It is an error if it ends without, or ctx ends before.
func (p *Process) Find(ctx context.Context, what *regexp.Regexp) (match []string, err error) {
	err = poll.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		ended := !p.Alive() // first, so that nothing is written after the look at the log
		text, err := p.output()
		if err != nil {
			return false, err
		}
		if match = what.FindStringSubmatch(text); match == nil && ended {
			return false, p.Failure()
		}
		return match != nil, nil
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%s: no %q in its log: %w; the last lines of %s:\n%s", p.name, what, err, p.log, Tail(p.log, 15))
	}
	return match, err
}

// output returns what it has written, up to the end of the last line.
func (p *Process) output() (string, error) {
	file, err := os.Open(p.log)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, p.began, 1<<62))
	return string(text[:bytes.LastIndexByte(text, '\n')+1]), err
}

// Tail returns the last lines of a file, at most 64 KiB, or the error of reading it.
func Tail(path string, lines int) string {
	const window = 64 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return "(" + err.Error() + ")\n"
	}
	all := strings.Split(strings.TrimRight(string(text[max(0, len(text)-window):]), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n") + "\n"
}
