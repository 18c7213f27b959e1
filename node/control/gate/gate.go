// Package gate holds the file I/O of any process, including buffered writes, without the help of the
// process.
//
// Problem: a process that has no agent must wait for its turn at the disk. Control groups of version 1
// do not hold buffered writes, and the freezer stops the whole process.
//
// Choice: pre-content events of fanotify (FAN_PRE_ACCESS, Linux 6.14). On a marked file system, each
// read(2) and write(2) waits until a listener answers. The operation passes when the answer allows it.
// The event has the thread, the file and the range. The thread is blocked, and its /proc/TID/syscall
// shows whether it reads or writes. Older kernels have FAN_ACCESS_PERM, which reports reads only, without
// a range.
//
// What is hard: a listener that hangs holds every process that uses the file system, for ever. When a
// listener is killed, the kernel lets all operations pass. So the listener is a small process of its own,
// the gate process. Its memory is locked, its priority is high, and it does no file I/O on the file
// systems that it holds. Its parent, the supervisor, kills it when its heartbeat is late. The heartbeat is
// an event in the same queue as the other events, so it shows that events are read and examined. It does
// not depend on the answers of the daemon, which may take seconds. When the daemon's own heartbeat is
// late, the gate opens: the gate process removes its marks and lets everything pass.
//
// A mark is for a file system, not for a process, but most processes pass and should not be slowed down.
// The gate process decides about these without the daemon, from a table of threads. Then it asks the
// kernel to ignore the file for 100 ms, which means to report no operations on it. So a process that
// passes causes at most one event per file in 100 ms. The disadvantage: on a file that another process
// has just used, a process that is to be held is not seen for up to 100 ms. Once it has been seen, its
// file is not ignored for 10 s.
//
// When a file is opened, the kernel decides whether it will ever report operations on that file.
// Operations on a file that was opened before the first mark of its file system are never held. Watch
// makes a file system ready, without events: it sets a mark that the kernel ignores.
//
// The monitor-and-controller paper (its Tables 1 and 2) holds containers by control groups, and could
// not hold the buffered writer.
package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"penstock/node/control/journal"

	"golang.org/x/sys/unix"
)

const (
	beatPeriod = tick
	// pongLimit is the number of heartbeats without an answer after which the daemon ends the gate.
	// The supervisor is faster, unless it has been stopped too.
	pongLimit   = 6
	callLimit   = 2 * time.Second
	socketBytes = 4 << 20
	maxErrors   = 16 << 10 // bytes of the processes' error messages
)

// Options describe a gate.
type Options struct {
	// Command starts this program again. Start adds a last word, RoleSupervisor or RoleGate. The program
	// must then call RunSupervisor or RunGate and do nothing else.
	Command []string
	// Held is called for each operation that waits, one call at a time. It must not block. Each
	// request must be answered by Allow, from any goroutine.
	Held func(Request)
	// Alive reports whether the daemon makes progress. While it returns false, no heartbeats are sent,
	// and the gate opens. It may be nil.
	Alive func() bool
	// Protected are the files and folders that the daemon needs to make progress: its binary, log,
	// settings and runtime folder. A file system that contains one of them cannot be marked.
	Protected []string
	// HoldAtMost is the longest wait of an operation. Default 30 s, at least 1 s.
	HoldAtMost time.Duration
	// Journal records the two processes. It may be nil if the caller records them.
	Journal *journal.Journal
	// ReadsOnly uses FAN_ACCESS_PERM, as on kernels before 6.14.
	ReadsOnly bool
}

// Roles are the last words of Options.Command.
const (
	RoleSupervisor = "gate-supervisor"
	RoleGate       = "gate-process"
)

// Request is an operation that waits.
//
// The receiver of a Read should bring the range into the page cache before it calls Allow. Otherwise the
// kernel reads ahead of the process, and the process later finds resident pages for which it was not
// charged.
type Request struct {
	ID       uint64
	Class    uint32
	PID, TID int
	Op       Op
	Direct   bool // O_DIRECT
	// Async means that the system call may return before the device has answered: io_submit(2),
	// io_uring, and calls that could not be examined.
	Async bool
	// Offset and Length are the range, in bytes. Both are -1 if it is not known: before Linux 6.14, the kernel does not
	// report it, and the gate knows only that of read(2) and pread(2). The
	// length is the one that the process has asked for; a read may end earlier, at the end of the file.
	// For calls other than read(2), write(2), pread(2) and pwrite(2), the range has whole pages.
	Offset, Length int64
	// Resident is the part of a buffered Read that is in the page cache, in bytes.
	Resident   int64
	Dev, Inode uint64
	// File is the file, open for reading. It is valid until Held returns, and longer after Keep. It is
	// nil if the operation passed before its file arrived.
	File *File
}

