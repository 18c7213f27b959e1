package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// tick is the unit of the gate's coarse time.
	tick = 100 * time.Millisecond
	// lateTicks is how late the daemon's heartbeat may be, in ticks.
	lateTicks = 5
	// maxQueued is the maximum number of events that wait for the worker. Further operations pass.
	maxQueued = 1024
	// maxIgnored is the maximum number of files that the kernel ignores at the same time.
	maxIgnored = 4096
	// maxDescriptors is the limit of open files. When they run out, the kernel refuses the operation
	// that waits. So the limit is far above what the bounds of the gate allow.
	maxDescriptors = 1 << 14
	// memoryLimit is the soft memory limit of the Go runtime, in bytes (debug.SetMemoryLimit).
	memoryLimit = 48 << 20
	// contestLife is how long a file is contested, in ticks: a selected process has used it, so that
	// the kernel is not asked to ignore it.
	contestLife    = 100
	contestEntries = 1 << 10
)

// Descriptors that the gate inherits.
const (
	connFD  = 3 // to the daemon
	beatsFD = 4 // to the supervisor
)

// readsOnlyVariable makes the gate use FAN_ACCESS_PERM, as on kernels before 6.14.
const readsOnlyVariable = "PENSTOCK_GATE_READS_ONLY"

// RunGate is the main function of the gate process. It returns only with an error.
func RunGate() error {
	s, err := newServer()
	if err != nil {
		return fmt.Errorf("gate process: %w", err)
	}
	return s.run()
}

// server is the gate process.
//
// Threads: the loop reads events and answers those of processes that pass. The worker examines
// threads and operations, and reports to the daemon. The listener reads the daemon's frames. The
// ticker measures the time. A heartbeat goes from the ticker through the kernel's queue of events,
// the loop and the worker to the supervisor, so that it stops when any of them is stuck.
type server struct {
	group    int
	mask     uint64
	ranged   bool
	null     int // open on /dev/null
	beatFile int // file of heartbeats: the ticker writes to it, and the kernel queues an event

	tick   atomic.Uint32
	silent atomic.Int32 // ticks since the daemon's last heartbeat
	oldest atomic.Uint32
	open   atomic.Bool
	rules  atomic.Pointer[ruleSet]
	cache  cache
	held   *heldTable
	count  counters

	missing []string // protections that the system has not permitted

	queue chan event
	nudge chan struct{} // a heartbeat, from the loop to the worker

	ignored       atomic.Int32 // files that are ignored until the next flush
	contest       [contestEntries]atomic.Uint64
	contested     atomic.Uint32 // the tick of the last entry
	everContested atomic.Bool

	// Used by the worker only.
	proc procReader
	sent [1 << 10]fileKey
	pids [1 << 12]struct{ tid, pid int32 }
	out  []byte
}

type fileKey struct{ dev, inode uint64 }

