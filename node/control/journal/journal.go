// Package journal records each change that the daemon makes to the system before it makes it, and
// puts back what was there.
//
// Problem: the daemon changes cgroup files, sockets and queueing disciplines that belong to others.
// It must leave them as it found them when it stops, also when it is killed between two system
// calls. What is hard is that no moment is safe: a crash can come before, during and after a change.
//
// Choice: a file of JSON lines in the daemon's runtime folder. A line is written before the change
// that it describes. The page cache keeps the line when the process is killed, and a reboot removes
// the changes themselves. Undoing is idempotent and trusts the system, not the file: each mechanism's
// Undo changes a value only if the value is still the one that the daemon set. When a value is changed
// again and this is interrupted, either of the two values may be in force. So the file keeps both, and
// Undo is called for both.
//
// The process that has opened the journal holds a lock on the file, so that a second daemon cannot undo
// the changes.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxChanges = 16384     // in force at the same time
	maxLine    = 64 << 10  // bytes
	maxFile    = 256 << 20 // bytes; what is larger was not written by a journal
	slackLines = 1024      // outdated lines up to which the file is not written again
)

var (
	// ErrInUse means that a running process has opened the journal.
	ErrInUse = errors.New("the journal of changes is in use by another daemon; stop that daemon first")
	// ErrFull means that too many changes are in force.
	ErrFull = fmt.Errorf("%d changes to the system are in force, which is the limit; name fewer processes or connections in the policy", maxChanges)
)

// Change is one change to the system.
type Change struct {
	Mechanism string `json:"mechanism"` // names the Undo that puts it back
	Target    string `json:"target"`    // what is changed; unique within the mechanism
	Before    string `json:"before"`    // the value that was there, in the mechanism's own form
	After     string `json:"after"`     // the value that the daemon sets
	Why       string `json:"why,omitempty"`
}

// Undo puts c.Before back. It is idempotent. It does nothing and returns nil if the target no longer
// exists, or if its value is no longer c.After.
type Undo func(c Change) error

// Restored is a change that Open found in the file of a dead process.
type Restored struct {
	Change
	Err error // why the change was not undone; it then stays in the journal
}

// Journal is the record of the changes that are in force. Its methods may be called by several
// goroutines.
type Journal struct {
	path     string
	undo     map[string]Undo
	restored []Restored

	mu      sync.Mutex
	file    *os.File
	size    int64    // of the file, in bytes
	lines   int      // in the file
	order   []*entry // oldest first
	entries map[key]*entry
	closed  bool
	broken  error // not nil: a line was written in part only, so no further change is made
}

type key struct{ mechanism, target string }

// entry is a changed target. mu is held while the target is changed or put back.
type entry struct {
	mu     sync.Mutex
	change Change
	// earlier are other values that may be in force, because a change was interrupted or has failed.
	earlier []string
	gone    bool
	// recorded is the entry's last line in the file. The journal's mu protects it.
	recorded line
}

// line is a line of the file.
type line struct {
	Boot    string   `json:"boot,omitempty"` // in the first line only
	Change  *Change  `json:"change,omitempty"`
	Earlier []string `json:"earlier,omitempty"`
	Undone  *key     `json:"undone,omitempty"`
}

func (k key) MarshalJSON() ([]byte, error) { return json.Marshal([2]string{k.mechanism, k.target}) }

func (k *key) UnmarshalJSON(b []byte) error {
	var parts [2]string
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	k.mechanism, k.target = parts[0], parts[1]
	return nil
}

// Open opens the journal in the file path. It first undoes the changes that a dead process has left
// there, the latest first; Restored returns them. undo has the Undo of each mechanism. Open returns
// ErrInUse if the process that uses the journal is alive. It returns another error if another user could
// have written the file.
func Open(path string, undo map[string]Undo) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("journal of changes: %w", err)
	}
	j := &Journal{path: path, undo: undo, entries: map[key]*entry{}}
	if err := j.lock(); err != nil {
		return nil, fmt.Errorf("journal of changes %s: %w", path, err)
	}
	if err := j.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal of changes %s: %w", path, err), j.file.Close())
	}
	for _, e := range slices.Backward(slices.Clone(j.order)) {
		j.restored = append(j.restored, Restored{e.change, j.putBack(e)})
	}
	if err := j.rewrite(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal of changes %s: %w", path, err), j.file.Close())
	}
	return j, nil
}

// Restored returns the changes that Open found in the file of a dead process, the latest first.
func (j *Journal) Restored() []Restored { return j.restored }

