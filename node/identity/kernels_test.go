package identity

import (
	"testing"

	"golang.org/x/sys/unix"

	"penstock/lab/seccomp"
)

func init() { seccomp.Apply() }

// Without openat2, working directories and arguments of processes are the same evidence.
func TestWithoutOpenat2(t *testing.T) {
	if seccomp.Refused() {
		return
	}
	seccomp.Rerun(t, unix.ENOSYS, []int{unix.SYS_OPENAT2}, "^(TestAges|TestDirectory|TestWorkingDirectoryOfAnotherName|TestSparkStandalone|TestSparkStandaloneBesideANodeManager)$", 5)
}
