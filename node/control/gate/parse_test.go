package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kernelEvent returns an event as the kernel writes it.
func kernelEvent(mask uint64, fd, tid int32, info ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(eventBytes+len(info)))
	b = append(b, eventVersion, 0)
	b = binary.NativeEndian.AppendUint16(b, eventBytes)
	b = binary.NativeEndian.AppendUint64(b, mask)
	b = binary.NativeEndian.AppendUint32(b, uint32(fd))
	b = binary.NativeEndian.AppendUint32(b, uint32(tid))
	return append(b, info...)
}

func rangeInfo(offset, count uint64) []byte {
	b := []byte{unix.FAN_EVENT_INFO_TYPE_RANGE, 0}
	b = binary.NativeEndian.AppendUint16(b, rangeBytes)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint64(b, offset)
	return binary.NativeEndian.AppendUint64(b, count)
}

func TestParseEvent(t *testing.T) {
	two := append(kernelEvent(unix.FAN_PRE_ACCESS, 7, 42, rangeInfo(4096, 8192)...), kernelEvent(unix.FAN_MODIFY, 8, 43)...)
	var e event
	rest, err := parseEvent(two, &e)
	must(t, err)
	if want := (event{unix.FAN_PRE_ACCESS, 7, 42, 4096, 8192}); e != want || !e.waits() {
		t.Errorf("%+v, want %+v", e, want)
	}
	rest, err = parseEvent(rest, &e)
	must(t, err)
	if want := (event{unix.FAN_MODIFY, 8, 43, -1, -1}); e != want || e.waits() || len(rest) != 0 {
		t.Errorf("%+v with %d more bytes, want %+v", e, len(rest), want)
	}
	_, err = parseEvent(kernelEvent(unix.FAN_PRE_ACCESS, 7, 42, rangeInfo(math.MaxInt64-1, math.MaxUint64)...), &e)
	must(t, err)
	if e.offset != math.MaxInt64-1 || e.length != 1 {
		t.Errorf("a range beyond the largest offset: %+v", e)
	}
	whole := kernelEvent(unix.FAN_PRE_ACCESS, 7, 42, rangeInfo(0, 1)...)
	for n := range whole {
		if _, err := parseEvent(whole[:n], &e); err == nil {
			t.Errorf("an event cut to %d bytes was accepted", n)
		}
	}
	other := append([]byte(nil), whole...)
	other[4]++
	if _, err := parseEvent(other, &e); err == nil {
		t.Error("an event of another version was accepted")
	}
}

