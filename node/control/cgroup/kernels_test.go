package cgroup

import (
	"testing"

	"golang.org/x/sys/unix"

	"penstock/lab/seccomp"
)

func init() { seccomp.Apply() }

// Without openat2, folders of cgroups are opened with the same guarantees.
func TestWithoutOpenat2(t *testing.T) {
	if seccomp.Refused() {
		return
	}
	seccomp.Rerun(t, unix.EPERM, []int{unix.SYS_OPENAT2}, "^Test(FoldersAreOfTheHierarchy|ManyCgroupsBelow|ProtectedCgroupsAreRefused)$", 3)
}
