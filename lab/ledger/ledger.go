// Package ledger restores the machine after a test run, even after a crash.
//
// Tests mount file systems, take loop devices, start daemons and set kernel parameters. A run that
// is killed with -9 cannot clean up, and its remains (a dirty limit of 64 MB, a mount without a
// server) spoil later measurements. So each change is written to a file in the run's folder
// *before* it is made. The changes are undone in reverse order: by Close at the end of a run, by
// Recover after a crash. Undoing is idempotent and trusts the machine, not the file: a process is
// ended only if its start time matches, and a loop device is detached only if it still has the
// recorded backing file.
//
// A run holds a lock on its ledger while it is alive, so it cannot be recovered by another process.
// Runs are listed in StateDir, so RecoverAll finds them regardless of their folders.
package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrInUse means that the run is still alive: its process holds the ledger's lock.
var ErrInUse = errors.New("the run is still in use by a living process; end that process first")

// FileName is the ledger's name in a run's folder.
const FileName = "ledger.jsonl"

// tagVariable is an environment variable that marks the processes started by a run.
const tagVariable = "PENSTOCK_RUN"

// ID names one recorded change within a ledger.
type ID int

// kind is the kind of a change, which determines how it is undone.
type kind string

const (
	kindRemove  kind = "remove"  // Path: a file or empty folder that the run creates
	kindMount   kind = "mount"   // Path: a mount point
	kindBind    kind = "bind"    // Path: a bind mount of a folder
	kindLoop    kind = "loop"    // Path: /dev/loopN; Value: its backing file
	kindProcess kind = "process" // PID, Started
	kindTagged  kind = "tagged"  // Value: every process with this mark in its environment
	kindFile    kind = "file"    // Path: a kernel file; Value: its former content
	kindWrite   kind = "write"   // Path: a control file; Value: to be written when undone, best effort
	kindCgroup  kind = "cgroup"  // Path: a cgroup's folder; its processes are moved to its parent
	kindSysctl  kind = "sysctl"  // Path: the parameter; the old value is in its lock file
)