func (k fileKey) hash() uint64 {
	h := (k.inode ^ k.dev<<40) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// ruleSet has the rules and the pass list, which decide about a process.
type ruleSet struct {
	epoch   uint32
	rules   []Rule
	pass    map[int]bool
	cgroups bool // a rule asks for control groups
}

// rule returns the number of the first rule that matches, counted from 1, or 0.
func (rs *ruleSet) rule(f *facts) int {
	if rs.pass[f.pid] || f.kernelThread() {
		return 0
	}
	for i := range rs.rules {
		if rs.rules[i].matches(f) {
			if rs.rules[i].Class == 0 {
				return 0
			}
			return i + 1
		}
	}
	return 0
}

// counters are Stats that several threads add to.
type counters struct {
	passed, resident, held, mapped, resized, full, letGo, old, unidentified, unknown,
	overflows, gone, lookups, ignored, openings atomic.Uint64
}

func (s *server) stats() Stats {
	c := &s.count
	return Stats{
		Passed: c.passed.Load(), Resident: c.resident.Load(), Held: c.held.Load(), Holding: uint64(s.held.len()),
		Mapped: c.mapped.Load(), Resized: c.resized.Load(),
		LetGoFull: c.full.Load(), LetGoOpen: c.letGo.Load(), LetGoOld: c.old.Load(),
		Unidentified: c.unidentified.Load(), UnknownOp: c.unknown.Load(), Overflows: c.overflows.Load(),
		Gone: c.gone.Load(), Lookups: c.lookups.Load(), Ignored: c.ignored.Load(), Openings: c.openings.Load(),
		Open: s.open.Load(),
	}
}

func newServer() (*server, error) {
	// With four, the loop finds a free processor of the Go runtime when an event arrives.
	runtime.GOMAXPROCS(4)
	debug.SetMemoryLimit(memoryLimit)
	missing := raise(1)
	limit := unix.Rlimit{Cur: maxDescriptors, Max: maxDescriptors}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("allow %d open files: %w; the gate needs root", maxDescriptors, err)
	}
	s := &server{
		held: newHeldTable(), queue: make(chan event, maxQueued), nudge: make(chan struct{}, 1),
		ranged: os.Getenv(readsOnlyVariable) == "", mask: unix.FAN_PRE_ACCESS,
		out: make([]byte, 0, 256),
	}
	s.rules.Store(&ruleSet{})
	var err error
	if s.group, err = newGroup(s.ranged); err != nil {
		return nil, err
	}
	if !s.ranged {
		s.mask = unix.FAN_ACCESS_PERM
	}
	if s.null, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	if s.beatFile, err = openBeatFile(); err != nil {
		return nil, err
	}
	if err := s.watchBeats(); err != nil {
		return nil, err
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		missing = append(missing, "locked memory (CAP_IPC_LOCK)")
	}
	s.missing = missing
	return s, nil
}

func newGroup(ranged bool) (int, error) {
	class := uint(unix.FAN_CLASS_PRE_CONTENT)
	if !ranged {
		class = unix.FAN_CLASS_CONTENT
	}
	group, err := unix.FanotifyInit(class|unix.FAN_REPORT_TID|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("open a fanotify group: %w; it needs CAP_SYS_ADMIN and CONFIG_FANOTIFY_ACCESS_PERMISSIONS", err)
	}
	return group, nil
}

// openBeatFile returns a file in memory, for heartbeats. The file is opened a second time, because the
// kernel reports no events of the descriptor that memfd_create returns.
func openBeatFile() (int, error) {
	fd, err := unix.MemfdCreate("penstock-gate", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("create the file of heartbeats: %w", err)
	}
	defer unix.Close(fd)
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open the file of heartbeats: %w", err)
	}
	return again, nil
}

func (s *server) watchBeats() error {
	if err := unix.FanotifyMark(s.group, unix.FAN_MARK_ADD, unix.FAN_MODIFY, s.beatFile, ""); err != nil {
		return fmt.Errorf("watch the file of heartbeats: %w", err)
	}
	return nil
}

// run serves until something fails. The process then ends, and the kernel lets all operations pass.
func (s *server) run() error {
	failed := make(chan error, 5)
	start := func(what string, f func() error) {
		go func() { failed <- fmt.Errorf("gate process: %s: %w", what, f()) }()
	}
	hello := appendU32([]byte{frameHello}, uint32(os.Getpid()))
	hello = append(hello, flag(s.ranged))
	if err := s.send(appendText(hello, strings.Join(s.missing, ", ")), -1); err != nil {
		return err
	}
	start("read events", s.loop)
	start("examine operations", s.work)
	start("receive from the daemon", s.listen)
	start("keep the heartbeat", s.keepTime)
	start("wait for the supervisor", func() error { return awaitEnd(beatsFD) })
	return <-failed
}

// awaitEnd returns when the other end of a socket is closed.
func awaitEnd(fd int) error {
	var b [1]byte
	for {
		n, err := unix.Read(fd, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			return errors.New("the process at the other end of the socket has ended")
		}
		if err != nil {
			return err
		}
	}
}