func TestParseCall(t *testing.T) {
	for text, want := range map[string]call{
		fmt.Sprintf("%d 0x5 0x7f00 0x1000 0x0 0x0 0x0 0x7ffd 0x7f01\n", unix.SYS_READ):        {op: Read, fd: 5, to: noFile, count: 4096, at: -1},
		fmt.Sprintf("%d 0x5 0x7f00 0x1000 0x2001 0x0 0x0 0x7ffd 0x7f01\n", unix.SYS_PWRITE64): {op: Write, fd: 5, to: noFile, count: 4096, at: 8193},
		fmt.Sprintf("%d 0xffffffff00000005 0x0 0x1 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_WRITE):    {op: Write, fd: 5, to: noFile, count: 1, at: -1},
		fmt.Sprintf("%d 0x9 0x5 0x0 0x1 0x0 0x0 0x1 0x1\n", unix.SYS_SENDFILE):                {fd: 5, to: 9, count: -1, at: -1},
		fmt.Sprintf("%d 0x5 0x0 0x9 0x0 0x1 0x0 0x1 0x1\n", unix.SYS_COPY_FILE_RANGE):         {fd: 5, to: 9, count: -1, at: -1},
		fmt.Sprintf("%d 0x0 0x1000 0x1 0x1 0x5 0x0 0x1 0x1\n", unix.SYS_MMAP):                 {op: Map, fd: 5, to: noFile, count: -1, at: -1},
		fmt.Sprintf("%d 0xffffffff 0x1000 0x1 0x1 0x5 0x0 0x1 0x1\n", unix.SYS_READ):          {op: Read, fd: noFile, to: noFile, count: 1, at: -1},
		fmt.Sprintf("%d 0x5 0x2 0x7f0000001000 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_IO_SUBMIT):    {fd: noFile, to: noFile, search: true, blocks: 2, list: 0x7f0000001000, count: -1, at: -1},
		"-1 0x7ffd 0x7f01\n": {fd: noFile, to: noFile, search: true, count: -1, at: -1},
	} {
		if got, ok := parseCall([]byte(text)); got != want || !ok {
			t.Errorf("%q: %+v %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"running\n", "", "read 0x1", "\n"} {
		if got, ok := parseCall([]byte(text)); ok {
			t.Errorf("%q: %+v, want that the thread is not blocked", text, got)
		}
	}
}

func TestParseDescriptor(t *testing.T) {
	for text, want := range map[string]descriptor{
		"pos:\t4096\nflags:\t0140000\nmnt_id:\t24\nino:\t13\n": {flags: 0o140000, mount: 24, inode: 13, pos: 4096},
		"pos:\t9223372036854775807\nflags:\t02\n":              {flags: 2, pos: math.MaxInt64},
		"pos:\t9223372036854775808\nflags:\t02\n":              {flags: 2, pos: -1},
		"pos:\t-1\nflags:\t02\n":                               {flags: 2, pos: -1},
		"flags:\t01\n":                                         {flags: 1, pos: -1},
	} {
		if got, ok := parseDescriptor([]byte(text)); got != want || !ok {
			t.Errorf("%q: %+v %v, want %+v", text, got, ok, want)
		}
	}
	if got, ok := parseDescriptor([]byte("pos:\t4096\n")); ok {
		t.Errorf("a descriptor without flags: %+v", got)
	}
}

func TestParseStatusOfThisProcess(t *testing.T) {
	var p procReader
	f, ok := p.facts(os.Getpid(), true)
	if !ok || f.pid != os.Getpid() || f.parent != os.Getppid() || f.uid != os.Getuid() || f.kernelThread() {
		t.Errorf("%+v, %v", f, ok)
	}
	if want := filepath.Base(self(t)[0]); !strings.HasPrefix(want, f.comm) || f.comm == "" {
		t.Errorf("the command is %q, want the beginning of %q", f.comm, want)
	}
	if f, ok = p.facts(2, false); ok && f.comm == "kthreadd" && !f.kernelThread() {
		t.Errorf("%+v is a thread of the kernel", f)
	}
	if _, ok := p.facts(math.MaxInt32, false); ok {
		t.Error("a process that does not exist was examined")
	}
}

// Only file systems of one device number each can be held.
func TestBoundOfFileSystems(t *testing.T) {
	for _, kind := range []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC} {
		must(t, mayHoldType(kind))
	}
	for _, kind := range []int64{0, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC + 1} {
		if err := mayHoldType(kind); !errors.Is(err, ErrRefused) {
			t.Errorf("type %#x: error %v, want ErrRefused", kind, err)
		}
	}
}

func TestInCgroup(t *testing.T) {
	const text = "12:blkio:/docker/1a2b\n3:name=systemd:/system.slice/a:b.service\n0::/\n"
	for prefix, want := range map[string]bool{
		"/docker": true, "/docker/": true, "/docker/1a2b": true, "/docker/1a2": false, "/dock": false,
		"/system.slice/a:b.service": true, "/": true, "/1a2b": false,
	} {
		if got := inCgroup([]byte(text), prefix); got != want {
			t.Errorf("%s: %v, want %v", prefix, got, want)
		}
	}
}

func TestFramesKeepTheirContent(t *testing.T) {
	r := Request{ID: 1 << 40, Class: 3, PID: 4, TID: 5, Op: Resize, Direct: true, Async: true, Offset: -1, Length: 1 << 50, Resident: 7, Dev: 8, Inode: math.MaxUint64}
	frame := appendRequest(nil, &r)
	got, err := parseRequest(frame[1:])
	if err != nil || got != r {
		t.Errorf("%+v, %v, want %+v", got, err, r)
	}
	for n := range len(frame) - 1 {
		if _, err := parseRequest(frame[1 : 1+n]); err == nil {
			t.Errorf("a request cut to %d bytes was accepted", n)
		}
	}
	if _, err := parseRequest(append(frame[1:], 0)); err == nil {
		t.Error("a request with another byte was accepted")
	}
	rules := []Rule{{Class: 1, UID: AnyUser, PID: 9}, {Class: 2, UID: 1000, CgroupPrefix: "/a", Comm: "fio"}}
	frame = appendRules(nil, 77, rules)
	seq, back, err := parseRules(frame[1:])
	if err != nil || seq != 77 || !reflect.DeepEqual(back, rules) {
		t.Errorf("%d %+v %v", seq, back, err)
	}
	var s, parsed Stats
	for i, f := range s.fields() {
		*f = uint64(i + 1)
	}
	s.Open = true
	in := reader{b: appendStats(nil, &s)}
	parsed.parse(&in)
	if err := in.end(); err != nil || parsed != s {
		t.Errorf("%+v %v, want %+v", parsed, err, s)
	}
	if n := reflect.TypeFor[Stats]().NumField() - 1; len(s.fields()) != n {
		t.Errorf("a frame has %d of the %d counters", len(s.fields()), n)
	}
}

func TestHeldTableHasABound(t *testing.T) {
	table := newHeldTable()
	var ids []uint64
	for i := range maxHeld {
		r := Request{Class: uint32(i / maxHeldOfClass), Offset: int64(i)}
		if i == maxHeldOfClass && table.add(&Request{}, 1, 0) {
			t.Errorf("more than %d operations of one class were held", maxHeldOfClass)
		}
		if !table.add(&r, int32(i+1), 0) {
			t.Fatalf("the table was full with %d operations", i)
		}
		ids = append(ids, r.ID)
	}
	r := Request{Class: 2}
	if table.add(&r, 1, 0) || table.len() != maxHeld {
		t.Errorf("more than %d operations were held", maxHeld)
	}
	if fd, ok := table.take(ids[5]); !ok || fd != 6 {
		t.Errorf("take: %d %v", fd, ok)
	}
	if _, ok := table.take(ids[5]); ok {
		t.Error("an operation was taken twice")
	}
	if !table.add(&r, 99, 0) || r.ID == ids[5] {
		t.Errorf("the free slot has the id %d again", r.ID)
	}
	if _, ok := table.take(ids[5]); ok {
		t.Error("a late answer took the next operation of the slot")
	}
	if fds := table.takeIf(func(h *heldOperation) bool { return h.fd <= 10 }); len(fds) != 9 {
		t.Errorf("%d descriptors, want 9", len(fds))
	}
	for _, id := range []uint64{0, 1, math.MaxUint64} {
		if _, ok := table.take(id); ok {
			t.Errorf("the id %d was taken", id)
		}
	}
}

func TestCacheForgets(t *testing.T) {
	var c cache
	c.put(100, 3, 50, 7)
	for _, test := range []struct {
		tid         int32
		tick, epoch uint32
		known       bool
	}{
		{100, 50, 7, true}, {100, 50 + cacheLife - 1, 7, true}, {100, 50 + cacheLife, 7, false},
		{100, 50, 8, false}, {100 + cacheEntries, 50, 7, false}, {0, 50, 7, false}, {-1, 50, 7, false}, {maxTID, 50, 7, false},
	} {
		if rule, known := c.get(test.tid, test.tick, test.epoch); known != test.known || known && rule != 3 {
			t.Errorf("%+v: rule %d, known %v", test, rule, known)
		}
	}
	c.put(maxTID-1, MaxRules, tickMask, epochMask)
	if rule, known := c.get(maxTID-1, tickMask+2, epochMask); rule != MaxRules || !known {
		t.Errorf("the largest values: rule %d, known %v", rule, known)
	}
	c.put(100+cacheEntries, 1, 50, 7)
	if _, known := c.get(100, 50, 7); known {
		t.Error("a displaced thread is known")
	}
}

func TestFileCacheHasABound(t *testing.T) {
	var c fileCache
	defer c.clear()
	dir := t.TempDir()
	open := func(i int) (fileKey, int) {
		fd, err := unix.Open(filepath.Join(dir, fmt.Sprint(i)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Fstat(fd, &st))
		return fileKey{st.Dev, st.Ino}, fd
	}
	first, fd := open(0)
	kept := c.get(first, fd)
	for i := range maxFiles {
		key, fd := open(i + 1)
		c.get(key, fd).Release()
	}
	if len(c.files) != maxFiles {
		t.Errorf("%d files are open, want %d", len(c.files), maxFiles)
	}
	if c.get(first, -1) != nil {
		t.Error("the oldest file is still in the cache")
	}
	if _, err := kept.Stat(); err != nil {
		t.Errorf("a file that is kept was closed: %v", err)
	}
	kept.Release()
	c.closer.wait(patience)
	if _, err := kept.Stat(); err == nil {
		t.Error("a file that was released is open")
	}
	key, fd := open(5)
	if c.get(fileKey{key.dev, key.inode + 1_000_000}, fd) != nil {
		t.Error("a descriptor of another file was accepted")
	}
}

func TestSwapFiles(t *testing.T) {
	for line, want := range map[string]string{
		"Filename Type Size Used Priority": "", "/dev/sda2 partition 1 0 -2": "", `/var/swap\040file file 1 0 -2`: "/var/swap file", "": "", "/a": "",
	} {
		if got, ok := swapFile(line); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", line, got, ok, want)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(kernelEvent(unix.FAN_PRE_ACCESS, 7, 42, rangeInfo(4096, 8192)...))
	f.Add(append(kernelEvent(unix.FAN_MODIFY, 7, 42), kernelEvent(unix.FAN_ACCESS_PERM, -1, 0, 9, 0, 5, 0, 1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			var e event
			rest, err := parseEvent(b, &e)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatalf("%d bytes, then %d", len(b), len(rest))
			}
			if e.offset < -1 || e.length < -1 || e.offset >= 0 && e.offset+e.length < 0 {
				t.Fatalf("range %d+%d", e.offset, e.length)
			}
			b = rest
		}
	})
}

// FuzzProc parses the files of /proc whose content other processes can influence.
func FuzzProc(f *testing.F) {
	f.Add([]byte("0 0x5 0x7f00 0x1000 0x0 0x0 0x0 0x7ffd 0x7f01\n"))
	f.Add([]byte("pos:\t0\nflags:\t0100002\nmnt_id:\t24\nino:\t13\n"))
	f.Add([]byte("pos:\t9223372036854775808\nflags:\t01\n"))
	f.Add([]byte("Name:\ta b\nTgid:\t7\nPPid:\t1\nUid:\t1000\t1000\t1000\t1000\n"))
	f.Add([]byte("7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0\n"))
	f.Add([]byte("12:blkio:/docker/1a2b\n0::/\n"))
	f.Add([]byte(`/swap\040file file 1 0 -2`))
	f.Add(make([]byte, blockBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parseCall(b); ok && (c.op > lastOp || c.fd < noFile || c.to < noFile || c.count < -1 || c.at < -1 || c.blocks < 0) {
			t.Fatalf("%+v", c)
		}
		if d, ok := parseDescriptor(b); ok && (d.pos < -1 || d.op() > Write) {
			t.Fatalf("%+v", d)
		}
		if f, ok := parseStatus(b); ok && (f.pid <= 0 || f.parent < 0 || f.uid < 0) {
			t.Fatalf("%+v", f)
		}
		if len(b) >= blockBytes {
			if k, ok := parseBlock(b); ok && (k.fd < 0 || k.op == Unknown) {
				t.Fatalf("%+v", k)
			}
		}
		parseStart(b)
		inCgroup(b, "/docker")
		swapFile(string(b))
		if p, err := parseProcess(string(b)); err == nil && (p.pid <= 0 || p.String() != string(b)) {
			t.Fatalf("%+v", p)
		}
	})
}

func FuzzFrames(f *testing.F) {
	r := Request{ID: 1, Op: Write, Length: 4096}
	f.Add(appendRequest(nil, &r)[1:])
	f.Add(appendRules(nil, 1, []Rule{{Class: 1, UID: AnyUser, Comm: "fio", CgroupPrefix: "/a"}})[1:])
	f.Add(appendPass(nil, 1, []int{1, 2})[1:])
	f.Add(appendDone(nil, 1, os.ErrNotExist)[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil {
			if back, err := parseRequest(appendRequest(nil, &r)[1:]); err != nil || back != r {
				t.Fatalf("%+v, then %+v, %v", r, back, err)
			}
		}
		if seq, rules, err := parseRules(b); err == nil {
			back, again, err := parseRules(appendRules(nil, seq, rules)[1:])
			if err != nil || back != seq || !reflect.DeepEqual(again, rules) {
				t.Fatalf("%+v, then %+v, %v", rules, again, err)
			}
		}
		parsePass(b)
		parseDone(b)
		in := reader{b: b}
		var s Stats
		s.parse(&in)
	})
}
