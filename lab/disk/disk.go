// Package disk provides a disk of known speed. Requests really compete for the disk. Its speed
// follows a model and its bytes are in memory, so it is equally fast on every machine.
//
// A server process implements a file through FUSE. It delays each read and write according to a
// model: a hard disk (model.go: one head, seeks by distance, one budget for reads and writes) or a
// solid-state disk (channels.go: a knee in throughput, writes slower than reads). A loop device
// with direct I/O turns the file into a block device, and ext4 or xfs is on top of it. Everything above
// the model is the kernel's own: page cache, readahead, writeback and I/O scheduler. Limits of
// cgroups were tried instead. A device with such limits does not behave like a disk: reads and
// writes have separate budgets, and there are no seeks.
//
// The model runs on a virtual clock. If the server wakes up late, its answer is late, but in the
// model the next request still begins at the end of the previous one. So as long as requests wait,
// the throughput is the model's. Service times of a millisecond and more are accurate. Compare
// ratios, not microseconds.
//
// The disk logs each request with its cost (log.go). Package judge joins the log with the extents
// of files to find the owner of each request. It uses nothing from the code whose shares it judges.
// IBIS (section 7.1) used the real disks of eight nodes.
//
// Each change of the system is recorded in the run's ledger before it is made. If the process that
// started the disk dies, the server undoes these changes. Without root or /dev/fuse, Open returns a
// plain folder, and Modelled returns false.
package disk

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"penstock/lab/ledger"

	"golang.org/x/sys/unix"
)