type entry struct {
	ID      ID     `json:"id,omitempty"`
	Kind    kind   `json:"kind,omitempty"`
	Path    string `json:"path,omitempty"`
	Value   string `json:"value,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Started uint64 `json:"started,omitempty"` // clock ticks since boot, field 22 of /proc/PID/stat
	Undone  ID     `json:"undone,omitempty"`  // if set, the line only records that this entry was undone
	Boot    string `json:"boot,omitempty"`    // first line only: id of the machine's boot
}

// Ledger records the changes of one run. Its methods may be called at the same
// time from several goroutines.
type Ledger struct {
	machine machine
	dir     string
	file    *os.File
	boot    string

	mu      sync.Mutex
	next    ID
	entries []entry // not yet undone, oldest first
	tagged  bool
	sysctls map[string]*os.File // held locks by parameter
	opened  int                 // how often Open has returned this ledger
}

// machine contains the paths of the machine's files; tests use their own folders.
type machine struct {
	sysctl string // kernel parameters
	blocks string // block devices in sysfs
	state  string // known runs and locked parameters
}

func thisMachine() machine {
	return machine{sysctl: "/proc/sys", blocks: "/sys/block", state: StateDir()}
}

var (
	openMu sync.Mutex
	opened = map[string]*Ledger{} // this process's ledgers, by folder
)

// Open starts the ledger of the run in the folder runDir, and creates the folder if needed. A
// second call in the same process returns the same ledger, and the last Close ends it. Open first
// undoes the changes of an earlier, dead run in that folder. If another living process uses the
// folder, Open fails with ErrInUse.
func Open(runDir string) (*Ledger, error) { return thisMachine().open(runDir) }

func (m machine) open(runDir string) (*Ledger, error) {
	dir, err := filepath.Abs(runDir)
	if err != nil {
		return nil, err
	}
	openMu.Lock()
	defer openMu.Unlock()
	if l := opened[dir]; l != nil {
		l.opened++
		return l, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the run's folder: %w", err)
	}
	if err := m.recover(dir); err != nil {
		return nil, fmt.Errorf("undo an earlier run's changes in %s: %w", dir, err)
	}
	l, err := m.lockedLedger(dir, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	l.boot = bootID()
	l.opened = 1
	if err := l.append(entry{Boot: l.boot}); err != nil {
		l.file.Close()
		return nil, err
	}
	if err := m.register(dir); err != nil {
		l.file.Close()
		return nil, err
	}
	opened[dir] = l
	return l, nil
}

// Dir returns the run's folder.
func (l *Ledger) Dir() string { return l.dir }

// Remove announces a file or folder that the run is about to create. To undo this, the ledger
// removes the file or folder; a folder is removed only if it is empty.
func (l *Ledger) Remove(path string) (ID, error) {
	return l.record(entry{Kind: kindRemove, Path: path})
}

// Cgroup announces a cgroup that the run is about to create. To undo this, the ledger
// moves the cgroup's remaining processes to its parent and removes it.
func (l *Ledger) Cgroup(path string) (ID, error) {
	return l.record(entry{Kind: kindCgroup, Path: path})
}

// Mount announces that the run is about to mount something at path.
func (l *Ledger) Mount(path string) (ID, error) {
	return l.record(entry{Kind: kindMount, Path: path})
}

// Bind announces a bind mount at path. To undo this, the ledger detaches the mount even if it is in
// use; this affects no other process.
func (l *Ledger) Bind(path string) (ID, error) {
	return l.record(entry{Kind: kindBind, Path: path})
}

// Loop announces that the run is about to attach backing to the loop device.
func (l *Ledger) Loop(device, backing string) (ID, error) {
	return l.record(entry{Kind: kindLoop, Path: device, Value: backing})
}

// WriteWhenUndone makes the ledger write value to path when the run is undone. This is best effort:
// errors are ignored, and the attempt ends after a few seconds.
func (l *Ledger) WriteWhenUndone(path, value string) (ID, error) {
	return l.record(entry{Kind: kindWrite, Path: path, Value: value})
}

// SetFile writes value to a kernel file such as /sys/block/loop0/queue/read_ahead_kb. To undo this,
// the ledger restores the old value. For parameters of the whole machine use SetSysctl, which also
// keeps two runs from changing the same parameter.
func (l *Ledger) SetFile(path, value string) (ID, error) {
	old, err := readSetting(path)
	if err != nil {
		return 0, err
	}
	if old == value {
		return 0, nil
	}
	id, err := l.record(entry{Kind: kindFile, Path: path, Value: old})
	if err != nil {
		return 0, err
	}
	return id, os.WriteFile(path, []byte(value), 0)
}

// Process records a running process. To undo this, the ledger ends the process with SIGTERM, and
// with SIGKILL after a grace period. A crash between the process's start and this call leaves the
// process running, so StartProcess is better.
func (l *Ledger) Process(pid int) (ID, error) {
	started, err := processStarted(pid)
	if err != nil {
		return 0, err
	}
	return l.record(entry{Kind: kindProcess, PID: pid, Started: started})
}

// StartProcess starts cmd with the run's mark in its environment, which its children inherit.
// Recover ends every process with the mark, including grandchildren in other sessions. Undo with
// the returned ID ends only this process.
func (l *Ledger) StartProcess(cmd *exec.Cmd) (ID, error) {
	l.mu.Lock()
	first := !l.tagged
	l.tagged = true
	l.mu.Unlock()
	if first {
		if _, err := l.record(entry{Kind: kindTagged, Value: l.tag()}); err != nil {
			return 0, err
		}
	}
	cmd.Env = append(cmd.Environ(), l.Mark())
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return l.Process(cmd.Process.Pid)
}

// EndProcesses ends every process with the run's mark, also those whose parents have ended.
func (l *Ledger) EndProcesses() error {
	err := l.undo(func(e entry) bool { return e.Kind == kindTagged })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tagged = false // the next process records the mark again
	return err
}

// Mark returns the variable, NAME=value, that is in the environment of every process of the run. A
// process that starts others with another environment must pass it on.
func (l *Ledger) Mark() string { return tagVariable + "=" + l.tag() }

// tag returns the run's mark. It is derived from the folder, so Recover can compute it.
func (l *Ledger) tag() string { return shortHash(l.dir) }

// Undo undoes the given changes, last change first. It continues after an error and returns all
// errors. It ignores IDs that are zero or already undone.
func (l *Ledger) Undo(ids ...ID) error {
	wanted := map[ID]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	return l.undo(func(e entry) bool { return wanted[e.ID] })
}

func (l *Ledger) undo(wanted func(entry) bool) error {
	l.mu.Lock()
	var todo []entry
	for i := len(l.entries) - 1; i >= 0; i-- {
		if wanted(l.entries[i]) {
			todo = append(todo, l.entries[i])
		}
	}
	l.mu.Unlock()
	var errs []error
	for _, e := range todo {
		if err := l.undoOne(e); err != nil {
			errs = append(errs, fmt.Errorf("undo %s %s: %w", e.Kind, e.Path, err))
		}
		l.mu.Lock()
		for i := range l.entries {
			if l.entries[i].ID == e.ID {
				l.entries = append(l.entries[:i], l.entries[i+1:]...)
				break
			}
		}
		if err := l.append(entry{Undone: e.ID}); err != nil {
			errs = append(errs, err)
		}
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Close undoes all remaining changes, last change first, and removes the ledger. The run's other
// files stay. If Open has returned this ledger several times, only the last Close does this.
func (l *Ledger) Close() error {
	openMu.Lock()
	defer openMu.Unlock()
	l.opened--
	if l.opened > 0 {
		return nil
	}
	delete(opened, l.dir)
	return l.finish()
}

func (l *Ledger) finish() error {
	err := l.undo(func(entry) bool { return true })
	for _, file := range l.sysctls {
		file.Close()
	}
	l.machine.unregister(l.dir)
	return errors.Join(err, os.Remove(l.file.Name()), l.file.Close())
}

// Recover undoes the changes of a dead run. It does nothing if there is no ledger in runDir, and
// fails with ErrInUse if the run is alive.
func Recover(runDir string) error { return thisMachine().recover(runDir) }

func (m machine) recover(runDir string) error {
	dir, err := filepath.Abs(runDir)
	if err != nil {
		return err
	}
	l, err := m.lockedLedger(dir, 0)
	if errors.Is(err, os.ErrNotExist) {
		m.unregister(dir)
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.load(); err != nil {
		l.file.Close()
		return err
	}
	return l.finish()
}

// RecoverAll recovers every known run that is dead. It returns the folders of the recovered runs
// and the folders of the runs that are still alive.
func RecoverAll() (recovered, alive []string, err error) { return thisMachine().recoverAll() }

func (m machine) recoverAll() (recovered, alive []string, err error) {
	paths, err := filepath.Glob(filepath.Join(m.state, "runs", "*"))
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	var dirs []string
	for _, path := range paths {
		if dir, err := os.ReadFile(path); err == nil { // otherwise the run has just ended
			dirs = append(dirs, string(dir))
		}
	}
	// A run's folder comes before its parent folder, so a cluster's processes end before the disks
	// that they use.
	slices.Sort(dirs)
	slices.Reverse(dirs)
	for _, dir := range dirs {
		switch err := m.recover(dir); {
		case errors.Is(err, ErrInUse):
			alive = append(alive, dir)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		default:
			recovered = append(recovered, dir)
		}
	}
	return recovered, alive, errors.Join(errs...)
}

// StateDir returns the folder in which this user's runs are listed and kernel parameters are
// locked. It is the same for all runs on the machine, regardless of their environment.
func StateDir() string {
	if os.Geteuid() == 0 {
		return "/run/penstock-lab"
	}
	return fmt.Sprintf("/tmp/penstock-lab-%d", os.Geteuid())
}

func (m machine) register(dir string) error {
	runs := filepath.Join(m.state, "runs")
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return fmt.Errorf("list the run: %w", err)
	}
	return os.WriteFile(filepath.Join(runs, shortHash(dir)), []byte(dir), 0o644)
}

func (m machine) unregister(dir string) {
	os.Remove(filepath.Join(m.state, "runs", shortHash(dir)))
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// lockedLedger opens the ledger file and locks it for as long as this process
// lives. Descriptors are close-on-exec, so children do not keep the lock.
func (m machine) lockedLedger(dir string, flags int) (*Ledger, error) {
	file, err := os.OpenFile(filepath.Join(dir, FileName), os.O_RDWR|os.O_APPEND|flags, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	// A run that ended in the meantime has removed the locked file.
	locked, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if named, err := os.Stat(file.Name()); err != nil || !os.SameFile(locked, named) {
		file.Close()
		return m.lockedLedger(dir, flags)
	}
	return &Ledger{machine: m, dir: dir, file: file, next: 1, sysctls: map[string]*os.File{}}, nil
}

// load reads the entries that were not undone. An incomplete last line belongs to a change that was
// not made yet.
func (l *Ledger) load() error {
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	undone := map[ID]bool{}
	var all []entry
	lines := bufio.NewScanner(l.file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Boot != "":
			l.boot = e.Boot
		case e.Undone != 0:
			undone[e.Undone] = true
		default:
			all = append(all, e)
		}
	}
	for _, e := range all {
		l.next = max(l.next, e.ID+1)
		if !undone[e.ID] {
			l.entries = append(l.entries, e)
		}
	}
	return lines.Err()
}

func (l *Ledger) record(e entry) (ID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	if err := l.append(e); err != nil {
		return 0, fmt.Errorf("record %s %s before it is changed: %w", e.Kind, e.Path, err)
	}
	l.next++
	l.entries = append(l.entries, e)
	return e.ID, nil
}

// append writes one line. The line survives the death of the process, which is the purpose of the
// ledger. After a crash of the machine, the only changes left to undo are files and folders.
func (l *Ledger) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(id))
}

// readSetting reads a kernel file. If the content is a list of choices such as "none [mq-deadline]
// bfq", it returns the choice in brackets.
func readSetting(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(raw))
	if _, after, ok := strings.Cut(text, "["); ok {
		if chosen, _, ok := strings.Cut(after, "]"); ok {
			return chosen, nil
		}
	}
	return text, nil
}
