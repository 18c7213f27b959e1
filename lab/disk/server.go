package disk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/lab/ledger"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The server process provides a FUSE mount with two files. `disk` is the image for the loop device.
// `control` accepts orders, one JSON object per write, and shows the model in force. Orders through
// a file need no socket and no port. The file's permissions control who can give orders. When the
// write of an order returns, the order has been carried out; only a request that the disk's head serves
// takes up to 50 ms more to end when the model is turned off.
const (
	imageName   = "disk"
	controlName = "control"
)

// serveConfig is the server's configuration.
type serveConfig struct {
	Name        string `json:"name"`
	RunDir      string `json:"run_dir"`
	Backing     string `json:"backing"` // sparse file with the disk's size
	MountPoint  string `json:"mount_point"`
	LogPath     string `json:"log_path"` // "": no log
	LogBytesMax int64  `json:"log_bytes_max"`
	Model       Model  `json:"model"`
}

// order is a command that is written to the control file.
type order struct {
	Model   *Model `json:"model,omitempty"`
	SyncLog bool   `json:"sync_log,omitempty"`
}

// The hidden commands with which this package runs its own binary.
const (
	commandGroup   = "disk"
	serveCommand   = "serve"   // CONFIG: run as a disk's server
	recoverCommand = "recover" // DIR: undo the changes of the dead run in DIR
)

// ServeIfChild checks whether the process was started as a disk's server. If so, it runs the server
// and ends the process. Start executes its own binary as the server, so the main function of a
// command that starts disks, and the TestMain of tests that do, must call ServeIfChild first.
func ServeIfChild() {
	if len(os.Args) != 4 || os.Args[1] != commandGroup {
		return
	}
	var err error
	switch os.Args[2] {
	case serveCommand:
		err = Serve(os.Args[3], os.Stdin, os.Stdout)
	case recoverCommand:
		err = RecoverDead(os.Args[3])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "penstock:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// lockPatience is how long RecoverDead waits for the lock of a run whose process has ended. The
// kernel closes the process's files one by one. So the server can notice the end before the lock is
// free. On a busy machine it notices the end a second or more before that, because the server has
// the higher priority.
const lockPatience = 20 * time.Second

// RecoverDead calls Recover for a run whose process has ended. The run's lock may still be held for
// a short time, by that process or by another server's recovery. It may also be held for a long
// time, by a new run in the same folder that has already recovered the old one. So RecoverDead
// tries again for lockPatience. A lock that is still held after that is not an error.
func RecoverDead(runDir string) error {
	deadline := time.Now().Add(lockPatience)
	for {
		err := ledger.Recover(runDir)
		if !errors.Is(err, ledger.ErrInUse) {
			return err
		}
		if time.Now().After(deadline) {
			return nil
		}
		time.Sleep(20 * time.Millisecond) // the lock sends no event, and a blocking wait could last forever
	}
}

// watchParent waits until the parent ends, which closes the pipe, and then starts the recovery of
// the run: kernel parameters must not stay changed after a kill -9. A separate process does this,
// because the recovery ends the server.
func watchParent(parent io.Reader, runDir string) {
	io.Copy(io.Discard, parent)
	binary, err := os.Executable()
	if err == nil {
		cmd := exec.Command(binary, commandGroup, recoverCommand, runDir)
		cmd.Env = []string{childVariable + "=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "penstock: recover the run of the parent process, which has ended:", err)
	}
}

// Serve runs a disk's server until its mount is removed. config is JSON.
//
// Before it changes anything, Serve reads a line from in. When that line arrives, the parent has
// recorded the process in the run's ledger. If the parent dies earlier, the server ends too. If the
// parent dies later, the server starts the recovery of the whole run (watchParent), and continues
// to serve until the recovery removes the server's mount. Without its server, a disk's file system
// would only return errors and could not write back. Serve writes "ready" to out when the disk can
// be used.
func Serve(config string, in io.Reader, out io.Writer) error {
	var c serveConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return fmt.Errorf("parse the server's configuration: %w", err)
	}
	parent := bufio.NewReader(in)
	if _, err := parent.ReadString('\n'); err != nil {
		return errors.New("the parent ended before the disk was started")
	}
	// Termination signals are meant for the parent, which stops the disk in the right order. The
	// server ends when its mount has been removed and its log is completely written.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	// A modelled disk must answer on time even if the experiment uses every CPU.
	preferThreads()
	backing, err := os.OpenFile(c.Backing, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := backing.Stat()
	if err != nil {
		return err
	}
	d := &device{backing: backing, size: info.Size()}
	if c.LogPath != "" {
		if d.log, err = createLog(c.LogPath, c.LogBytesMax); err != nil {
			return err
		}
	}
	d.wake = sync.NewCond(&d.mu)
	if d.alarm, err = newAlarm(); err != nil {
		return err
	}
	if err := d.setModel(c.Model); err != nil {
		return err
	}
	go d.run()
	go d.answer()
	go d.log.keepFlushing()
	server, err := fs.Mount(c.MountPoint, &rootNode{device: d}, &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName:            "penstock-" + c.Name,
			Name:              "penstockdisk",
			DirectMountStrict: true,
			// FUSE's queue holds more requests than that of the loop device, and FUSE does not merge
			// requests.
			MaxBackground:     1024,
			MaxWrite:          1 << 20,
			ExtraCapabilities: fuse.CAP_ASYNC_DIO, // otherwise requests are served one by one
			DisableSplice:     true,               // 1 MiB does not fit into the pipes that splice uses
			DisableXAttrs:     true,
		},
	})
	if err != nil {
		return fmt.Errorf("mount the disk's image at %s: %w", c.MountPoint, err)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		server.Unmount()
		return err
	}
	go watchParent(parent, c.RunDir)
	server.Wait()
	return d.log.close()
}

// device is the running disk: the arm or the channels, their clock, and the bytes.
type device struct {
	backing *os.File
	size    int64
	log     *requestLog

	off       atomic.Bool  // the model is off: requests do not wait in a queue
	turnedOff atomic.Int64 // how often the model was turned off

	mu    sync.Mutex
	model Model

	arm  arm // for a model with one head
	wake *sync.Cond

	channels channels // for a model with channels
	underway underway
	alarm    *alarm
}

func (d *device) setModel(m Model) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if m.Channels == 0 && m.CapacityBytes == 0 {
		m.CapacityBytes = d.size
	}
	d.mu.Lock()
	d.model, d.arm.model, d.channels = m, m, newChannels(m)
	d.off.Store(m.Off())
	var released []*request
	if m.Off() {
		// The next order may turn the model on again at once, so no request is left to another goroutine
		// that would then see the new model. Only run ends the request in service.
		released = append(d.underway, d.arm.stop()...)
		d.underway = nil
		d.turnedOff.Add(1)
	}
	d.mu.Unlock()
	for _, r := range released {
		d.release(r)
	}
	return nil
}