// Options describe a disk.
type Options struct {
	// Name must be unique within the run. It consists of letters, digits, '-' and '_'.
	Name string
	// RunDir is the run's folder. It contains the ledger, the log and the mount points.
	RunDir string
	// Size is in bytes, a multiple of 1 MiB, at least 16 MiB. Memory is used only for written data.
	Size  int64
	Model Model
	// Scheduler is the I/O scheduler of the block device: none, mq-deadline, bfq or kyber. Default
	// mq-deadline.
	Scheduler string
	// ReadaheadKB is the kernel's readahead in KiB. Default 128, the kernel's default.
	ReadaheadKB int
	// RequestKB is the size of the largest request that the disk accepts, in KiB, 64 to 1024.
	// Default 1024. A disk that is slow for its kind needs smaller requests. Otherwise a read waits
	// in a full queue far longer than on a real disk.
	RequestKB int
	// QueueDepth is the number of requests that the disk accepts at the same time; further requests
	// wait in the kernel. Default 32, as in native command queueing; at most 128.
	QueueDepth int
	// Partitions is the number of partitions, 2 to 15, all of equal size and each with a file system
	// of its own. With 0, the default, one file system fills the disk. Package judge does not know
	// partitions, because the offsets in the request log are offsets on the disk.
	Partitions int
	// FileSystem is the kind of file system: ext4 (default), or xfs, of at least 300 MiB.
	FileSystem string
	// BackingDir is the folder of the file that contains the disk's bytes. Default /dev/shm, which
	// is in memory, so no real disk affects the measurement.
	BackingDir string
	// LogPath is the path of the request log. Default: NAME.log in the run's folder.
	LogPath string
	// LogBytesMax bounds the request log, in bytes. Requests beyond it are only counted. Default
	// 256 MiB, about 6.7 million requests.
	LogBytesMax int64
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

func (o *Options) validate() error {
	if !nameRule.MatchString(o.Name) {
		return fmt.Errorf("disk name %q: want 1 to 32 letters, digits, '-' and '_'", o.Name)
	}
	if o.RunDir == "" {
		return errors.New("a disk needs a run folder")
	}
	var err error
	if o.RunDir, err = filepath.Abs(o.RunDir); err != nil {
		return err
	}
	if o.Size < 16<<20 || o.Size%(1<<20) != 0 {
		return fmt.Errorf("disk size %d: want a multiple of 1 MiB, at least 16 MiB", o.Size)
	}
	if o.Scheduler == "" {
		o.Scheduler = "mq-deadline"
	}
	if o.ReadaheadKB == 0 {
		o.ReadaheadKB = 128
	}
	if o.RequestKB == 0 {
		o.RequestKB = requestKB
	}
	if o.RequestKB < 64 || o.RequestKB > requestKB {
		return fmt.Errorf("requests of at most %d KiB: want 64 to %d", o.RequestKB, requestKB)
	}
	if o.QueueDepth == 0 {
		o.QueueDepth = 32
	}
	if o.QueueDepth < 1 || o.QueueDepth > 128 {
		return fmt.Errorf("queue depth %d: want 1 to 128", o.QueueDepth)
	}
	if o.Partitions != 0 && (o.Partitions < 2 || o.Partitions > maxPartitions) {
		return fmt.Errorf("%d partitions: want 2 to %d, or 0 for none", o.Partitions, maxPartitions)
	}
	if o.Partitions > 0 && o.partitionBytes() < partitionMin {
		return fmt.Errorf("%d partitions of a disk of %d MiB: each must have at least %d MiB", o.Partitions, o.Size>>20, partitionMin>>20)
	}
	switch o.FileSystem {
	case "":
		o.FileSystem = "ext4"
	case "ext4", "xfs":
	default:
		return fmt.Errorf("file system %q: want ext4 or xfs", o.FileSystem)
	}
	if o.BackingDir == "" {
		o.BackingDir = "/dev/shm"
	}
	if o.LogPath == "" {
		o.LogPath = filepath.Join(o.RunDir, o.Name+".log")
	}
	if o.LogPath, err = filepath.Abs(o.LogPath); err != nil {
		return err
	}
	if o.LogBytesMax == 0 {
		o.LogBytesMax = 256 << 20
	}
	if o.LogBytesMax < 1<<10 {
		return fmt.Errorf("a request log of %d bytes: want at least 1 KiB", o.LogBytesMax)
	}
	return o.Model.Validate()
}

// ErrNotModelled means that an operation needs a modelled disk, and the disk is a plain folder.
var ErrNotModelled = errors.New("this is a plain folder, not a modelled disk")

// Available returns the reason why this machine cannot have a modelled disk; nil if it can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("modelled disks need root (to mount and to attach loop devices)")
	}
	for _, node := range []string{"/dev/fuse", "/dev/loop-control"} {
		file, err := os.OpenFile(node, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("modelled disks need %s: %w", node, err)
		}
		file.Close()
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return fmt.Errorf("modelled disks need mkfs.ext4 (package e2fsprogs): %w", err)
	}
	return nil
}

// Disk is a mounted disk, or a plain folder that replaces it.
type Disk struct {
	options Options
	reason  error // why this is a plain folder; nil for a modelled disk

	folder  string // contains the two mount points
	mount   string // mount point of the file system; those of partitions have a number appended
	fuse    string // mount point of the server's two files
	device  string // /dev/loopN
	logPath string

	ledger  *ledger.Ledger
	changes []ledger.ID
	server  *exec.Cmd
	alive   io.Closer // pipe to the server; when it closes, the server knows that this process has ended
	exited  chan struct{}
}

// Open starts a modelled disk if this is possible, and otherwise returns a plain folder. Modelled
// reports which of the two it is.
func Open(ctx context.Context, o Options) (*Disk, error) {
	if reason := Available(); reason != nil {
		return folder(o, reason)
	}
	return Start(ctx, o)
}

