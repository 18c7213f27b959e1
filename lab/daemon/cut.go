package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Cut breaks one of the connections that a process has accepted on a Unix socket. "which" is the
// index of that connection, taken modulo the number of connections. Neither end of the connection
// needs to cooperate. Cut borrows the process's descriptor (pidfd_getfd, Linux 5.6; it needs the
// right to trace the process) and shuts down the socket, which affects the process's descriptor
// too.
func Cut(pid int, socket string, which int) error {
	fds, err := accepted(pid, socket)
	if err != nil {
		return fmt.Errorf("connections of process %d at %s: %w", pid, socket, err)
	}
	if len(fds) == 0 {
		return fmt.Errorf("process %d has no connection at %s", pid, socket)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open of process %d: %w", pid, err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, fds[which%len(fds)], 0)
	if err != nil {
		return fmt.Errorf("borrow a connection of process %d (needs root): %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
		return fmt.Errorf("cut a connection of process %d: %w", pid, err)
	}
	return nil
}

// accepted returns a process's descriptors of accepted connections on a socket, in ascending order.
func accepted(pid int, socket string) ([]int, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
	if err != nil {
		return nil, err
	}
	inodes := connections(string(table), socket)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // the descriptor was closed meanwhile
		}
		inode, ok := strings.CutPrefix(target, "socket:[")
		if !ok || !slices.Contains(inodes, strings.TrimSuffix(inode, "]")) {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds, nil
}

// connections returns the inodes of the connected sockets with the given path, from the kernel's
// table (proc(5)): Num RefCount Protocol Flags Type St Inode Path. Only the accepting side of a
// connection has the path.
func connections(table, socket string) []string {
	const connected = "03"
	var inodes []string
	for line := range strings.SplitSeq(table, "\n") {
		f := strings.Fields(line)
		if len(f) == 8 && f[5] == connected && f[7] == socket {
			inodes = append(inodes, f[6])
		}
	}
	return inodes
}
