package processes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// delays are the times for which the threads of a process have waited, the ended ones included.
type delays struct {
	run   time.Duration // for a CPU
	block time.Duration // for block I/O; always 0 while delay accounting is off
}

// taskstats asks the kernel for a process's delays (Documentation/accounting/taskstats.rst). It
// needs CAP_NET_ADMIN. All queries use one socket: to open and close one takes the kernel longer than
// to answer. The request is built once, and only its process changes. It must not be used concurrently.
type taskstats struct {
	fd      int
	request []byte
	serial  uint32
	answer  [maxAnswer]byte
}

const (
	maxAnswer  = 4096 // bytes; the kernel's answers have about 500
	serialAt   = 8    // in struct nlmsghdr
	answerWait = time.Second
)

func openTaskstats() (*taskstats, error) {
	f, err := netlink.GenlFamilyGet(unix.TASKSTATS_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("delays of processes from the kernel (taskstats): %w", err)
	}
	r := nl.NewNetlinkRequest(int(f.ID), 0)
	r.AddData(&nl.Genlmsg{Command: unix.TASKSTATS_CMD_GET, Version: unix.TASKSTATS_GENL_VERSION})
	r.AddData(nl.NewRtAttr(unix.TASKSTATS_CMD_ATTR_TGID, nl.Uint32Attr(0)))
	s := &taskstats{request: r.Serialize()}
	if s.fd, err = openSocket(); err != nil {
		return nil, fmt.Errorf("delays of processes from the kernel (taskstats): open a socket: %w", err)
	}
	return s, nil
}

func openSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return -1, err
	}
	wait := unix.NsecToTimeval(answerWait.Nanoseconds())
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (s *taskstats) close() { unix.Close(s.fd) }

// of returns the delays of a process.
func (s *taskstats) of(pid int) (delays, error) {
	s.serial++
	binary.NativeEndian.PutUint32(s.request[serialAt:], s.serial)
	binary.NativeEndian.PutUint32(s.request[len(s.request)-4:], uint32(pid))
	if _, err := unix.Write(s.fd, s.request); err != nil {
		return delays{}, fmt.Errorf("delays of process %d: ask the kernel: %w", pid, err)
	}
	for {
		n, err := unix.Read(s.fd, s.answer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return delays{}, fmt.Errorf("delays of process %d: the kernel's answer: %w", pid, err)
		}
		d, ours, err := parseAnswer(s.answer[:n], s.serial)
		switch {
		case !ours: // the late answer to an earlier query
		case errors.Is(err, unix.ESRCH):
			return delays{}, unix.ESRCH // no text for the many processes that end meanwhile
		case errors.Is(err, unix.EPERM):
			return delays{}, fmt.Errorf("delays of processes: %w: run the daemon as root or with CAP_NET_ADMIN", err)
		case err != nil:
			return delays{}, fmt.Errorf("delays of process %d: %w", pid, err)
		default:
			return d, nil
		}
	}
}

// parseAnswer reads a message. ours is false if it does not answer the query of that serial number.
func parseAnswer(b []byte, serial uint32) (d delays, ours bool, err error) {
	const errnoAt = unix.SizeofNlMsghdr
	if len(b) < unix.SizeofNlMsghdr || binary.NativeEndian.Uint32(b[serialAt:]) != serial {
		return delays{}, false, nil
	}
	length, kind := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
	if length < unix.SizeofNlMsghdr || int64(length) > int64(len(b)) {
		return delays{}, true, fmt.Errorf("the kernel's answer has %d bytes and claims %d", len(b), length)
	}
	if kind == unix.NLMSG_ERROR {
		if length < errnoAt+4 {
			return delays{}, true, errors.New("the kernel's answer is an error without a number")
		}
		if errno := -int32(binary.NativeEndian.Uint32(b[errnoAt:])); errno > 0 {
			return delays{}, true, unix.Errno(errno)
		}
		return delays{}, true, errors.New("the kernel's answer has no figures")
	}
	d, ok := parseDelays(b[unix.SizeofNlMsghdr:length])
	if !ok {
		return delays{}, true, errors.New("the kernel's answer has no figures")
	}
	return d, true, nil
}

// Places in struct taskstats.
const (
	runAt   = unsafe.Offsetof(unix.Taskstats{}.Cpu_delay_total)
	blockAt = unsafe.Offsetof(unix.Taskstats{}.Blkio_delay_total)
)

// parseDelays reads an answer: a header, and an attribute that contains the figures as one of its
// own attributes. ok is false if they are missing.
func parseDelays(answer []byte) (d delays, ok bool) {
	if len(answer) < nl.SizeofGenlmsg {
		return delays{}, false
	}
	all := attribute(answer[nl.SizeofGenlmsg:], unix.TASKSTATS_TYPE_AGGR_TGID)
	stats := attribute(all, unix.TASKSTATS_TYPE_STATS)
	if uintptr(len(stats)) < blockAt+8 {
		return delays{}, false
	}
	d = delays{time.Duration(binary.NativeEndian.Uint64(stats[runAt:])), time.Duration(binary.NativeEndian.Uint64(stats[blockAt:]))}
	return d, d.run >= 0 && d.block >= 0
}

// attribute returns the value of the first attribute of a kind; nil if there is none.
func attribute(b []byte, kind uint16) []byte {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return b[unix.SizeofNlAttr:length]
		}
		b = b[min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}
