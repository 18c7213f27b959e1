package pacing

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
)

var (
	errYama = errors.New("kernel.yama.ptrace_scope is 3, so no process may examine another until the next boot: boot with a lower value, or use the mechanism shaper")
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
	if err := missing(kernel.PidfdGetfd); err != nil {
		return err
	}
	fd, err := unix.PidfdGetfd(self, self, 0)
	if err != nil {
		return fmt.Errorf("duplicate a descriptor of this process (pidfd_getfd): %w", err)
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

// missing returns an error if the call is missing, and names another mechanism.
func missing(call kernel.Call) error {
	if err := call.Missing(); err != nil {
		return fmt.Errorf("the socket of another process cannot be duplicated; the mechanism shaper can hold connections instead: %w", err)
	}
	return nil
}
