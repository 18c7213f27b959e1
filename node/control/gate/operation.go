package gate

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

// Op is the kind of an operation.
type Op uint8

const (
	// Unknown is an operation whose direction cannot be determined: io_uring or asynchronous I/O on a
	// file that is open for reading and writing.
	Unknown Op = iota
	Read
	Write
	// Map is mmap(2). The gate does not see accesses to the mapping itself.
	Map
	// Resize is truncate(2), ftruncate(2) or fallocate(2).
	Resize
	lastOp = Resize
)

func (o Op) String() string {
	return [...]string{"unknown", "read", "write", "map", "resize"}[min(o, lastOp)]
}

// noFile means that an operation has no such descriptor.
const noFile = -1

// call is a system call in which a thread waits.
type call struct {
	op Op
	fd int // noFile: the call does not name it
	// to is the second descriptor of a call that reads from fd and writes to to. An event may be about
	// either of them.
	to int
	// search means that the descriptor is not an argument of the call.
	search bool
	// blocks and list are the number and the address of the operations of io_submit(2).
	blocks, list int64
	// count and at are the length and the offset that the call names, in bytes, or -1.
	count, at int64
}

// noCall is a call about which nothing is known.
var noCall = call{fd: noFile, to: noFile, count: -1, at: -1}

// parseCall parses the text of /proc/TID/syscall. ok is false if the thread is not blocked.
func parseCall(text []byte) (c call, ok bool) {
	text = bytes.TrimSpace(text)
	number, args, _ := bytes.Cut(text, []byte(" "))
	if bytes.Equal(number, []byte("running")) {
		return noCall, false
	}
	nr, err := strconv.Atoi(string(number))
	if err != nil {
		return noCall, false
	}
	c = noCall
	number64 := func(n int) int64 {
		rest := args
		for range n {
			_, rest, _ = bytes.Cut(rest, []byte(" "))
		}
		field, _, _ := bytes.Cut(rest, []byte(" "))
		field, hex := bytes.CutPrefix(field, []byte("0x"))
		v, err := strconv.ParseUint(string(field), 16, 64)
		if err != nil || !hex {
			return -1
		}
		return int64(v)
	}
	// The kernel uses the lower half of a descriptor.
	file := func(n int) int { return max(int(int32(number64(n))), noFile) }
	one := func(op Op, n int) (call, bool) {
		c.op, c.fd = op, file(n)
		return c, true
	}
	switch nr {
	case unix.SYS_PREAD64, unix.SYS_PWRITE64:
		c.at = max(number64(3), -1)
		fallthrough
	case unix.SYS_READ, unix.SYS_WRITE:
		c.count = max(number64(2), -1)
	}
	switch nr {
	case unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_READV, unix.SYS_PREADV, unix.SYS_PREADV2, unix.SYS_READAHEAD, unix.SYS_FADVISE64:
		return one(Read, 0)
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_VMSPLICE:
		return one(Write, 0)
	case unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE:
		return one(Resize, 0)
	case unix.SYS_TRUNCATE, unix.SYS_OPENAT, unix.SYS_OPENAT2:
		c.op = Resize
		return c, true
	case unix.SYS_MMAP:
		return one(Map, 4)
	case unix.SYS_EXECVE, unix.SYS_EXECVEAT:
		c.op = Read
		return c, true
	case unix.SYS_SENDFILE:
		c.fd, c.to = file(1), file(0)
		return c, true
	case unix.SYS_SPLICE, unix.SYS_COPY_FILE_RANGE:
		c.fd, c.to = file(0), file(2)
		return c, true
	case unix.SYS_IO_SUBMIT:
		c.search, c.blocks, c.list = true, max(number64(1), 0), max(number64(2), 0)
		return c, true
	default: // io_uring_enter, and -1 of a worker of the kernel
		c.search = true
		return c, true
	}
}

// descriptor is what /proc/PID/fdinfo shows of an open file.
type descriptor struct {
	flags int
	mount int    // the mount's id
	inode uint64 // 0 if the kernel does not show it (before 5.14)
	pos   int64  // where the next read(2) or write(2) begins, or -1
}

// same reports whether two descriptors may be open on the same file.
func (d descriptor) same(other descriptor) bool {
	return d.inode == other.inode && d.mount == other.mount
}

// parseDescriptor reads the text of /proc/PID/fdinfo/FD.
func parseDescriptor(text []byte) (d descriptor, ok bool) {
	d.pos = -1
	for line := range bytes.Lines(text) {
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found {
			continue
		}
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "pos":
			if pos, err := strconv.ParseInt(string(value), 10, 64); err == nil && pos >= 0 {
				d.pos = pos
			}
		case "flags":
			flags, err := strconv.ParseUint(string(value), 8, 32)
			d.flags, ok = int(flags), err == nil
		case "mnt_id":
			d.mount, _ = strconv.Atoi(string(value))
		case "ino":
			d.inode, _ = strconv.ParseUint(string(value), 10, 64)
			return d, ok
		}
	}
	return d, ok
}

// op returns the only kind of operation that the descriptor permits, or Unknown.
func (d descriptor) op() Op {
	switch d.flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		return Read
	case unix.O_WRONLY:
		return Write
	}
	return Unknown
}

func (d descriptor) direct() bool    { return d.flags&unix.O_DIRECT != 0 }
func (d descriptor) appending() bool { return d.flags&unix.O_APPEND != 0 }

const (
	blockBytes = 64 // struct iocb
	maxBlocks  = 64 // operations of one call that are examined
)

// block is an operation of io_submit(2).
type block struct {
	op             Op
	fd             int
	offset, length int64 // length is -1 for several buffers
}

// parseBlock reads a struct iocb, which has blockBytes bytes.
func parseBlock(b []byte) (k block, ok bool) {
	const read, write, readv, writev = 0, 1, 7, 8
	k = block{
		fd:     max(int(int32(binary.NativeEndian.Uint32(b[20:]))), noFile),
		offset: int64(binary.NativeEndian.Uint64(b[40:])),
		length: -1,
	}
	code := binary.NativeEndian.Uint16(b[16:])
	switch code {
	case read, readv:
		k.op = Read
	case write, writev:
		k.op = Write
	default:
		return block{}, false
	}
	if code == read || code == write {
		k.length = int64(binary.NativeEndian.Uint64(b[32:]))
	}
	return k, k.fd != noFile
}

// at reports whether k may be the operation with this range, which the kernel has rounded to pages.
func (k block) at(offset, length int64) bool {
	return k.offset >= offset && k.offset < offset+length && k.offset/pageSize == offset/pageSize &&
		(k.length < 0 || k.length <= length)
}