// Gate is a gate process with its supervisor.
type Gate struct {
	options    Options
	conn       *net.UnixConn
	supervisor int
	ended      chan struct{} // closed when both processes have ended

	mu      sync.Mutex
	err     error
	seq     uint64
	calls   map[uint64]chan string
	places  map[uint64]*place // by device
	process int               // id of the gate process
	closing bool

	files fileCache
	// asked has, for each slot of the gate's table, the last request whose file was asked for. It
	// belongs to the goroutine that receives.
	asked [maxHeld]uint64

	statsMu  sync.Mutex
	stats    Stats // the counters of the gate process
	pongs    int   // number of answers to heartbeats
	silent   int   // number of heartbeats since the last answer
	fileless uint64
	ranged   bool
	missing  string
	hello    chan struct{}
	control  *os.File
	messages *tail
}

// place is a file system that is watched or held.
type place struct {
	dir           string
	watched, held bool
}

// ErrEnded means that the gate process has ended: nothing is held.
var ErrEnded = errors.New("the gate process has ended, and everything passes")

// Start starts a gate. It holds nothing yet. The context bounds the start only.
func Start(ctx context.Context, o Options) (*Gate, error) {
	g, err := start(o)
	if err != nil {
		return nil, fmt.Errorf("start the gate: %w", err)
	}
	select {
	case <-g.hello:
	case <-g.ended:
		return nil, fmt.Errorf("start the gate: %w", g.Err())
	case <-ctx.Done():
		g.Close()
		return nil, fmt.Errorf("start the gate: no answer from the gate process: %w", ctx.Err())
	}
	if err := g.record(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the gate: %w", err), g.Close())
	}
	if err := g.Pass(nil); err != nil {
		return nil, errors.Join(fmt.Errorf("start the gate: %w", err), g.Close())
	}
	return g, nil
}

func start(o Options) (*Gate, error) {
	if o.Held == nil {
		return nil, errors.New("Options.Held is missing")
	}
	if o.HoldAtMost == 0 {
		o.HoldAtMost = 30 * time.Second
	}
	if o.HoldAtMost < time.Second || o.HoldAtMost > time.Hour {
		return nil, fmt.Errorf("Options.HoldAtMost is %v: want 1 s to 1 h", o.HoldAtMost)
	}
	command, err := joinCommand(append(append([]string(nil), o.Command...), RoleGate))
	if err != nil || len(o.Command) == 0 {
		return nil, errors.Join(errors.New("Options.Command must have the program and its arguments"), err)
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o.Protected = append([]string{executable, o.Command[0], filepath.Dir(executable)}, o.Protected...)

	mine, theirs, err := socketPair("gate")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	control, theirControl, err := socketPair("supervisor")
	if err != nil {
		mine.Close()
		return nil, err
	}
	defer theirControl.Close()
	generic, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		control.Close()
		return nil, err
	}
	g := &Gate{
		options: o, conn: generic.(*net.UnixConn), control: control,
		ended: make(chan struct{}), hello: make(chan struct{}),
		calls: map[uint64]chan string{}, places: map[uint64]*place{}, messages: &tail{},
	}
	cmd := exec.Command(o.Command[0], append(append([]string(nil), o.Command[1:]...), RoleSupervisor)...)
	cmd.ExtraFiles = []*os.File{theirs, theirControl}
	cmd.Stderr = g.messages
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // the gate process, which writes there too, ends with the supervisor
	cmd.Env = append(os.Environ(), "GOMAXPROCS=", "GOTRACEBACK=single")
	if o.ReadsOnly {
		cmd.Env = append(cmd.Env, readsOnlyVariable+"=1")
	}
	// A session of its own: signals from the daemon's terminal do not reach the two processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	started := make(chan error)
	go g.parent(cmd, started)
	if err := <-started; err != nil {
		g.conn.Close()
		control.Close()
		return nil, fmt.Errorf("start the gate's supervisor: %w", err)
	}
	if _, err := control.Write(command); err != nil {
		g.kill()
		return nil, fmt.Errorf("send the command to the gate's supervisor: %w", err)
	}
	go g.receive()
	go g.beat()
	return g, nil
}

