package pacing

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
	"penstock/node/monitor/processes"
)

var (
	// errGone means that the process or the socket does not exist any more.
	errGone = errors.New("the connection no longer exists: list the connections again")
	// errRights means that the kernel refuses to duplicate another process's socket.
	errRights = errors.New("no permission to duplicate a socket of this process: run the daemon as root or with CAP_SYS_PTRACE, and allow pidfd_getfd if it runs in a container")
)

// unknownNumber is the number of a descriptor that has not been found.
const unknownNumber = -1

// duplicated is a duplicate of another process's socket. It must be closed soon: while it is open, the
// connection stays open even if the other process closes it.
type duplicated struct {
	fd     int
	number int // the descriptor in the other process
	cookie uint64
}

func (d *duplicated) close() { unix.Close(d.fd) }

// Find returns the socket of a process that connects two addresses, in any network namespace. It examines
// each socket of the process. So it is slower than package connections, which gets the inode of the socket
// from the kernel.
func Find(pid int, local, remote netip.AddrPort) (Socket, error) {
	s := Socket{PID: pid, Local: local, Remote: remote}
	fail := func(err error) (Socket, error) { return Socket{}, fmt.Errorf("find %v: %w", s, err) }
	pidfd, err := pidfdOpen(pid)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(pidfd)
	if s.Start, err = processes.StartOf(pid); err != nil {
		return fail(orGone(err))
	}
	err = descriptors(pid, func(number int, inode uint64) (bool, error) {
		wanted := s
		wanted.Inode = inode
		d, err := take(pidfd, number, wanted)
		if err != nil {
			if errors.Is(err, errRights) {
				return false, err
			}
			return true, nil // another socket
		}
		d.close()
		s.Inode = inode
		return false, nil
	})
	if err != nil {
		return fail(err)
	}
	if s.Inode == 0 {
		return fail(fmt.Errorf("the process has no such socket: %w", errGone))
	}
	return s, nil
}

// duplicate duplicates a socket. number is the socket's last known descriptor.
func duplicate(s Socket, number int) (*duplicated, error) {
	pidfd, err := pidfdOpen(s.PID)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	// The start time is read after pidfd_open. If it is the expected one, the process had the pid before
	// pidfd_open, so pidfd refers to this process.
	start, err := processes.StartOf(s.PID)
	if err != nil {
		return nil, orGone(err)
	}
	if start != s.Start {
		return nil, fmt.Errorf("the pid belongs to another process now, whose start time is %d and not %d clock ticks: %w", start, s.Start, errGone)
	}
	if inode, _ := inodeOf(s.PID, number); inode == s.Inode {
		return take(pidfd, number, s)
	}
	number = unknownNumber
	err = descriptors(s.PID, func(n int, inode uint64) (bool, error) {
		if inode == s.Inode {
			number = n
		}
		return number == unknownNumber, nil
	})
	if err != nil {
		return nil, err
	}
	if number == unknownNumber {
		return nil, fmt.Errorf("the process has no socket with the inode %d: %w", s.Inode, errGone)
	}
	return take(pidfd, number, s)
}

// take duplicates a descriptor of a process and checks that it is the socket s.
func take(pidfd, number int, s Socket) (*duplicated, error) {
	fd, err := unix.PidfdGetfd(pidfd, number, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, errRights
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EBADF):
		return nil, fmt.Errorf("the process has ended or closed the socket: %w", errGone)
	case err != nil:
		return nil, fmt.Errorf("duplicate the descriptor %d of the process (pidfd_getfd): %w", number, err)
	}
	d := &duplicated{fd: fd, number: number}
	if err := d.check(s); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// check returns an error unless d is the connected TCP socket s.