// Make records the change c and then calls do, which makes the change. If the record cannot be written,
// Make does not call do. If an earlier change of the target is in force, the value Before of that change
// stays. If do fails, an earlier change stays in force; without one, Make puts back c.Before.
func (j *Journal) Make(c Change, do func() error) error {
	if j.undo[c.Mechanism] == nil {
		return fmt.Errorf("change %s: the journal was opened without the Undo of the mechanism %q", c.Target, c.Mechanism)
	}
	e, err := j.lockedEntry(key{c.Mechanism, c.Target})
	if err != nil {
		return fmt.Errorf("change %s: %w", c.Target, err)
	}
	defer e.mu.Unlock()

	old, first := e.change, e.change.Target == ""
	if !first {
		if len(e.earlier) >= maxEarlier {
			return fmt.Errorf("change %s: the last %d changes of this target have failed, so no further one is made; put the target back first", c.Target, maxEarlier)
		}
		c.Before = old.Before
		if !slices.Contains(e.earlier, old.After) {
			e.earlier = append(e.earlier, old.After)
		}
	}
	e.change = c
	if err := j.append(e, line{Change: &c, Earlier: e.earlier}); err != nil {
		e.change = old
		if first {
			j.forget(e)
		}
		return fmt.Errorf("record the change of %s: %w", c.Target, err)
	}
	if err := do(); err != nil {
		if first {
			return errors.Join(err, j.undoLocked(e))
		}
		e.change = old
		if !slices.Contains(e.earlier, c.After) {
			e.earlier = append(e.earlier, c.After) // the change may have been made in part
		}
		return errors.Join(err, j.append(e, line{Change: &old, Earlier: e.earlier}))
	}
	e.earlier = nil
	return nil
}

// maxEarlier is the maximum number of earlier values of a target.
const maxEarlier = 16

// PutBack undoes the change of a target. It does nothing if no change of the target is in force.
func (j *Journal) PutBack(mechanism, target string) error {
	j.mu.Lock()
	e := j.entries[key{mechanism, target}]
	j.mu.Unlock()
	if e == nil {
		return nil
	}
	return j.putBack(e)
}

func (j *Journal) putBack(e *entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || e.change.Target == "" {
		return nil
	}
	return j.undoLocked(e)
}

// undoLocked undoes the change of e, which is locked, and forgets it. If that fails, the change
// stays in the journal.
func (j *Journal) undoLocked(e *entry) error {
	undo := j.undo[e.change.Mechanism]
	if undo == nil {
		return fmt.Errorf("put back %s: this version does not know the mechanism %q; undo it by hand: the value was %q",
			e.change.Target, e.change.Mechanism, e.change.Before)
	}
	c := e.change
	for _, after := range append(slices.Clone(e.earlier), c.After) {
		c.After = after
		if err := undo(c); err != nil {
			return fmt.Errorf("put back %s: %w", c.Target, err)
		}
	}
	k := key{c.Mechanism, c.Target}
	j.forget(e)
	return j.append(e, line{Undone: &k})
}

// Close undoes all changes, the latest first, and removes the file. Changes that cannot be undone stay
// in the file for the next start, and their errors are returned.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true // so that no further change is made
	todo := slices.Clone(j.order)
	j.mu.Unlock()

	var errs []error
	for _, e := range slices.Backward(todo) {
		errs = append(errs, j.putBack(e))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.order) == 0 {
		errs = append(errs, os.Remove(j.path))
	}
	return errors.Join(append(errs, j.file.Close())...)
}

// Changes returns the changes that are in force, the oldest first.
func (j *Journal) Changes() []Change {
	j.mu.Lock()
	todo := slices.Clone(j.order)
	j.mu.Unlock()
	var changes []Change
	for _, e := range todo {
		e.mu.Lock()
		if !e.gone && e.change.Target != "" {
			changes = append(changes, e.change)
		}
		e.mu.Unlock()
	}
	return changes
}

// Len returns the number of changes that are in force. Unlike Changes, it does not wait for a change that is being made or
// put back, and counts it.
func (j *Journal) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.order)
}

// lockedEntry returns the entry of a target, locked. It creates the entry if needed.
func (j *Journal) lockedEntry(k key) (*entry, error) {
	for {
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			return nil, errors.New("the journal is closed, because the daemon is stopping")
		}
		e := j.entries[k]
		if e == nil {
			if len(j.order) >= maxChanges {
				j.mu.Unlock()
				return nil, ErrFull
			}
			e = &entry{}
			j.entries[k] = e
			j.order = append(j.order, e)
		}
		j.mu.Unlock()
		e.mu.Lock()
		if !e.gone {
			return e, nil
		}
		e.mu.Unlock()
	}
}

// forget removes e, which is locked.
func (j *Journal) forget(e *entry) {
	e.gone = true
	j.mu.Lock()
	defer j.mu.Unlock()
	for k, other := range j.entries {
		if other == e {
			delete(j.entries, k)
		}
	}
	j.order = slices.DeleteFunc(j.order, func(other *entry) bool { return other == e })
}