// socketPair returns the two ends of a socket that preserves the boundaries of messages.
func socketPair(name string) (mine, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range pair {
		for _, option := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketBytes); err != nil {
				return nil, nil, errors.Join(fmt.Errorf("enlarge the socket's buffer: %w; it needs CAP_NET_ADMIN", err),
					unix.Close(pair[0]), unix.Close(pair[1]))
			}
		}
	}
	return os.NewFile(uintptr(pair[0]), name), os.NewFile(uintptr(pair[1]), name), nil
}

// parent starts the supervisor and waits for its end. The kernel ends the supervisor when the thread that
// has started it ends, so parent keeps that thread.
func (g *Gate) parent(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	err := cmd.Start()
	if err == nil {
		g.supervisor = cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	err = cmd.Wait()
	g.mu.Lock()
	if text := g.messages.text(); text != "" && !g.closing {
		err = errors.Join(err, errors.New(text))
	}
	g.err = fmt.Errorf("%w: %w", ErrEnded, orEnd(err))
	for seq, answer := range g.calls {
		close(answer)
		delete(g.calls, seq)
	}
	g.mu.Unlock()
	g.conn.Close()
	g.control.Close()
	g.files.clear()
	close(g.ended)
}

func orEnd(err error) error {
	if err == nil {
		return errors.New("the gate's supervisor has ended")
	}
	return err
}

// kill ends both processes.
func (g *Gate) kill() {
	g.mu.Lock()
	process := g.process
	g.mu.Unlock()
	if process != 0 {
		// The supervisor has not been waited for while the gate process is its child.
		unix.Kill(process, unix.SIGKILL)
	}
	unix.Kill(g.supervisor, unix.SIGKILL)
	<-g.ended
}

// record enters the two processes into the journal, so that the next start ends those that a crash has
// left.
func (g *Gate) record() error {
	if g.options.Journal == nil {
		return nil
	}
	for target, pid := range g.targets() {
		start, err := startOf(pid)
		if err != nil {
			return fmt.Errorf("read the start time of the %s: %w", target, err)
		}
		change := journal.Change{
			Mechanism: Mechanism, Target: target, After: process{pid, start}.String(),
			Why: "holds file I/O of processes without an agent",
		}
		if err := g.options.Journal.Make(change, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gate) targets() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return map[string]int{"supervisor of the gate": g.supervisor, "gate process": g.process}
}

// Close ends the gate. All held operations pass.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	g.conn.Close() // then the gate process ends, and after it the supervisor
	select {
	case <-g.ended:
	case <-time.After(callLimit):
		g.kill()
	}
	g.files.closer.wait(callLimit) // so that file systems can be unmounted
	if g.options.Journal == nil {
		return nil
	}
	var errs []error
	for target := range g.targets() {
		errs = append(errs, g.options.Journal.PutBack(Mechanism, target))
	}
	return errors.Join(errs...)
}

// Done returns a channel that is closed when the gate has ended, for any reason. Nothing is held then.
func (g *Gate) Done() <-chan struct{} { return g.ended }

// Err returns why the gate has ended, or nil while it runs.
func (g *Gate) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Ranged reports whether requests have ranges and writes are held, which needs Linux 6.14.
func (g *Gate) Ranged() bool { return g.ranged }

// Missing returns the names of the protections that the system does not permit the gate process, for a
// warning; it is empty if there are none. The gate works without them, but a lack of memory or CPU time
// may end it.
func (g *Gate) Missing() string { return g.missing }

// Stats returns the counters of the last heartbeat's answer, which are about 100 ms old at most while the
// gate works. Operations that the daemon has allowed for lack of their file are added.
func (g *Gate) Stats() Stats {
	g.statsMu.Lock()
	defer g.statsMu.Unlock()
	stats := g.stats
	stats.LetGoFull += g.fileless
	return stats
}

// Watch prepares the file system of dir: files that are opened from now on can be held later. It
// adds a fraction of a microsecond to each operation on the file system, and causes no event.
func (g *Gate) Watch(dir string) error { return g.prepare(dir, func(p *place) { p.watched = true }) }

// Mark holds the operations of selected processes on the file system of dir. It fails with ErrRefused
// if the daemon or the system needs the file system to make progress.
func (g *Gate) Mark(dir string) error { return g.prepare(dir, func(p *place) { p.held = true }) }

// Unmark ends Mark. Operations that wait pass. Requests that are on their way to Held must still be
// answered. If the file system is watched, it stays watched.
func (g *Gate) Unmark(dir string) error { return g.end(dir, func(p *place) { p.held = false }) }

// Unwatch ends Watch and, if the file system is marked, Mark.
func (g *Gate) Unwatch(dir string) error { return g.end(dir, func(p *place) { *p = place{} }) }

func (g *Gate) prepare(dir string, change func(*place)) error {
	f, err := openPlace(dir, g.options.Protected)
	if err != nil {
		return err
	}
	defer f.Close()
	return g.place(dir, f, change)
}

// end ends a mark or the watching. It does nothing on a file system that has neither. A file system
// that has been unmounted has lost its marks.
func (g *Gate) end(dir string, change func(*place)) error {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|os.O_RDONLY, 0)
	if err == nil {
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return fmt.Errorf("release the file system of %s: %w", dir, err)
		}
		g.mu.Lock()
		known := g.places[st.Dev] != nil
		g.mu.Unlock()
		if known {
			return g.place(dir, f, change)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release the file system of %s: %w", dir, err)
	}
	g.mu.Lock()
	var gone []uint64
	for dev, p := range g.places {
		if p.dir == dir {
			delete(g.places, dev)
			gone = append(gone, dev)
		}
	}
	g.mu.Unlock()
	for _, dev := range gone {
		g.files.forget(dev)
	}
	return nil
}

