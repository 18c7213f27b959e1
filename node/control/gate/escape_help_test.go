package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	opBytes   = 64 << 10
	fileBytes = 1 << 20
)

// target is what an operation of the table of escapes works on.
type target struct {
	name  string // the file
	f     *os.File
	buf   []byte // aligned
	other *os.File
	state map[string][]byte
}

// operation is a row of the table: what the helper process does before and after the hold begins.
type operation struct {
	flags   int // 0: reading and writing
	prepare func(*target) error
	do      func(*target) error
}

func (o operation) open(t *target) (err error) {
	flags := o.flags
	if flags == 0 {
		flags = os.O_RDWR
	}
	t.f, err = os.OpenFile(t.name, flags, 0o666)
	return err
}

// operate does one operation of the table. Words: its name, the file.
func operate(words []string) error {
	runtime.LockOSThread()
	o, ok := operations[words[0]]
	if !ok {
		return errors.New("unknown operation")
	}
	buf, err := unix.Mmap(-1, 0, opBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	t := &target{name: words[1], buf: buf, state: map[string][]byte{}}
	if words[0] == "inherited descriptor" {
		t.f = os.NewFile(3, "inherited")
	}
	if o.prepare != nil {
		if err := o.prepare(t); err != nil {
			return err
		}
	}
	if t.f == nil {
		if err := o.open(t); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if err := awaitLine(); err != nil {
		return err
	}
	err = o.do(t)
	fmt.Println("done", err)
	return awaitLine()
}

// memory makes the other file of an operation: a file in memory, which is not on the held file system.
func memory(t *target) error {
	fd, err := unix.MemfdCreate("other", 0)
	t.other = os.NewFile(uintptr(fd), "other")
	return err
}

func second(t *target) (err error) {
	t.other, err = os.OpenFile(t.name+".second", os.O_RDWR|os.O_CREATE, 0o666)
	return err
}

func fd(f *os.File) int { return int(f.Fd()) }

// pipe returns a pipe that contains n bytes.
func pipe(n int) (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err == nil && n > 0 {
		_, err = w.Write(make([]byte, n))
	}
	return r, w, err
}

func ignoreCount[N any](_ N, err error) error { return err }

func mapping(t *target, prot, flags int) error {
	m, err := unix.Mmap(fd(t.f), 0, opBytes, prot, flags)
	t.state["map"] = m
	return err
}

var sink byte

var operations = map[string]operation{
	"read":    {do: func(t *target) error { return ignoreCount(unix.Read(fd(t.f), t.buf)) }},
	"pread":   {do: func(t *target) error { return ignoreCount(unix.Pread(fd(t.f), t.buf, 4096)) }},
	"readv":   {do: func(t *target) error { return ignoreCount(unix.Readv(fd(t.f), [][]byte{t.buf})) }},
	"preadv2": {do: func(t *target) error { return ignoreCount(unix.Preadv2(fd(t.f), [][]byte{t.buf}, 0, 0)) }},
	"direct read": {flags: os.O_RDONLY | unix.O_DIRECT,
		do: func(t *target) error { return ignoreCount(unix.Pread(fd(t.f), t.buf, 0)) }},
	"write":    {do: func(t *target) error { return ignoreCount(unix.Write(fd(t.f), t.buf)) }},
	"pwrite":   {do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 4096)) }},
	"writev":   {do: func(t *target) error { return ignoreCount(unix.Writev(fd(t.f), [][]byte{t.buf})) }},
	"pwritev2": {do: func(t *target) error { return ignoreCount(unix.Pwritev2(fd(t.f), [][]byte{t.buf}, 0, 0)) }},
	"appending write": {flags: os.O_WRONLY | os.O_APPEND,
		do: func(t *target) error { return ignoreCount(unix.Write(fd(t.f), t.buf)) }},
	"direct write": {flags: os.O_RDWR | unix.O_DIRECT,
		do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0)) }},
	"sendfile": {prepare: memory, do: func(t *target) error {
		return ignoreCount(unix.Sendfile(fd(t.other), fd(t.f), nil, opBytes))
	}},
	"splice out of the file": {do: func(t *target) error {
		_, w, err := pipe(0)
		if err != nil {
			return err
		}
		return ignoreCount(unix.Splice(fd(t.f), nil, fd(w), nil, opBytes, 0))
	}},
	"splice into the file": {do: func(t *target) error {
		r, _, err := pipe(16 << 10)
		if err != nil {
			return err
		}
		return ignoreCount(unix.Splice(fd(r), nil, fd(t.f), nil, 16<<10, 0))
	}},
	"copy_file_range": {prepare: second, do: func(t *target) error {
		return ignoreCount(unix.CopyFileRange(fd(t.f), nil, fd(t.other), nil, opBytes, 0))
	}},
	"io_uring read, read-only": {flags: os.O_RDONLY | unix.O_NOATIME, do: func(t *target) error {
		return uring(opRead, t)
	}},
	"io_uring write, read-write": {do: func(t *target) error { return uring(opWrite, t) }},
	"io_uring write, descriptor closed": {do: func(t *target) error {
		return uringRegistered(t)
	}},
	"libaio direct read, read-only":   {flags: os.O_RDONLY | unix.O_DIRECT, do: func(t *target) error { return aio(0, t) }},
	"libaio direct write, read-write": {flags: os.O_RDWR | unix.O_DIRECT, do: func(t *target) error { return aio(1, t) }},

	"mmap": {do: func(t *target) error { return mapping(t, unix.PROT_READ, unix.MAP_SHARED) }},
	"read of a mapping": {prepare: func(t *target) error {
		return errors.Join(operation{}.open(t), mapping(t, unix.PROT_READ, unix.MAP_SHARED))
	}, do: func(t *target) error {
		sink = t.state["map"][4096]
		return nil
	}},
	"write to a mapping": {prepare: func(t *target) error {
		return errors.Join(operation{}.open(t), mapping(t, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	}, do: func(t *target) error {
		t.state["map"][4096]++
		return unix.Msync(t.state["map"], unix.MS_SYNC)
	}},
	"readahead": {do: func(t *target) error {
		if _, _, errno := unix.Syscall(unix.SYS_READAHEAD, t.f.Fd(), 0, opBytes); errno != 0 {
			return errno
		}
		return nil
	}},
	"fadvise WILLNEED": {do: func(t *target) error { return unix.Fadvise(fd(t.f), 0, opBytes, unix.FADV_WILLNEED) }},
	"ftruncate":        {do: func(t *target) error { return t.f.Truncate(4096) }},
	"truncate":         {do: func(t *target) error { return unix.Truncate(t.name, 4096) }},
	"open with O_TRUNC": {do: func(t *target) error {
		f, err := os.OpenFile(t.name, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}},
	"fallocate": {do: func(t *target) error { return unix.Fallocate(fd(t.f), 0, 0, 2*fileBytes) }},
	"unlink":    {do: func(t *target) error { return os.Remove(t.name) }},
	"fsync of dirty pages": {prepare: func(t *target) error {
		if err := (operation{}).open(t); err != nil {
			return err
		}
		return ignoreCount(t.f.Write(t.buf))
	}, do: func(t *target) error { return t.f.Sync() }},

	"opened before the mark":   {do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0)) }},
	"opened while watched":     {do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0)) }},
	"inherited descriptor":     {do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0)) }},
	"another thread":           {do: anotherThread},
	"another mount namespace":  {prepare: otherNamespace, do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0)) }},
	"overlayfs over it, write": {prepare: overlay, do: func(t *target) error { return ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0)) }},
	"overlayfs over it, read":  {prepare: overlay, do: func(t *target) error { return ignoreCount(unix.Pread(fd(t.f), t.buf, 0)) }},
}

