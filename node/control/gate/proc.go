package gate

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// procReader reads small files of /proc into a buffer of its own.
type procReader struct {
	path []byte
	buf  [8 << 10]byte
}

// read returns the content of /proc/ID/name, cut to the size of the buffer. It is valid until the
// next call.
func (p *procReader) read(id int, name string) ([]byte, bool) {
	p.path = append(p.path[:0], "/proc/"...)
	p.path = strconv.AppendInt(p.path, int64(id), 10)
	p.path = append(append(p.path, '/'), name...)
	fd, err := unix.Open(string(p.path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	n := 0
	for n < len(p.buf) {
		more, err := unix.Read(fd, p.buf[n:])
		if err != nil || more == 0 {
			return p.buf[:n], err == nil
		}
		n += more
	}
	return p.buf[:n], true
}

// facts examines the process of a thread.
func (p *procReader) facts(tid int, cgroups bool) (facts, bool) {
	text, ok := p.read(tid, "status")
	if !ok {
		return facts{}, false
	}
	f, ok := parseStatus(text)
	if !ok {
		return facts{}, false
	}
	if f.pid != tid {
		if text, ok = p.read(f.pid, "comm"); !ok {
			return facts{}, false
		}
		f.comm = string(text[:max(len(text)-1, 0)])
	}
	if cgroups {
		if f.cgroups, ok = p.read(f.pid, "cgroup"); !ok {
			return facts{}, false
		}
	}
	return f, true
}

func (p *procReader) call(tid int) (call, bool) {
	text, ok := p.read(tid, "syscall")
	if !ok {
		return noCall, true // the thread has ended
	}
	return parseCall(text)
}

func (p *procReader) descriptor(tid, fd int) (descriptor, bool) {
	text, ok := p.read(tid, "fdinfo/"+strconv.Itoa(fd))
	if !ok {
		return descriptor{}, false
	}
	return parseDescriptor(text)
}

// startOf returns the start time of a process, in clock ticks since the boot.
func startOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	start, ok := parseStart(text)
	if !ok {
		return 0, fmt.Errorf("parse /proc/%d/stat: it has no start time", pid)
	}
	return start, nil
}

// blocks calls f with the operations of an io_submit(2) in which a thread waits, until f returns true.
func (p *procReader) blocks(tid int, c *call, f func(block) bool) {
	n := int(min(c.blocks, maxBlocks))
	if n == 0 {
		return
	}
	pointers := p.buf[:8*n]
	if !copyFrom(tid, uintptr(c.list), pointers) {
		return
	}
	var one [blockBytes]byte
	for ; len(pointers) > 0; pointers = pointers[8:] {
		if !copyFrom(tid, uintptr(binary.NativeEndian.Uint64(pointers)), one[:]) {
			return
		}
		if k, ok := parseBlock(one[:]); ok && f(k) {
			return
		}
	}
}

// copyFrom copies memory of another process.
func copyFrom(tid int, address uintptr, to []byte) bool {
	local := []unix.Iovec{{Base: &to[0], Len: uint64(len(to))}}
	n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: address, Len: len(to)}}, 0)
	return err == nil && n == len(to)
}