func (g *Gate) place(dir string, f *os.File, change func(*place)) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("hold the file system of %s: %w", dir, err)
	}
	g.mu.Lock()
	p := place{}
	if known := g.places[st.Dev]; known != nil {
		p = *known
	}
	g.mu.Unlock()
	change(&p)
	p.dir = dir
	if err := g.mark(&p, f); err != nil {
		return fmt.Errorf("hold the file system of %s: %w", dir, err)
	}
	g.mu.Lock()
	if p.watched || p.held {
		g.places[st.Dev] = &p
		g.mu.Unlock()
		return nil
	}
	delete(g.places, st.Dev)
	g.mu.Unlock()
	g.files.forget(st.Dev)
	return nil
}

func (g *Gate) mark(p *place, f *os.File) error {
	what := actionRemove
	switch {
	case p.held:
		what = actionHold
	case p.watched:
		what = actionWatch
	}
	return g.call(func(seq uint64) []byte { return append(appendU64([]byte{frameMark}, seq), byte(what)) }, f)
}

// markAgain sets the marks again after the gate process has removed them.
func (g *Gate) markAgain() {
	g.mu.Lock()
	var again []place
	for _, p := range g.places {
		again = append(again, *p)
	}
	g.mu.Unlock()
	for _, p := range again {
		f, err := openPlace(p.dir, g.options.Protected)
		if err != nil {
			continue // it is no longer mounted
		}
		g.mark(&p, f) // after a failure, Err or the counters of Stats show that nothing is held
		f.Close()
	}
}

// Classes replaces the rules. New rules apply at once. If a process changes its user, control group or
// command, the gate notices that within a second.
func (g *Gate) Classes(rules []Rule) error {
	if len(rules) > MaxRules {
		return fmt.Errorf("set the gate's rules: there are %d, and at most %d are possible", len(rules), MaxRules)
	}
	for _, r := range rules {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	return g.call(func(seq uint64) []byte { return appendRules(nil, seq, rules) }, nil)
}

// Pass replaces the list of processes that pass, whatever the rules say. The calling process is always in
// that list.
// After Pass and Classes, the gate examines each thread again.
func (g *Gate) Pass(pids []int) error {
	if len(pids) > MaxPasses-1 {
		return fmt.Errorf("set the gate's pass list: it has %d processes, and at most %d are possible", len(pids), MaxPasses-1)
	}
	pids = append([]int{os.Getpid()}, pids...)
	return g.call(func(seq uint64) []byte { return appendPass(nil, seq, pids) }, nil)
}

// Allow lets the operations of requests pass. It ignores the id of an operation that does not wait.
func (g *Gate) Allow(ids ...uint64) error {
	var room [256]byte
	for len(ids) > 0 {
		n := min(len(ids), maxAllows)
		frame := append(room[:0], frameAllow)
		for _, id := range ids[:n] {
			frame = appendU64(frame, id)
		}
		ids = ids[n:]
		if err := g.send(frame, nil); err != nil {
			return err
		}
	}
	return nil
}

// call sends a frame and waits for the answer.
func (g *Gate) call(frame func(seq uint64) []byte, f *os.File) error {
	answer := make(chan string, 1)
	g.mu.Lock()
	if g.err != nil {
		defer g.mu.Unlock()
		return g.err
	}
	g.seq++
	seq := g.seq
	g.calls[seq] = answer
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.calls, seq)
		g.mu.Unlock()
	}()
	if err := g.send(frame(seq), f); err != nil {
		return err
	}
	late := time.NewTimer(callLimit)
	defer late.Stop()
	select {
	case why, ok := <-answer:
		if !ok {
			return ErrEnded
		}
		if why != "" {
			return errors.New(why)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("no answer from the gate process within %v", callLimit)
	}
}