// loop reads events. Its path for processes that pass does not allocate and takes no lock.
func (s *server) loop() error {
	runtime.LockOSThread()
	var buf [4096]byte
	for {
		n, _, errno := unix.Syscall(unix.SYS_READ, uintptr(s.group), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		if errno == unix.EINTR || errno == unix.EAGAIN {
			continue
		}
		if errno != 0 {
			// A single event may have failed, for example because the file can no longer be opened. The
			// kernel has refused that operation, and the next event can be read.
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.group)}}, 0); n == 0 && err == nil {
				s.count.unidentified.Add(1)
				continue
			}
			return errno
		}
		for rest := buf[:n]; len(rest) > 0; {
			var e event
			var err error
			if rest, err = parseEvent(rest, &e); err != nil {
				return err // descriptors may be lost, and only the end of the process closes them
			}
			s.event(&e)
		}
	}
}

func (s *server) event(e *event) {
	switch {
	case e.fd < 0:
		s.count.overflows.Add(1)
		return
	case !e.waits(): // a heartbeat
		closeRaw(int(e.fd))
		select {
		case s.nudge <- struct{}{}:
		default:
		}
		return
	case s.open.Load():
		s.count.letGo.Add(1)
		s.answerNow(e.fd)
		return
	case e.tid <= 0: // in another pid namespace
		s.count.unidentified.Add(1)
		s.answerNow(e.fd)
		return
	}
	if rule, known := s.cache.get(e.tid, s.tick.Load(), s.rules.Load().epoch); known && rule == 0 {
		s.count.passed.Add(1)
		s.ignore(int(e.fd))
		s.answerNow(e.fd)
		return
	}
	select {
	case s.queue <- *e:
	default:
		s.count.full.Add(1)
		s.answerNow(e.fd)
	}
}

// answerNow lets an operation pass. Only the loop may call it. It closes the event's descriptor before it
// answers. While the operation waits, its process keeps the file open, so that the gate never does the last
// close, which may have to delete the file. The number of the descriptor is not used again before the loop
// reads the next event, so that the answer is unambiguous.
func (s *server) answerNow(fd int32) {
	closeRaw(int(fd))
	s.respond(fd)
}

// answer lets an operation pass. Any thread may call it, because the number of the descriptor stays in use
// until the answer is written.
func (s *server) answer(fd int32) {
	unix.RawSyscall(unix.SYS_DUP3, uintptr(s.null), uintptr(fd), unix.O_CLOEXEC)
	s.respond(fd)
	closeRaw(int(fd))
}

func (s *server) respond(fd int32) {
	r := unix.FanotifyResponse{Fd: fd, Response: unix.FAN_ALLOW}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(s.group), uintptr(unsafe.Pointer(&r)), unsafe.Sizeof(r))
	if errno == unix.ENOENT { // the process was killed
		s.count.gone.Add(1)
	}
}

func closeRaw(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// ignore asks the kernel to ignore a file until the next flush, unless a selected process has used the
// file. A round trip through the gate takes several microseconds. With ignore, a process that passes needs
// only one round trip per file in 100 ms.
func (s *server) ignore(fd int) {
	if s.ignored.Load() >= maxIgnored || s.isContested(fd) {
		return
	}
	const flags = unix.FAN_MARK_ADD | unix.FAN_MARK_IGNORE_SURV | unix.FAN_MARK_EVICTABLE
	_, _, errno := unix.RawSyscall6(unix.SYS_FANOTIFY_MARK, uintptr(s.group), flags, uintptr(s.mask), uintptr(fd), 0, 0)
	if errno == 0 {
		s.ignored.Add(1)
		s.count.ignored.Add(1)
	}
}

func (s *server) isContested(fd int) bool {
	if !s.everContested.Load() || s.tick.Load()-s.contested.Load() >= contestLife {
		return false
	}
	var st unix.Stat_t
	if _, _, errno := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&st)), 0); errno != 0 {
		return true
	}
	h := fileKey{st.Dev, st.Ino}.hash()
	e := s.contest[h%contestEntries].Load()
	return e>>22 == h>>22 && (s.tick.Load()-uint32(e))&tickMask < contestLife
}