// lock opens and locks the file. If another process has closed the journal in the meantime and thereby
// removed the file, lock tries again.
func (j *Journal) lock() error {
	for {
		file, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			file.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return ErrInUse
			}
			return err
		}
		locked, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		if named, err := os.Lstat(j.path); err != nil || !os.SameFile(locked, named) {
			file.Close()
			continue
		}
		if err := ownersOnly(locked, filepath.Dir(j.path)); err != nil {
			return errors.Join(err, file.Close())
		}
		j.file = file
		return nil
	}
}

// ownersOnly verifies that only this user can have written the file, because the daemon does as root what
// the file says.
func ownersOnly(file os.FileInfo, dir string) error {
	folder, err := os.Stat(dir)
	if err != nil {
		return err
	}
	for _, info := range []os.FileInfo{file, folder} {
		stat := info.Sys().(*syscall.Stat_t)
		if int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("other users may write %s (owner %d, mode %o): make uid %d its owner, and remove the write permission of group and others",
				info.Name(), stat.Uid, info.Mode().Perm(), os.Geteuid())
		}
	}
	return nil
}

// load reads the changes that were not undone. It ignores an incomplete last line, because the change of
// that line was not made. It ignores all lines if the machine has been restarted since they were written.
func (j *Journal) load() error {
	if info, err := j.file.Stat(); err != nil || info.Size() > maxFile {
		return errors.Join(err, tooLarge(info))
	}
	content, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	// A journal from before a restart of the machine may be damaged, and its changes are no longer in force.
	first, _, whole := bytes.Cut(content, []byte("\n"))
	if l, err := parse(append(bytes.Clone(first), '\n')); whole && (err != nil && bytes.ContainsRune(first, 0) || err == nil && len(l) == 1 && l[0].Boot != "" && l[0].Boot != bootID()) {
		return nil
	}
	lines, err := parse(content)
	if err != nil {
		return err
	}
	for _, l := range lines {
		switch {
		case l.Change != nil:
			k := key{l.Change.Mechanism, l.Change.Target}
			e := j.entries[k]
			if e == nil {
				if len(j.order) >= maxChanges {
					return ErrFull
				}
				e = &entry{}
				j.entries[k] = e
				j.order = append(j.order, e)
			}
			e.change, e.earlier, e.recorded = *l.Change, l.Earlier, l
		case l.Undone != nil:
			if e := j.entries[*l.Undone]; e != nil {
				j.forget(e)
			}
		}
	}
	return nil
}

func tooLarge(info os.FileInfo) error {
	if info == nil {
		return nil
	}
	return fmt.Errorf("the file has %d bytes, so it is not a journal of changes; remove it", info.Size())
}

// parse reads the lines of a journal.
func parse(content []byte) ([]line, error) {
	var lines []line
	scanner := bufio.NewScanner(bytes.NewReader(content))
	scanner.Buffer(nil, maxLine)
	complete := bytes.Count(content, []byte("\n"))
	for n := 0; scanner.Scan(); n++ {
		if n == complete {
			break // incomplete: the process was killed while it wrote
		}
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		if c := l.Change; c != nil && (c.Mechanism == "" || c.Target == "") {
			return nil, fmt.Errorf("line %d: the change has no mechanism or no target", n+1)
		}
		lines = append(lines, l)
	}
	return lines, scanner.Err()
}

// append writes a line about e. When most lines of the file are outdated, append replaces the file.
func (j *Journal) append(e *entry, l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if len(b) >= maxLine {
		return fmt.Errorf("the record has %d bytes; the limit is %d", len(b), maxLine)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if j.lines > 4*len(j.order)+slackLines {
		if err := j.rewrite(); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		if cut := j.file.Truncate(j.size); cut != nil {
			j.broken = fmt.Errorf("the file has a broken last line: %w", cut)
		}
		return err
	}
	j.size += int64(len(b)) + 1
	j.lines++
	e.recorded = l
	return nil
}

// rewrite replaces the file by one that has only the changes in force.
func (j *Journal) rewrite() error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	if err := out.Encode(line{Boot: bootID()}); err != nil {
		return err
	}
	lines := 1
	for _, e := range j.order {
		if e.recorded.Change == nil {
			continue // the entry's first line has not been written yet
		}
		if err := out.Encode(e.recorded); err != nil {
			return err
		}
		lines++
	}
	temporary := j.path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(err, file.Close())
	}
	if _, err := file.Write(b.Bytes()); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := os.Rename(temporary, j.path); err != nil {
		return errors.Join(err, file.Close())
	}
	old := j.file
	j.file, j.size, j.lines = file, int64(b.Len()), lines
	return old.Close()
}

// bootID returns the kernel's random id of the present boot.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(b))
}
