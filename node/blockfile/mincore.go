package blockfile

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore wraps mincore(2), which is missing in x/sys/unix on Linux.
func mincore(mem, vec []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE,
		uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