// release ends a request now, because the model was turned off.
func (d *device) release(r *request) {
	r.ended, r.service = Monotonic(), 0
	d.finish(r)
}

// serve blocks the caller for the time that the disk takes for the request. The request is in the
// log before it is answered.
func (d *device) serve(op Op, arrived, offset, length int64) {
	if op == Discard || d.off.Load() {
		d.log.add(Record{Submitted: arrived, Ended: Monotonic(), Offset: offset, Length: length, Op: op})
		return
	}
	r := &request{op: op, offset: offset, length: length, arrived: arrived, done: make(chan struct{})}
	d.mu.Lock()
	switch {
	case d.model.Off(): // turned off a moment ago
		d.mu.Unlock()
		d.release(r)
		return
	case d.model.Channels > 0:
		d.accept(r)
	default:
		d.arm.submit(r)
		d.wake.Signal()
	}
	d.mu.Unlock()
	<-r.done
}

// run drives the arm. It has its own thread and sleeps with the kernel's clock, because the
// runtime's timers are up to a millisecond late.
func (d *device) run() {
	runtime.LockOSThread()
	for {
		d.mu.Lock()
		var r *request
		for {
			if r = d.arm.next(Monotonic()); r != nil {
				break
			}
			d.wake.Wait()
		}
		turnedOff := d.turnedOff.Load()
		d.mu.Unlock()
		if d.sleepUntil(r.ended, turnedOff) {
			d.finish(r)
		} else {
			d.release(r)
		}
	}
}

// sleepUntil returns true at the given time. It returns false within 50 ms after the model was turned
// off again, that is, more than turnedOff times.
func (d *device) sleepUntil(end, turnedOff int64) bool {
	const slice = int64(50 * time.Millisecond)
	for now := Monotonic(); now < end; now = Monotonic() {
		if d.turnedOff.Load() != turnedOff {
			return false
		}
		until := unix.NsecToTimespec(min(end, now+slice))
		unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil)
	}
	return true
}

func (d *device) obey(data []byte) error {
	var o order
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	if o.Model != nil {
		if err := d.setModel(*o.Model); err != nil {
			return err
		}
	}
	if o.SyncLog {
		if err := d.log.flush(); err != nil {
			return err
		}
		return d.log.complete()
	}
	return nil
}