func (d *duplicated) check(s Socket) error {
	var stat unix.Stat_t
	if err := unix.Fstat(d.fd, &stat); err != nil {
		return fmt.Errorf("examine the descriptor %d of the process: %w", d.number, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK || stat.Ino != s.Inode {
		return fmt.Errorf("the descriptor %d of the process is another file now (inode %d, not %d): %w", d.number, stat.Ino, s.Inode, errGone)
	}
	for _, want := range []struct {
		option int
		values []int
	}{
		{unix.SO_DOMAIN, []int{unix.AF_INET, unix.AF_INET6}},
		{unix.SO_TYPE, []int{unix.SOCK_STREAM}},
		{unix.SO_PROTOCOL, []int{unix.IPPROTO_TCP}},
		{unix.SO_ACCEPTCONN, []int{0}}, // connections inherit a listening socket's rate
	} {
		got, err := unix.GetsockoptInt(d.fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return fmt.Errorf("examine the socket: %w", err)
		}
		if !slices.Contains(want.values, got) {
			return errors.New("the socket is not a connection of TCP: only connections of TCP can be paced")
		}
	}
	local, err := unix.Getsockname(d.fd)
	if err != nil {
		return fmt.Errorf("read the local address of the socket: %w", err)
	}
	remote, err := unix.Getpeername(d.fd)
	if errors.Is(err, unix.ENOTCONN) {
		return fmt.Errorf("the socket is not connected: %w", errGone)
	}
	if err != nil {
		return fmt.Errorf("read the remote address of the socket: %w", err)
	}
	if l, r := address(local), address(remote); l != unmapped(s.Local) || r != unmapped(s.Remote) {
		return fmt.Errorf("the socket with the inode %d connects %v to %v: %w", s.Inode, l, r, errGone)
	}
	if d.cookie, err = unix.GetsockoptUint64(d.fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		return fmt.Errorf("read the cookie of the socket: %w", err)
	}
	return nil
}

// isOpen reports whether the socket may still be open. number is the socket's last known descriptor.
func isOpen(s Socket, number int) bool {
	start, err := processes.StartOf(s.PID)
	if err != nil {
		return !gone(err)
	}
	if start != s.Start {
		return false
	}
	if inode, _ := inodeOf(s.PID, number); inode == s.Inode {
		return true
	}
	found := false
	err = descriptors(s.PID, func(_ int, inode uint64) (bool, error) {
		found = inode == s.Inode
		return !found, nil
	})
	return found || err != nil && !errors.Is(err, errGone)
}

func folder(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/fd" }

// descriptors calls look for each open socket of a process, until look returns false or an error.
func descriptors(pid int, look func(number int, inode uint64) (bool, error)) error {
	dir, err := os.Open(folder(pid))
	if err != nil {
		return orGone(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return orGone(err)
	}
	for _, name := range names {
		number, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		inode, err := inodeOf(pid, number)
		if err != nil {
			return err
		}
		if inode == 0 {
			continue
		}
		if more, err := look(number, inode); err != nil || !more {
			return err
		}
	}
	return nil
}

// inodeOf returns the inode of the socket at a descriptor, or 0 if there is no socket. It returns an error if
// this process has no permission to examine the descriptor.
func inodeOf(pid, number int) (uint64, error) {
	link, err := os.Readlink(folder(pid) + "/" + strconv.Itoa(number))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return 0, errRights
	case gone(err):
		return 0, nil // the descriptor was closed in the meantime
	case err != nil:
		return 0, err
	}
	return socketInode(link), nil
}

// socketInode parses a link like socket:[123]. It returns 0 for other files.
func socketInode(link string) uint64 {
	text, is := strings.CutPrefix(link, "socket:[")
	text, closed := strings.CutSuffix(text, "]")
	inode, err := strconv.ParseUint(text, 10, 64)
	if !is || !closed || err != nil {
		return 0
	}
	return inode
}

func pidfdOpen(pid int) (int, error) {
	if err := missing(kernel.PidfdOpen); err != nil {
		return 0, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return 0, fmt.Errorf("the process has ended: %w", errGone)
	case err != nil:
		return 0, fmt.Errorf("open process %d (pidfd_open): %w", pid, err)
	}
	return fd, nil
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// orGone replaces the errors that procfs returns for an ended process by errGone.
func orGone(err error) error {
	if gone(err) {
		return fmt.Errorf("the process has ended: %w", errGone)
	}
	if errors.Is(err, fs.ErrPermission) {
		return errRights
	}
	return err
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// address returns the address of a socket of IPv4 or IPv6, without zone.
func address(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return unmapped(netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)))
	}
	return netip.AddrPort{}
}