// setContested records that a selected process uses a file.
func (s *server) setContested(k fileKey) {
	h := k.hash()
	s.contest[h%contestEntries].Store(h>>22<<22 | uint64(s.tick.Load()&tickMask))
	s.contested.Store(s.tick.Load())
	s.everContested.Store(true)
}

// keepTime counts ticks, makes heartbeats, flushes the ignored files, and notices when the daemon's heartbeat
// is late. Ticks that were missed, for example while the machine was suspended, do not count.
func (s *server) keepTime() error {
	var beat [1]byte
	every := time.NewTicker(tick)
	defer every.Stop()
	for range every.C {
		if s.silent.Add(1) == lateTicks && !s.open.Load() {
			if err := s.letAllGo(); err != nil {
				return err
			}
		}
		s.tick.Add(1)
		if s.ignored.Load() > 0 {
			if err := s.flushIgnored(); err != nil {
				return err
			}
		}
		s.letOldGo()
		if _, err := unix.Pwrite(s.beatFile, beat[:], 0); err != nil {
			return fmt.Errorf("write a heartbeat: %w", err)
		}
	}
	return nil
}

func (s *server) flushIgnored() error {
	s.ignored.Store(0)
	if err := unix.FanotifyMark(s.group, unix.FAN_MARK_FLUSH, 0, unix.AT_FDCWD, ""); err != nil {
		return fmt.Errorf("flush the ignored files: %w", err)
	}
	return s.watchBeats()
}

// letAllGo opens the gate: it removes all marks and lets all operations pass. It is called when the daemon's
// heartbeat is late.
func (s *server) letAllGo() error {
	s.open.Store(true)
	s.count.openings.Add(1)
	if err := unix.FanotifyMark(s.group, unix.FAN_MARK_FLUSH|unix.FAN_MARK_FILESYSTEM, 0, unix.AT_FDCWD, ""); err != nil {
		return fmt.Errorf("remove the marks: %w", err)
	}
	s.release(func(*heldOperation) bool { return true }, &s.count.letGo)
	return nil
}

// release lets the chosen held operations pass, and adds their number to count.
func (s *server) release(chosen func(*heldOperation) bool, count *atomic.Uint64) {
	for _, fd := range s.held.takeIf(chosen) {
		count.Add(1)
		s.answer(fd)
	}
}

func (s *server) letOldGo() {
	oldest, now := s.oldest.Load(), s.tick.Load()
	if oldest > 0 && now%2 == 0 && s.held.len() > 0 {
		s.release(func(h *heldOperation) bool { return now-h.since > oldest }, &s.count.old)
	}
}

// listen reads the daemon's frames.
func (s *server) listen() error {
	frame, oob := make([]byte, maxFrame), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(connFD, frame, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the daemon has ended")
		}
		fd := descriptorIn(oob[:oobn])
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			err = fmt.Errorf("a message has more than %d bytes, or more descriptors than expected", maxFrame)
		} else {
			err = s.frame(frame[0], frame[1:n], fd)
		}
		if fd >= 0 {
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
}

// descriptorIn returns the descriptor in a control message, or -1. It closes further ones.
func descriptorIn(oob []byte) int {
	fd := -1
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fd
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, f := range fds {
			if fd < 0 {
				fd = f
			} else {
				unix.Close(f)
			}
		}
	}
	return fd
}

