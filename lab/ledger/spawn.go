package ledger

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// forker starts processes on one thread that never ends. The kernel sends the parent-death signal
// when the forking thread ends, and Go may end a thread at any time.
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

// Spawn starts cmd like StartProcess, in a new process group, and makes the kernel kill it when
// this process dies. The channel is closed when the process has ended and its entry in the ledger
// is undone. After that, cmd.ProcessState contains the exit status.
func (l *Ledger) Spawn(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	var id ID
	started := make(chan error)
	forker() <- func() {
		var err error
		id, err = l.StartProcess(cmd)
		started <- err
	}
	if err := <-started; err != nil {
		if cmd.Process != nil { // the process runs, but could not be recorded
			cmd.Process.Kill()
			cmd.Wait()
		}
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		l.Undo(id)
		close(done)
	}()
	return done, nil
}
