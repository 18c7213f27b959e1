package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of Holder.
const (
	maxDescriptors = 1 << 16 // of one process; a DataNode's 4,096 threads use a few for each
	maxNamesakes   = 16      // processes that have the claimed number in pid namespaces of their own
)

// ErrNoHolder is the error of Holder if the process is not found.
var ErrNoHolder = errors.New("the process of the connection was not found")

// Holder returns the process that has a socket of a user open, given the socket's inode. claimed is the
// number that the process gives itself. It only says where to look: the result is a process of that
// user whose table of descriptors contains the socket. A process in a pid namespace of its own knows
// only its number there, so the user's processes with that number are examined as well, at most
// maxNamesakes. No other process is examined, so a wrong number costs its sender the connection.
//
// Several processes may hold the socket, for example after a fork. Holder returns one of them: every process with
// the descriptor can write to the connection.
//
// Holder reads the number of each process of the machine, the status of the user's processes, and the
// descriptors of one of them, if claimed is right.
func (c *Checker) Holder(ctx context.Context, inode uint64, uid uint32, claimed int) (int32, error) {
	if claimed <= 0 || inode == 0 {
		return 0, fmt.Errorf("%w: it gives the number %d", ErrNoHolder, claimed)
	}
	held, err := c.isHolder(ctx, claimed, inode, uid)
	if held {
		return int32(claimed), nil
	}
	why := err
	pids, err := c.namesakes(ctx, uid, claimed)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoHolder, err)
	}
	for _, pid := range pids {
		if held, err = c.isHolder(ctx, pid, inode, uid); held {
			return int32(pid), nil
		}
		why = errors.Join(why, err)
	}
	if errors.Is(why, os.ErrPermission) {
		why = fmt.Errorf("run the daemon as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: %w", why)
	}
	if why != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoHolder, why)
	}
	return 0, fmt.Errorf("%w: it gives the number %d, and no process of user %d with this number has the socket", ErrNoHolder, claimed, uid)
}

// isHolder reports whether a process of the user has the socket open. All that it reads belongs to one
// process.
func (c *Checker) isHolder(ctx context.Context, pid int, inode uint64, uid uint32) (bool, error) {
	before, err := c.proc.life(pid)
	if err == nil && !before.zombie {
		var s status
		if s, err = c.proc.status(pid); err == nil && s.uid == uid {
			fd := -1
			if fd, err = c.proc.holdsAmong(ctx, pid, inode, maxDescriptors, 0); err == nil && fd >= 0 {
				var after life
				after, err = c.proc.life(pid)
				return err == nil && after.start == before.start, err
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, errGone) {
		err = nil // there is no such process, or it has ended meanwhile
	}
	return false, err
}

// namesakes returns the user's processes that have a number in pid namespaces of their own.
func (c *Checker) namesakes(ctx context.Context, uid uint32, number int) (found []int, err error) {
	pids, err := c.proc.pids()
	if err != nil {
		return nil, err
	}
	for i, pid := range pids {
		if i%64 == 0 && ctx.Err() != nil {
			return nil, errTime
		}
		st, err := os.Lstat(c.proc.file(pid, ""))
		if err != nil {
			continue
		}
		if owner, ok := st.Sys().(*syscall.Stat_t); !ok || owner.Uid != uid {
			continue
		}
		s, err := c.proc.status(pid)
		if err != nil || len(s.pids) < 2 || s.pids[len(s.pids)-1] != number {
			continue
		}
		if found = append(found, pid); len(found) == maxNamesakes {
			break
		}
	}
	return found, nil
}