func folder(o Options, reason error) (*Disk, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	d := &Disk{options: o, reason: reason, mount: filepath.Join(o.RunDir, o.Name, "fs")}
	for _, mount := range d.Mounts() {
		if err := os.MkdirAll(mount, 0o755); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// childVariable marks a server process in its environment. It stops a binary that does not call
// ServeIfChild from starting itself again and again.
const childVariable = "PENSTOCK_DISK_SERVER"

// Start makes a modelled disk with an empty file system and mounts it. ctx bounds only the
// start. If Start fails, it undoes everything.
func Start(ctx context.Context, o Options) (_ *Disk, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if os.Getenv(childVariable) != "" {
		return nil, errors.New("this process was started as a disk's server, but does not run it: call disk.ServeIfChild first in main or TestMain")
	}
	if err := Available(); err != nil {
		return nil, err
	}
	if err := roomFor(o); err != nil {
		return nil, err
	}
	l, err := ledger.Open(o.RunDir)
	if err != nil {
		return nil, err
	}
	d := &Disk{
		options: o,
		ledger:  l,
		folder:  filepath.Join(o.RunDir, o.Name),
		mount:   filepath.Join(o.RunDir, o.Name, "fs"),
		fuse:    filepath.Join(o.RunDir, o.Name, "image"),
		logPath: o.LogPath,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop())
		}
	}()
	steps := []func(context.Context) error{d.shareFolder, d.startServer, d.attach, d.partition, d.format, d.mountFileSystems}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("disk %s: %w", o.Name, err)
		}
	}
	return d, d.SetModel(o.Model)
}

