package pacing

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	errKernel = errors.New("the kernel cannot duplicate the socket of another process: Linux 5.6 or later is needed (pidfd_getfd); the mechanism shaper can hold connections instead")
	errYama   = errors.New("kernel.yama.ptrace_scope is 3, so no process may examine another until the next boot: boot with a lower value, or use the mechanism shaper")
)

// Available returns nil if this process can pace sockets of other processes. Otherwise the error says why
// not and what to do.
func Available() error {
	if err := available("/proc/sys/kernel/yama/ptrace_scope"); err != nil {
		return fmt.Errorf("pace connections of other processes: %w", err)
	}
	return nil
}

func available(scope string) error {
	self, err := pidfdOpen(os.Getpid())
	if err != nil {
		return err
	}
	defer unix.Close(self)
	fd, err := unix.PidfdGetfd(self, self, 0)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return errKernel
	case err != nil:
		return fmt.Errorf("the system call pidfd_getfd is refused, probably by the seccomp profile of a container: allow it, or run the daemon outside: %w", err)
	}
	unix.Close(fd)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return errors.New("CAP_SYS_PTRACE is missing: add it to AmbientCapabilities of the daemon's unit, or run the daemon as root")
	}
	// Machines without Yama have no such file.
	if text, err := os.ReadFile(scope); err == nil && strings.TrimSpace(string(text)) == "3" {
		return errYama
	}
	return nil
}
