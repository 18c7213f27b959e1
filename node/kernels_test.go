package node

import (
	"testing"

	"golang.org/x/sys/unix"

	"penstock/lab/seccomp"
	"penstock/node/kernel"
)

func init() { seccomp.Apply() }

// Without the newer system calls the daemon works as with them, and its status names them.
func TestWithoutNewerCalls(t *testing.T) {
	if !seccomp.Refused() {
		calls := []int{unix.SYS_OPENAT2, unix.SYS_CACHESTAT, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIDFD_GETFD}
		for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
			seccomp.Rerun(t, errno, calls, "^(TestWithoutNewerCalls|TestStatusTellsWhatTheDaemonDoes|TestDaemonServesAnAgent|TestCleanEndOpensMarks|TestSessions|TestOnlyTheOwnersFiles|TestATasksMetaFileIsCounted|TestOpenFilesAreBounded)$", 8)
		}
		return
	}
	r := start(t, "enforce")
	missing := r.status().MissingCalls
	for i, c := range kernel.Calls() {
		if i >= len(missing) || missing[i].Name != c.String() || missing[i].Why == "" {
			t.Errorf("%d missing calls: %+v", i, missing)
		}
	}
}