func (d *device) state() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, _ := json.Marshal(order{Model: &d.model})
	return append(text, '\n')
}

// rootNode is the folder of the FUSE mount.
type rootNode struct {
	fs.Inode
	device *device
}

var _ = (fs.NodeOnAdder)((*rootNode)(nil))

func (n *rootNode) OnAdd(ctx context.Context) {
	image := n.NewPersistentInode(ctx, &imageNode{device: n.device}, fs.StableAttr{Mode: syscall.S_IFREG})
	n.AddChild(imageName, image, false)
	control := n.NewPersistentInode(ctx, &controlNode{device: n.device}, fs.StableAttr{Mode: syscall.S_IFREG})
	n.AddChild(controlName, control, false)
}

// imageNode is the file with the disk's bytes.
type imageNode struct {
	fs.Inode
	device *device
}

var (
	_ = (fs.NodeGetattrer)((*imageNode)(nil))
	_ = (fs.NodeSetattrer)((*imageNode)(nil))
	_ = (fs.NodeOpener)((*imageNode)(nil))
	_ = (fs.NodeReader)((*imageNode)(nil))
	_ = (fs.NodeWriter)((*imageNode)(nil))
	_ = (fs.NodeFsyncer)((*imageNode)(nil))
	_ = (fs.NodeAllocater)((*imageNode)(nil))
)

func (n *imageNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o600
	out.Size = uint64(n.device.size)
	out.Blksize = 4096
	return 0
}

func (n *imageNode) Setattr(ctx context.Context, f fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return n.Getattr(ctx, f, out) // a disk's size is fixed, and it has no timestamps
}

func (n *imageNode) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, 0
}

func (n *imageNode) Read(_ context.Context, _ fs.FileHandle, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	arrived := Monotonic()
	read, err := n.device.backing.ReadAt(dest, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fs.ToErrno(err)
	}
	if read > 0 {
		n.device.serve(Read, arrived, offset, int64(read))
	}
	return fuse.ReadResultData(dest[:read]), 0
}

func (n *imageNode) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	arrived := Monotonic()
	if offset+int64(len(data)) > n.device.size {
		return 0, syscall.ENOSPC
	}
	written, err := n.device.backing.WriteAt(data, offset)
	if err != nil {
		return uint32(written), fs.ToErrno(err)
	}
	n.device.serve(Write, arrived, offset, int64(written))
	return uint32(written), 0
}

// Fsync is the disk's flush command. A write is answered only when it is on the medium, so there is
// nothing to flush.
func (n *imageNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Allocate is called for discards and for writes of zeros. It frees the backing memory of deleted
// files.
func (n *imageNode) Allocate(_ context.Context, _ fs.FileHandle, offset, size uint64, mode uint32) syscall.Errno {
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return syscall.EOPNOTSUPP
	}
	arrived := Monotonic()
	err := unix.Fallocate(int(n.device.backing.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(size))
	if err != nil {
		return fs.ToErrno(err)
	}
	n.device.serve(Discard, arrived, int64(offset), int64(min(size, 1<<32-1)))
	return 0
}

// controlNode is the control file, which accepts orders.
type controlNode struct {
	fs.Inode
	device *device
}

var (
	_ = (fs.NodeGetattrer)((*controlNode)(nil))
	_ = (fs.NodeSetattrer)((*controlNode)(nil))
	_ = (fs.NodeOpener)((*controlNode)(nil))
	_ = (fs.NodeReader)((*controlNode)(nil))
	_ = (fs.NodeWriter)((*controlNode)(nil))
)

func (n *controlNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o600
	return 0
}

func (n *controlNode) Setattr(ctx context.Context, f fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return n.Getattr(ctx, f, out)
}

func (n *controlNode) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (n *controlNode) Read(_ context.Context, _ fs.FileHandle, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	text := n.device.state()
	from := min(offset, int64(len(text)))
	return fuse.ReadResultData(text[from:min(int(from)+len(dest), len(text))]), 0
}

func (n *controlNode) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	if err := n.device.obey(data); err != nil {
		fmt.Fprintln(os.Stderr, "penstock: order refused:", err)
		if errors.Is(err, errLogFull) {
			return 0, syscall.ENOSPC
		}
		return 0, syscall.EINVAL
	}
	return uint32(len(data)), 0
}

// preferThreads gives all threads of the process a higher CPU priority; new threads inherit it.
// Without the right to do so, the disk is less accurate.
func preferThreads() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			unix.Setpriority(unix.PRIO_PROCESS, id, -20)
		}
	}
}
