// Package seccomp runs tests of a package in a process in which system calls are refused.
//
// Problem: the product has other ways for kernels, and for filters of containers, without certain calls. The
// test machine's kernel has these calls, and a filter of seccomp(2) cannot be removed from a process. Choice: the
// test program starts itself once more, and that process installs the filter before its tests run.
package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// variable has the error number and the numbers of the calls, separated by spaces.
const variable = "PENSTOCK_LAB_REFUSE"

// Apply refuses what Rerun has asked for, in the process that Rerun has started, and does nothing in others. Call it
// in the function init of a test file.
func Apply() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var numbers []uint32
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseUint(field, 10, 16)
		if err != nil {
			panic(fmt.Sprintf("%s is %q: want an error number and numbers of system calls", variable, text))
		}
		numbers = append(numbers, uint32(n))
	}
	if err := refuse(unix.Errno(numbers[0]), numbers[1:]); err != nil {
		panic(fmt.Sprintf("refuse system calls: %v", err))
	}
}

// Refused reports whether this process was started by Rerun.
func Refused() bool { return os.Getenv(variable) != "" }

// Rerun runs the test program's tests whose names match pattern in a process in which the system calls
// fail with errno. It fails t if one of them fails, or if fewer than least tests pass.
func Rerun(t *testing.T, errno unix.Errno, calls []int, pattern string, least int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	value := strconv.Itoa(int(errno))
	for _, c := range calls {
		value += " " + strconv.Itoa(c)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run="+pattern, "-test.timeout=5m")
	cmd.Env = append(os.Environ(), variable+"="+value)
	out, err := cmd.CombinedOutput()
	if passed := strings.Count("\n"+string(out), "\n--- PASS: "); err != nil || passed < least {
		t.Errorf("%d tests passed without the calls %v (%v), want at least %d: %v\n%s", passed, calls, errno, least, err, out)
	}
}

// refuse installs a filter in all threads of this process.
func refuse(errno unix.Errno, calls []uint32) error {
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K

		atNumber, atArch = 0, 4 // offsets in struct seccomp_data
	)
	filter := []unix.SockFilter{
		{Code: load, K: atArch},
		{Code: equal, K: arch, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: atNumber},
	}
	for _, c := range calls {
		filter = append(filter, unix.SockFilter{Code: equal, K: c, Jf: 1},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	thread, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return failed
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has a filter of its own", thread)
	}
	return nil
}
