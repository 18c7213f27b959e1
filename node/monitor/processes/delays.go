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
// needs CAP_NET_ADMIN.
type taskstats struct{ family uint16 }

func openTaskstats() (*taskstats, error) {
	f, err := netlink.GenlFamilyGet(unix.TASKSTATS_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("delays of processes from the kernel (taskstats): %w", err)
	}
	return &taskstats{f.ID}, nil
}

func (s *taskstats) of(pid int) (delays, error) {
	r := nl.NewNetlinkRequest(int(s.family), 0)
	r.AddData(&nl.Genlmsg{Command: unix.TASKSTATS_CMD_GET, Version: unix.TASKSTATS_GENL_VERSION})
	r.AddData(nl.NewRtAttr(unix.TASKSTATS_CMD_ATTR_TGID, nl.Uint32Attr(uint32(pid))))
	answers, err := r.Execute(unix.NETLINK_GENERIC, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return delays{}, fmt.Errorf("delays of processes: %w: run the daemon as root or with CAP_NET_ADMIN", err)
	case err != nil:
		return delays{}, err
	}
	for _, a := range answers {
		if d, ok := parseDelays(a); ok {
			return d, nil
		}
	}
	return delays{}, fmt.Errorf("delays of process %d: the kernel's answer has no figures", pid)
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
