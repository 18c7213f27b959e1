package gate

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"penstock/lab/seccomp"
)

func init() { seccomp.Apply() }

func TestMissingCalls(t *testing.T) {
	if !seccomp.Refused() {
		for _, call := range []int{unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL} {
			for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
				seccomp.Rerun(t, errno, []int{call}, "^TestMissingCalls$", 1)
			}
		}
		return
	}
	if _, err := Available(); err == nil || !strings.Contains(err.Error(), "system call pidfd_") {
		t.Errorf("without the calls: %v", err)
	}
}