// roomFor returns an error if the disk could fill its backing folder. The disk's file system would
// then fail in ways that no test intends.
func roomFor(o Options) error {
	var st unix.Statfs_t
	if err := unix.Statfs(o.BackingDir, &st); err != nil {
		return fmt.Errorf("backing folder %s: %w", o.BackingDir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < o.Size {
		return fmt.Errorf("%s has %d MiB left, and the disk may need %d MiB: make the disk smaller or choose another backing folder",
			o.BackingDir, free>>20, o.Size>>20)
	}
	return nil
}

// change adds the id of a recorded change to those that Stop undoes. If change returns an error,
// the caller must not make the change.
func (d *Disk) change(id ledger.ID, err error) error {
	if err == nil && id != 0 {
		d.changes = append(d.changes, id)
	}
	return err
}

// shareFolder turns the disk's folder into a mount point, and shares the mounts below it: other
// mount namespaces see mounts and unmounts there. Otherwise a process with its own mount namespace
// (a daemon started by unshare or systemd) would keep its copy of the disk's mount until the
// process ends, and the copy would keep the loop device and the server in use.
func (d *Disk) shareFolder(context.Context) error {
	if err := d.change(d.ledger.Remove(d.folder)); err != nil {
		return err
	}
	if err := os.MkdirAll(d.folder, 0o755); err != nil {
		return err
	}
	if err := d.change(d.ledger.Bind(d.folder)); err != nil {
		return err
	}
	if err := unix.Mount(d.folder, d.folder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to itself: %w", d.folder, err)
	}
	if err := unix.Mount("", d.folder, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts below %s: %w", d.folder, err)
	}
	return nil
}

// startServer makes the backing file and starts the process that serves it. The model is off until
// the disk is ready, so preparing the disk takes little time.
func (d *Disk) startServer(ctx context.Context) error {
	backing, err := d.createBacking()
	if err != nil {
		return err
	}
	if err := d.change(d.ledger.Remove(d.fuse)); err != nil {
		return err
	}
	if err := os.MkdirAll(d.fuse, 0o700); err != nil {
		return err
	}
	config, err := json.Marshal(serveConfig{
		Name:        d.options.Name,
		RunDir:      d.options.RunDir,
		Backing:     backing,
		MountPoint:  d.fuse,
		LogPath:     d.logPath,
		LogBytesMax: d.options.LogBytesMax,
	})
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	messages, err := os.Create(filepath.Join(d.options.RunDir, d.options.Name+".server.txt"))
	if err != nil {
		return err
	}
	defer messages.Close()
	// The server is not bound to ctx, and has its own session. It ends only when its mount is removed.
	// Everything that needs the server is removed before that.
	cmd := exec.Command(binary, commandGroup, serveCommand, string(config))
	cmd.Env = []string{childVariable + "=1", "GOMAXPROCS=2"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = messages
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	d.alive = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the disk's server: %w", err)
	}
	d.server, d.exited = cmd, make(chan struct{})
	// The process is recorded before the mount. Changes are undone in reverse order, so the mount is
	// removed first. This ends the server, and the ledger then has no process to end.
	if err := d.change(d.ledger.Process(cmd.Process.Pid)); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		close(d.exited)
		return err
	}
	err = d.change(d.ledger.Mount(d.fuse))
	ready := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		ready <- line == "ready\n"
		cmd.Wait()
		close(d.exited)
	}()
	if err != nil {
		return err
	}
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		return fmt.Errorf("the disk's server ended: see %s", messages.Name())
	}
	select {
	case ok := <-ready:
		if !ok {
			text, _ := os.ReadFile(messages.Name())
			return fmt.Errorf("the disk's server did not start: %s", bytes.TrimSpace(text))
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// createBacking makes the sparse file that holds the disk's bytes. Its name is random: several disks
// of one name may start at the same time in one process, and the ledger of each removes its own file.
func (d *Disk) createBacking() (string, error) {
	path := filepath.Join(d.options.BackingDir,
		fmt.Sprintf("penstock-%d-%s-%s.img", os.Getpid(), strings.ToLower(rand.Text()), d.options.Name))
	if err := d.change(d.ledger.Remove(path)); err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	return path, errors.Join(file.Truncate(d.options.Size), file.Close())
}

func (d *Disk) format(ctx context.Context) error {
	label := d.options.Name[:min(len(d.options.Name), 12)]
	// All tables are written now, because initialisation in the background would disturb
	// measurements. No blocks are reserved for root.
	argv := []string{"mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-L", label}
	if d.options.FileSystem == "xfs" {
		argv = []string{"mkfs.xfs", "-q", "-f", "-K", "-L", label}
	}
	for _, v := range d.volumes() {
		if out, err := exec.CommandContext(ctx, argv[0], append(argv[1:], v.device)...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", argv[0], v.device, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// mountFileSystems mounts the file systems with noatime, as HDFS's guides advise, and with discard.
// Discard costs the modelled disk no time and frees memory.
func (d *Disk) mountFileSystems(context.Context) error {
	for _, v := range d.volumes() {
		if err := d.mountVolume(v); err != nil {
			return err
		}
	}
	// The ledger undoes this change first: it turns the model off, so that dirty pages are then
	// written back without delay.
	fast, err := json.Marshal(order{Model: &Model{}})
	if err != nil {
		return err
	}
	return d.change(d.ledger.WriteWhenUndone(d.control(), string(fast)))
}

func (d *Disk) mountVolume(v volume) error {
	if err := d.change(d.ledger.Remove(v.mount)); err != nil {
		return err
	}
	if err := os.MkdirAll(v.mount, 0o755); err != nil {
		return err
	}
	if err := d.change(d.ledger.Mount(v.mount)); err != nil {
		return err
	}
	if err := unix.Mount(v.device, v.mount, d.options.FileSystem, unix.MS_NOATIME, "discard"); err != nil {
		return fmt.Errorf("mount %s at %s: %w", v.device, v.mount, err)
	}
	return os.Chmod(v.mount, 0o755)
}

func (d *Disk) control() string { return filepath.Join(d.fuse, controlName) }

// Modelled reports whether this is a modelled disk. If it is not, Reason returns why.
func (d *Disk) Modelled() bool { return d.reason == nil }

// Reason returns why this is a plain folder; nil for a modelled disk.
func (d *Disk) Reason() error { return d.reason }

// Name returns the disk's name in its run.
func (d *Disk) Name() string { return d.options.Name }

// Mount returns the folder in which the disk's file system, or that of its first partition, is
// mounted.
func (d *Disk) Mount() string { return d.volumes()[0].mount }

// Mounts returns the folders in which the disk's file systems are mounted: one for each partition
// or, without partitions, only Mount. If the disk is not modelled, these are plain folders.
func (d *Disk) Mounts() (mounts []string) {
	for _, v := range d.volumes() {
		mounts = append(mounts, v.mount)
	}
	return mounts
}

// Device returns the path of the block device, such as /dev/loop0; "" for a plain folder.
func (d *Disk) Device() string { return d.device }

// LogPath returns the path of the request log (see ReadLog); "" for a plain folder.
func (d *Disk) LogPath() string { return d.logPath }

// SetModel changes the model, even while requests wait. The zero Model turns the model off: waiting
// requests are answered within 50 ms.
func (d *Disk) SetModel(m Model) error {
	if err := m.Validate(); err != nil {
		return err
	}
	return d.order(order{Model: &m})
}

// Model returns the model in force.
func (d *Disk) Model() (Model, error) {
	if !d.Modelled() {
		return Model{}, ErrNotModelled
	}
	text, err := os.ReadFile(d.control())
	if err != nil {
		return Model{}, err
	}
	var now order
	if err := json.Unmarshal(text, &now); err != nil || now.Model == nil {
		return Model{}, fmt.Errorf("the disk's control file contains %q, which is not a model: %w", text, err)
	}
	return *now.Model, nil
}

// SyncLog writes every request answered so far to the log file. If the log has reached its bound,
// requests are missing, and SyncLog returns an error.
func (d *Disk) SyncLog() error {
	err := d.order(order{SyncLog: true})
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("disk %s: the request log has reached its bound of %d bytes and is not complete: raise LogBytesMax",
			d.options.Name, d.options.LogBytesMax)
	}
	return err
}

func (d *Disk) order(o order) error {
	if !d.Modelled() {
		return ErrNotModelled
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(d.control(), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("disk %s: %w", d.options.Name, err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// Counters returns the numbers of bytes that the device has read and written since it was attached.
// They are the kernel's counters.
func (d *Disk) Counters() (readBytes, writeBytes int64, err error) {
	if !d.Modelled() {
		return 0, 0, ErrNotModelled
	}
	raw, err := os.ReadFile(d.sysfs("stat"))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(raw))
	const readSectors, writeSectors = 2, 6
	if len(fields) <= writeSectors {
		return 0, 0, fmt.Errorf("cannot read %s: %q", d.sysfs("stat"), raw)
	}
	read, err := strconv.ParseInt(fields[readSectors], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	written, err := strconv.ParseInt(fields[writeSectors], 10, 64)
	return read * 512, written * 512, err
}

// Forget writes back the disk's files and drops them from the page cache. It leaves other disks
// alone, because other runs may be measuring on them. Files that are deleted meanwhile leave the
// page cache anyway.
func (d *Disk) Forget() (err error) {
	for _, mount := range d.Mounts() {
		err = errors.Join(err, forgetBelow(mount))
	}
	return err
}

func forgetBelow(folder string) error {
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ForgetFile(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// ForgetFile writes back a file and drops its pages from the page cache.
func ForgetFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(unix.Fsync(int(f.Fd())), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// Sync returns when all data written to the disk's file systems is on the disk.
func (d *Disk) Sync() (err error) {
	for _, mount := range d.Mounts() {
		err = errors.Join(err, syncFileSystem(mount))
	}
	return err
}

func syncFileSystem(mount string) error {
	f, err := os.Open(mount)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", mount, err)
	}
	return nil
}

// Stop removes the disk and undoes all changes. The log stays. If the disk is still in use, Stop
// detaches it and returns an error.
func (d *Disk) Stop() error {
	if !d.Modelled() || d.ledger == nil {
		return nil
	}
	err := d.ledger.Undo(d.changes...)
	if d.exited != nil {
		select {
		case <-d.exited:
		case <-time.After(5 * time.Second):
			err = errors.Join(err, errors.New("the disk's server does not end"))
		}
	}
	err = errors.Join(err, d.ledger.Close())
	d.ledger = nil
	if d.alive != nil {
		d.alive.Close()
	}
	return err
}

// Recover undoes the changes of a dead run: disks, processes and kernel parameters. If the run is
// alive, Recover returns ledger.ErrInUse.
func Recover(runDir string) error { return ledger.Recover(runDir) }
