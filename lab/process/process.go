// Package process runs the servers and clients of a run: real programs with their output in a file.
//
// A process is recorded in the run's ledger, has its own process group, and dies with its parent.
// Find waits for the line in the process's log that shows that the process is ready. If the process
// ends before that, the error contains the last lines of the log.
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

// Options are the options of a process.
type Options struct {
	Book *ledger.Ledger // ledger of the process's run
	Name string         // used in errors
	Log  string         // path of the log; the process's output is appended
	Dir  string         // working directory; default: this process's
	Env  []string       // environment; default: this process's
	// OwnPIDs makes the process the first one of a new PID namespace, which needs root. All its
	// descendants die with it, however it ends.
	OwnPIDs bool
}

// Process is a started process. Its methods may be called from any goroutine. The methods that end
// the process do nothing if the Process is nil.
type Process struct {
	name, log string
	began     int64 // length of the log in bytes when the process started
	cmd       *exec.Cmd
	exited    <-chan struct{}
}

// Start starts the program argv[0] with the arguments argv[1:].
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

// Log returns the path of the process's log.
func (p *Process) Log() string { return p.log }

// PID returns the process's id, even after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Alive reports whether the process is running. It returns false for nil.
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

// Failed reports whether the process has ended with an exit code other than 0.
func (p *Process) Failed() bool { return !p.Alive() && !p.cmd.ProcessState.Success() }

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%v to %s: %w", s, p.name, err)
	}
	return nil
}

// Stop ends the process group with SIGTERM, or with SIGKILL after the grace period, and returns
// when the process has ended. If SIGKILL was necessary, Stop returns an error.
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

// Kill ends the process group with SIGKILL and returns when the process has ended.
func (p *Process) Kill() {
	if p.Alive() {
		syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.exited
	}
}

// Failure returns an error that describes a process that has ended unexpectedly.
func (p *Process) Failure() error {
	return fmt.Errorf("%s: %v; the last lines of %s:\n%s", p.name, p.cmd.ProcessState, p.log, Tail(p.log, 15))
}

// Wait returns when the process has ended. It returns an error if the process failed or if ctx ends
// first.
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

// Find waits until a complete line of the process's output matches, and returns the match and its
// groups. If the process ends without such a line, or ctx ends first, it returns an error.
func (p *Process) Find(ctx context.Context, what *regexp.Regexp) (match []string, err error) {
	err = poll.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		ended := !p.Alive() // checked first, so no output can follow after the log is read
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

// output returns the process's output up to the end of the last complete line.
func (p *Process) output() (string, error) {
	file, err := os.Open(p.log)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, p.began, 1<<62))
	return string(text[:bytes.LastIndexByte(text, '\n')+1]), err
}

// Tail returns the last lines of a file, at most 64 KiB. If the file cannot be read, Tail returns
// the error's text.
func Tail(path string, lines int) string {
	const window = 64 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return "(" + err.Error() + ")\n"
	}
	all := strings.Split(strings.TrimRight(string(text[max(0, len(text)-window):]), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n") + "\n"
}
