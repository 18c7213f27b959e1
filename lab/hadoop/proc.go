package hadoop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"penstock/lab/ledger"
)

// daemon is one child process whose output goes to a file.
type daemon struct {
	name  string
	log   string
	cmd   *exec.Cmd
	entry ledger.ID
	done  chan struct{} // closed when the process has been waited for
	err   error         // its end; read after done
}

func (d *daemon) pid() int {
	if d.ended() {
		return 0
	}
	return d.cmd.Process.Pid
}

func (d *daemon) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// forker runs every fork of this package on one thread that never ends. The
// kernel sends a child's parent-death signal when the *thread* that forked it
// ends, and Go may end a thread at any time that it likes.
var forker = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// spawn starts a child in a process group of its own that is killed when this
// process dies. With ownPIDs it becomes the first process of a PID namespace:
// whatever it starts dies with it, however it ends.
func spawn(book *ledger.Ledger, name, log string, env []string, dir string, ownPIDs bool, argv ...string) (*daemon, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if ownPIDs {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	d := &daemon{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	forker() <- func() {
		var err error
		d.entry, err = book.StartProcess(cmd)
		started <- err
	}
	if err := <-started; err != nil {
		if cmd.Process != nil { // it runs, but could not be recorded
			cmd.Process.Kill()
			cmd.Wait()
		}
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		d.err = cmd.Wait()
		book.Undo(d.entry) // gone: nothing is left to do, only to strike out
		close(d.done)
	}()
	return d, nil
}

// terminate ends the child's process group: SIGTERM, and SIGKILL when it has
// not gone after the grace. It returns once the child has been waited for.
func (d *daemon) terminate(grace time.Duration) {
	if d == nil || d.ended() {
		return
	}
	syscall.Kill(-d.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(grace):
	}
	d.kill()
}

// kill ends the child's process group at once.
func (d *daemon) kill() {
	if d == nil {
		return
	}
	if !d.ended() {
		syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-d.done
}

// failure describes a child that has ended though it should not have.
func (d *daemon) failure() error {
	end := "ended"
	if d.err != nil {
		end = d.err.Error()
	}
	return fmt.Errorf("%s: %s; the last lines of %s:\n%s", d.name, end, d.log, tailFile(d.log, 15))
}

// tailFile is the last lines of a file, at most 64 KiB.
func tailFile(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return "(" + err.Error() + ")\n"
	}
	defer f.Close()
	const window = 64 << 10
	if st, err := f.Stat(); err == nil && st.Size() > window {
		f.Seek(-window, 2)
	}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(f); err != nil {
		return "(" + err.Error() + ")\n"
	}
	all := strings.Split(strings.TrimRight(buf.String(), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n") + "\n"
}

// marker is the environment variable that every process of a cluster carries,
// with the run folder as its value: how strays are found after a crash.
const marker = "PENSTOCK_LAB_RUN"

// strays lists the processes that carry the run folder's mark, except self.
func strays(runDir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	want := []byte(marker + "=" + runDir)
	var pids []int
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue
		}
		for _, kv := range bytes.Split(env, []byte{0}) {
			if bytes.Equal(kv, want) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// killStrays kills what still carries the run folder's mark and waits until
// nothing does.
func killStrays(runDir string, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		pids := strays(runDir)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill stray process %d of %s: %w", pid, runDir, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of %s do not die", pids, runDir)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