func anotherThread(t *target) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- ignoreCount(unix.Pwrite(fd(t.f), t.buf, 0))
	}()
	return <-done
}

// private gives this thread a mount namespace of its own.
func private() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

func otherNamespace(t *target) error {
	if err := private(); err != nil {
		return err
	}
	there := filepath.Join(filepath.Dir(t.name), "there")
	if err := os.Mkdir(there, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(filepath.Dir(t.name), there, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	t.name = filepath.Join(there, filepath.Base(t.name))
	return nil
}

func overlay(t *target) error {
	if err := private(); err != nil {
		return err
	}
	dir := filepath.Dir(t.name)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Link(t.name, filepath.Join(dir, "upper", "file")); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
	if err := unix.Mount("overlay", filepath.Join(dir, "merged"), "overlay", 0, options); err != nil {
		return err
	}
	t.name = filepath.Join(dir, "merged", "file")
	return nil
}

// Operations of io_uring.
const (
	opRead     = 22
	opWrite    = 23
	fixedFile  = 1 // flag of an entry
	enterEvent = 1 // IORING_ENTER_GETEVENTS
)

func uring(op byte, t *target) error { return ring(op, fd(t.f), 0, t.buf) }

// uringRegistered writes through a registered file whose descriptor is closed.
func uringRegistered(t *target) error { return ring(opWrite, -fd(t.f), fixedFile, t.buf) }

// ring does one operation with an io_uring of its own. A negative descriptor is registered and closed.
func ring(op byte, file int, flags byte, buf []byte) error {
	var params [120]byte
	r, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return errno
	}
	fd := int(r)
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(params[at:]) }
	const page = 4096
	rings, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	entries, err := unix.Mmap(fd, 0x10000000, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if file < 0 {
		const registerFiles = 2
		one := int32(-file)
		if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, r, registerFiles, uintptr(unsafe.Pointer(&one)), 1, 0, 0); errno != 0 {
			return errno
		}
		unix.Close(-file)
		file = 0
	}
	const submission, completion = 40, 80 // where params has the offsets of the two rings
	e := entries[:64]
	e[0], e[1] = op, flags
	binary.NativeEndian.PutUint32(e[4:], uint32(file))
	binary.NativeEndian.PutUint64(e[8:], 0)
	binary.NativeEndian.PutUint64(e[16:], uint64(uintptr(unsafe.Pointer(&buf[0]))))
	binary.NativeEndian.PutUint32(e[24:], uint32(len(buf)))
	binary.NativeEndian.PutUint32(rings[u32(submission+24):], 0) // the array's first entry
	binary.NativeEndian.PutUint32(rings[u32(submission+4):], 1)  // the tail
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, r, 1, 1, enterEvent, 0, 0); errno != 0 {
		return errno
	}
	result := int32(binary.NativeEndian.Uint32(rings[u32(completion+20)+8:]))
	if result != int32(len(buf)) {
		return fmt.Errorf("io_uring returned %d", result)
	}
	return nil
}

// aio does one operation by io_submit(2): 0 reads, 1 writes.
func aio(op uint16, t *target) error {
	var context uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0); errno != 0 {
		return errno
	}
	var block [64]byte
	binary.NativeEndian.PutUint16(block[16:], op)
	binary.NativeEndian.PutUint32(block[20:], uint32(t.f.Fd()))
	binary.NativeEndian.PutUint64(block[24:], uint64(uintptr(unsafe.Pointer(&t.buf[0]))))
	binary.NativeEndian.PutUint64(block[32:], uint64(len(t.buf)))
	list := [1]*byte{&block[0]}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, context, 1, uintptr(unsafe.Pointer(&list[0]))); errno != 0 {
		return errno
	}
	var events [32]byte
	if _, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, context, 1, 1, uintptr(unsafe.Pointer(&events[0])), 0, 0); errno != 0 {
		return errno
	}
	if n := int64(binary.NativeEndian.Uint64(events[16:])); n != int64(len(t.buf)) {
		return fmt.Errorf("io_submit returned %d", n)
	}
	return nil
}
