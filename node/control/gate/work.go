package gate

import (
	"errors"
	"math"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
)

const (
	// runningTries is how often the worker looks at a thread that is not blocked yet.
	runningTries = 20
	runningWait  = 20 * time.Microsecond
	// maxSearched is the number of open files of a process that are compared with the file of an
	// operation whose system call does not name it.
	maxSearched = 256
)

// work examines the threads and operations that the loop cannot decide about.
func (s *server) work() error {
	runtime.LockOSThread()
	var beat [1]byte
	for {
		select {
		case e := <-s.queue:
			if err := s.examine(&e); err != nil {
				return err
			}
		case <-s.nudge:
			err := unix.Sendto(beatsFD, beat[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
			if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
}

// examine decides about one operation.
func (s *server) examine(e *event) error {
	if s.open.Load() {
		s.count.letGo.Add(1)
		s.answer(e.fd)
		return nil
	}
	rs := s.rules.Load()
	rule, pid, ok := s.lookup(rs, int(e.tid))
	switch {
	case !ok:
		s.count.unidentified.Add(1)
		s.answer(e.fd)
		return nil
	case rule == 0:
		s.count.passed.Add(1)
		s.answer(e.fd)
		return nil
	}
	r := Request{
		Class: rs.rules[rule-1].Class, PID: pid, TID: int(e.tid), Offset: e.offset, Length: e.length,
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(e.fd), &st); err != nil {
		s.count.unidentified.Add(1)
		s.answer(e.fd)
		return nil
	}
	r.Dev, r.Inode = st.Dev, st.Ino
	s.setContested(fileKey{r.Dev, r.Inode})
	s.describe(&r, int(e.fd), st.Size)
	switch {
	case r.Op == Map:
		s.count.mapped.Add(1)
		s.answer(e.fd)
		return nil
	case r.Op == Resize:
		s.count.resized.Add(1)
		s.answer(e.fd)
		return nil
	case r.Op == Read && !r.Direct && r.Offset >= 0:
		if s.resident(&r, int(e.fd), st.Size) {
			s.count.resident.Add(1)
			s.answer(e.fd)
			return nil
		}
	case r.Op == Unknown:
		s.count.unknown.Add(1)
	}
	return s.hold(&r, e.fd)
}

// lookup returns the number of the rule that matches a thread, or 0, and its process.
func (s *server) lookup(rs *ruleSet, tid int) (rule, pid int, ok bool) {
	tick := s.tick.Load()
	known := &s.pids[tid%len(s.pids)]
	if rule, ok := s.cache.get(int32(tid), tick, rs.epoch); ok && (rule == 0 || known.tid == int32(tid)) {
		return rule, int(known.pid), true
	}
	s.count.lookups.Add(1)
	f, ok := s.proc.facts(tid, rs.cgroups)
	if !ok {
		return 0, 0, false
	}
	rule = rs.rule(&f)
	known.tid, known.pid = int32(tid), int32(f.pid)
	s.cache.put(int32(tid), rule, tick, rs.epoch)
	return rule, f.pid, true
}

// describe fills in what the blocked thread does with the file.
func (s *server) describe(r *Request, fd int, size int64) {
	c, ok := s.proc.call(r.TID)
	for try := 0; !ok && try < runningTries; try++ {
		time.Sleep(runningWait) // the event arrives shortly before the thread blocks
		c, ok = s.proc.call(r.TID)
	}
	c.search = c.search || !ok
	r.Async = c.search
	if !s.ranged {
		s.describeRead(r, fd, &c)
		return
	}
	// The kernel rounds the range to whole pages.
	if c.at >= r.Offset && c.at-r.Offset < pageSize && r.Length > c.at-r.Offset {
		r.Length -= c.at - r.Offset
		r.Offset = c.at
	}
	if c.count > 0 {
		r.Length = min(r.Length, c.count)
	}
	// An inode number alone may belong to another file system.
	own, ok := s.proc.descriptor(os.Getpid(), fd)
	if c.blocks > 0 && ok {
		s.submitted(r, own, &c)
	}
	r.Op = c.op
	if !ok {
		return
	}
	var d descriptor
	var found bool
	switch {
	case c.search:
		d, found = s.search(r, own)
		r.Op = d.op()
	case c.to != noFile: // the event is about one of the two files
		from, fromOK := s.proc.descriptor(r.TID, c.fd)
		to, toOK := s.proc.descriptor(r.TID, c.to)
		fromOK, toOK = fromOK && from.same(own), toOK && to.same(own)
		switch {
		case fromOK && !toOK:
			d, found, r.Op = from, true, Read
		case toOK && !fromOK:
			d, found, r.Op = to, true, Write
		}
	case c.fd != noFile:
		d, found = s.proc.descriptor(r.TID, c.fd)
		if found && !d.same(own) { // another thread has replaced the descriptor, or the file is below an overlayfs
			if next, ok := s.search(r, own); ok {
				d = next
			}
		}
	}
	if !found {
		return
	}
	r.Direct = d.direct()
	if r.Op == Write && d.appending() {
		r.Offset = size
	}
}

// describeRead fills in the range of a read on a kernel that does not report it. The range is known for read(2) and
// pread(2).
func (s *server) describeRead(r *Request, fd int, c *call) {
	r.Op = Read
	if c.op != Read || c.fd == noFile || c.count < 0 {
		return
	}
	own, ok := s.proc.descriptor(os.Getpid(), fd)
	if !ok {
		return
	}
	d, ok := s.proc.descriptor(r.TID, c.fd)
	if !ok || !d.same(own) { // another thread has replaced the descriptor, or the file is below an overlayfs
		return
	}
	r.Direct = d.direct()
	at := c.at
	if at < 0 {
		at = d.pos
	}
	if at >= 0 && c.count <= math.MaxInt64-at {
		r.Offset, r.Length = at, c.count
	}
}

// submitted looks for the operation among those of an io_submit(2). If exactly one kind fits, it
// changes c into a call of this kind.
func (s *server) submitted(r *Request, own descriptor, c *call) {
	found := *c
	conflict := false
	var candidates [maxBlocks]block
	n := 0
	s.proc.blocks(r.TID, c, func(k block) bool {
		if k.at(r.Offset, r.Length) {
			candidates[n] = k
			n++
		}
		return n == len(candidates)
	})
	for _, k := range candidates[:n] {
		if d, ok := s.proc.descriptor(r.TID, k.fd); !ok || !d.same(own) {
			continue
		}
		conflict = conflict || found.op != Unknown && found.op != k.op
		found.op, found.fd, found.search = k.op, k.fd, false
	}
	if !conflict {
		*c = found
	}
}

// search looks for the file of own among the open files of the thread. If several descriptors have the
// file, the operation is of the kind that all of them permit, and it is direct if all of them are direct.
func (s *server) search(r *Request, own descriptor) (d descriptor, found bool) {
	dir, err := os.Open("/proc/" + strconv.Itoa(r.TID) + "/fdinfo")
	if err != nil {
		return d, false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxSearched)
	if err != nil {
		return d, false
	}
	for _, name := range names {
		text, ok := s.proc.read(r.TID, "fdinfo/"+name)
		if !ok {
			continue
		}
		next, ok := parseDescriptor(text)
		if !ok || !next.same(own) {
			continue
		}
		if !found {
			d, found = next, true
			continue
		}
		if d.op() != next.op() {
			d.flags = d.flags&^unix.O_ACCMODE | unix.O_RDWR
		}
		d.flags &= next.flags | ^(unix.O_DIRECT | unix.O_APPEND)
	}
	if !found {
		d.flags = unix.O_RDWR
	}
	return d, found
}

var pageSize = int64(os.Getpagesize())

// resident reports whether all bytes that a read will return are in the page cache. It sets r.Resident.
func (s *server) resident(r *Request, fd int, size int64) bool {
	end := min(r.Offset+r.Length, size)
	if end <= r.Offset {
		return true // the end of the file
	}
	first, last := r.Offset/pageSize, (end-1)/pageSize
	pages, err := kernel.CountPages(fd, r.Offset, end-r.Offset)
	if err != nil {
		return false
	}
	r.Resident = min(pages.Resident*pageSize, end-r.Offset)
	return pages.Resident > last-first
}

// hold reports an operation to the daemon. If that is impossible, the operation passes.
func (s *server) hold(r *Request, fd int32) error {
	if !s.held.add(r, fd, s.tick.Load()) {
		s.count.full.Add(1)
		s.answer(fd)
		return nil
	}
	key := fileKey{r.Dev, r.Inode}
	sent := &s.sent[key.hash()%uint64(len(s.sent))]
	file := -1
	if *sent != key {
		file = int(fd)
	}
	s.out = appendRequest(s.out[:0], r)
	// Once the daemon has the frame, another thread may close fd. Before that, fd is closed only when the
	// gate opens. Then the frame may have a descriptor of /dev/null or of another file, so the daemon
	// compares the descriptor with the request.
	err := s.send(s.out, file)
	switch {
	case err == nil:
		*sent = key
		s.count.held.Add(1)
		if s.open.Load() { // the gate has opened in the meantime
			s.releaseOne(r.ID)
		}
		return nil
	case isFull(err):
		if fd, ok := s.held.take(r.ID); ok {
			s.count.full.Add(1)
			s.answer(fd)
		}
		return nil
	}
	return err
}

func (s *server) releaseOne(id uint64) {
	if fd, ok := s.held.take(id); ok {
		s.count.letGo.Add(1)
		s.answer(fd)
	}
}