// frame handles a frame of the daemon. It returns an error if the frame cannot be parsed or the connection
// fails.
func (s *server) frame(kind byte, body []byte, fd int) error {
	in := reader{b: body}
	switch kind {
	case frameBeat:
		seq, oldest := in.u64(), in.u32()
		if err := in.end(); err != nil {
			return err
		}
		s.oldest.Store(oldest)
		s.silent.Store(0)
		s.open.Store(false)
		stats := s.stats()
		return unlessFull(s.send(appendStats(appendU64([]byte{framePong}, seq), &stats), -1))
	case frameAllow:
		for in.err == nil && len(in.b) > 0 {
			if fd, ok := s.held.take(in.u64()); ok {
				s.answer(fd)
			}
		}
		return in.err
	case frameMark:
		seq, what := in.u64(), action(in.u8())
		if err := in.end(); err != nil {
			return err
		}
		return s.done(seq, s.mark(what, fd))
	case frameRules:
		seq, rules, err := parseRules(body)
		if err == nil {
			s.setRules(func(rs *ruleSet) { rs.rules = rules })
		}
		return s.done(seq, err)
	case framePass:
		seq, pids, err := parsePass(body)
		if err == nil {
			s.setRules(func(rs *ruleSet) { rs.pass = pids })
		}
		return s.done(seq, err)
	case frameFile:
		id := in.u64()
		if err := in.end(); err != nil {
			return err
		}
		var err error
		s.held.use(id, func(h *heldOperation) {
			err = s.send(appendRequest(nil, &h.request), int(h.fd))
		})
		if isFull(err) {
			s.releaseOne(id)
		}
		return unlessFull(err)
	}
	return fmt.Errorf("a frame of the unknown kind %q", kind)
}

func (s *server) done(seq uint64, why error) error {
	return unlessFull(s.send(appendDone(nil, seq, why), -1))
}

// isFull reports whether a frame was not sent because the daemon has too many unread frames.
func isFull(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ETOOMANYREFS)
}

func unlessFull(err error) error {
	if isFull(err) {
		return nil
	}
	return err
}

// setRules changes the rules. Only the listener calls it. Files stop being ignored with the next tick.
func (s *server) setRules(change func(*ruleSet)) {
	rs := *s.rules.Load()
	change(&rs)
	rs.epoch++
	rs.cgroups = false
	for _, r := range rs.rules {
		rs.cgroups = rs.cgroups || r.CgroupPrefix != ""
	}
	s.rules.Store(&rs)
	s.ignored.Add(1)
}

// mark changes what the gate sees of the file system of a folder.
func (s *server) mark(what action, dir int) error {
	if dir < 0 || what > lastAction {
		return errors.New("the daemon sent no folder for a mark")
	}
	const ignore = unix.FAN_MARK_IGNORE_SURV
	change := func(flags uint) error {
		err := unix.FanotifyMark(s.group, flags|unix.FAN_MARK_FILESYSTEM, s.mask, dir, "")
		if flags&unix.FAN_MARK_REMOVE != 0 && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	// At no moment is the file system without a mark: operations on files that are opened at such a moment
	// could not be held later.
	switch what {
	case actionHold:
		if err := change(unix.FAN_MARK_ADD); err != nil {
			return err
		}
		return change(unix.FAN_MARK_REMOVE | ignore)
	case actionWatch:
		if err := change(unix.FAN_MARK_ADD | ignore); err != nil {
			return err
		}
	}
	err := change(unix.FAN_MARK_REMOVE)
	if what == actionRemove {
		err = errors.Join(err, change(unix.FAN_MARK_REMOVE|ignore))
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	s.release(func(h *heldOperation) bool { return h.request.Dev == st.Dev }, &s.count.letGo)
	return err
}

// send sends a frame to the daemon, with a descriptor if fd >= 0. It does not wait.
func (s *server) send(frame []byte, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = rights(fd)
	}
	for {
		err := unix.Sendmsg(connFD, frame, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// rights returns a control message with a descriptor.
func rights(fd int) []byte {
	b := make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], uint32(fd))
	return b
}
