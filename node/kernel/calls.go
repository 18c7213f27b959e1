// Package kernel finds out which system calls this process may use, and opens files below a directory with
// or without openat2(2).
//
// Problem: the daemon must run on Linux 4.18 and 5.4, which lack calls that later kernels have. The kernel's
// version does not say which calls exist: distributions add calls to old kernels, and the system call filter of a
// container or a systemd unit may refuse a call that the kernel has. Choice: each call is tried
// once, with arguments that the kernel refuses without any effect. If the answer is not the kernel's own
// error for these arguments, the call counts as missing.
package kernel

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"
)

// Call is a system call that Linux 4.18 lacks.
type Call int

// The calls.
const (
	Openat2 Call = iota
	Cachestat
	PidfdOpen
	PidfdSendSignal
	PidfdGetfd
	calls // number of calls
)

// descriptor is one that is never open.
const descriptor = -1

var table = [calls]struct {
	name, since string
	number      int
	// try calls with arguments for which the kernel returns want, and does nothing else.
	try  func() error
	want unix.Errno
}{
	Openat2: {"openat2", "5.6", unix.SYS_OPENAT2, func() error {
		_, err := unix.Openat2(descriptor, "x", &unix.OpenHow{Flags: unix.O_PATH})
		return err
	}, unix.EBADF},
	Cachestat: {"cachestat", "6.5", unix.SYS_CACHESTAT, func() error {
		return unix.Cachestat(math.MaxUint32, &unix.CachestatRange{Len: 1}, &unix.Cachestat_t{}, 0)
	}, unix.EBADF},
	PidfdOpen: {"pidfd_open", "5.3", unix.SYS_PIDFD_OPEN, func() error {
		_, err := unix.PidfdOpen(0, 0)
		return err
	}, unix.EINVAL},
	PidfdSendSignal: {"pidfd_send_signal", "5.1", unix.SYS_PIDFD_SEND_SIGNAL, func() error {
		return withoutDescriptor(unix.SYS_PIDFD_SEND_SIGNAL)
	}, unix.EBADF},
	PidfdGetfd: {"pidfd_getfd", "5.6", unix.SYS_PIDFD_GETFD, func() error {
		return withoutDescriptor(unix.SYS_PIDFD_GETFD)
	}, unix.EBADF},
}

// withoutDescriptor calls a system call whose first argument is a descriptor. The other arguments are 0.
func withoutDescriptor(number uintptr) error {
	none := descriptor
	_, _, errno := unix.Syscall6(number, uintptr(none), 0, 0, 0, 0, 0)
	return errno
}

// missing has an error for each call that is missing.
var missing = sync.OnceValue(func() (found [calls]error) {
	for c, t := range table {
		err := t.try()
		switch {
		case errors.Is(err, t.want):
		case errors.Is(err, unix.ENOSYS):
			found[c] = fmt.Errorf("the kernel lacks the system call %s, which Linux has since %s, or a system call filter hides it: %w", t.name, t.since, unix.ENOSYS)
		default:
			found[c] = fmt.Errorf("a system call filter refuses the system call %s: allow number %d in the profile of the container or the unit: %w", t.name, t.number, err)
		}
	}
	return found
})

// String returns the call's name.
func (c Call) String() string { return table[c].name }

// Missing returns nil if this process may use the call. Otherwise the error says why not. Each call is
// tried once in the process's life.
func (c Call) Missing() error { return missing()[c] }

// Calls returns all calls, in a fixed order.
func Calls() []Call {
	all := make([]Call, calls)
	for i := range all {
		all[i] = Call(i)
	}
	return all
}