func (g *Gate) send(frame []byte, f *os.File) error {
	var oob []byte
	if f != nil {
		oob = rights(int(f.Fd()))
	}
	if _, _, err := g.conn.WriteMsgUnix(frame, oob, nil); err != nil {
		select {
		case <-g.ended:
			return g.Err()
		default:
			return fmt.Errorf("send to the gate process: %w", err)
		}
	}
	return nil
}

// beat sends heartbeats, and ends the gate if the gate process does not answer them.
func (g *Gate) beat() {
	every := time.NewTicker(beatPeriod)
	defer every.Stop()
	oldest := uint32(g.options.HoldAtMost / tick)
	for seq := uint64(1); ; seq++ {
		g.conn.SetWriteDeadline(time.Now().Add(callLimit))
		if g.options.Alive == nil || g.options.Alive() {
			g.statsMu.Lock()
			g.silent++
			late := g.silent > pongLimit
			g.statsMu.Unlock()
			if late {
				g.kill()
				return
			}
			g.send(appendU32(appendU64([]byte{frameBeat}, seq), oldest), nil)
		}
		g.files.sweep()
		select {
		case <-every.C:
		case <-g.ended:
			return
		}
	}
}

// receive reads the gate's frames.
func (g *Gate) receive() {
	frame, oob := make([]byte, 4<<10), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, flags, _, err := g.conn.ReadMsgUnix(frame, oob)
		if err != nil || n == 0 {
			return // the supervisor ends, too
		}
		fd := descriptorIn(oob[:oobn])
		lost := flags&unix.MSG_CTRUNC != 0 // this process has reached its limit of open files
		if err := g.frame(frame[0], frame[1:n], fd, lost); err != nil {
			g.fail(err)
			return
		}
	}
}

func (g *Gate) fail(err error) {
	fmt.Fprintf(g.messages, "the daemon cannot read a message of the gate process: %v\n", err)
	g.conn.Close()
}

// frame handles a frame of the gate process. fd is the descriptor that came with it, or -1; lost reports
// whether a descriptor was sent and could not be received.
func (g *Gate) frame(kind byte, body []byte, fd int, lost bool) error {
	if kind == frameRequest {
		return g.request(body, fd, lost)
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	in := reader{b: body}
	switch kind {
	case frameHello:
		pid := in.u32()
		g.ranged, g.missing = in.u8() != 0, in.text()
		if err := in.end(); err != nil {
			return err
		}
		g.mu.Lock()
		known := g.process != 0
		g.process = int(pid)
		g.mu.Unlock()
		if known {
			return errors.New("a second greeting")
		}
		close(g.hello)
		return nil
	case framePong:
		var stats Stats
		in.u64()
		stats.parse(&in)
		if err := in.end(); err != nil {
			return err
		}
		g.statsMu.Lock()
		again := stats.Openings > g.stats.Openings
		g.stats, g.silent = stats, 0
		g.pongs++
		g.statsMu.Unlock()
		if again {
			go g.markAgain()
		}
		return nil
	case frameDone:
		seq, why, err := parseDone(body)
		if err != nil {
			return err
		}
		g.mu.Lock()
		if answer := g.calls[seq]; answer != nil {
			answer <- why
			delete(g.calls, seq)
		}
		g.mu.Unlock()
		return nil
	}
	return fmt.Errorf("a frame of the unknown kind %q", kind)
}

// request calls Held for an operation, with its file. If the file cannot be received, request allows the
// operation.
func (g *Gate) request(body []byte, fd int, lost bool) error {
	r, err := parseRequest(body)
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return err
	}
	key := fileKey{r.Dev, r.Inode}
	r.File = g.files.get(key, fd)
	if r.File == nil && fd < 0 {
		if asked := &g.asked[r.ID%maxHeld]; !lost && *asked != r.ID {
			// The cache no longer has the file. The gate process sends the request again, with the file.
			*asked = r.ID
			return g.send(appendU64([]byte{frameFile}, r.ID), nil)
		}
		g.statsMu.Lock()
		g.fileless++
		g.statsMu.Unlock()
		return g.Allow(r.ID)
	}
	g.options.Held(r)
	if r.File != nil {
		r.File.Release()
	}
	return nil
}
