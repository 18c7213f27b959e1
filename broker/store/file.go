package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"penstock/settings"
)

// File keeps versions in a folder, one file for each version, for a cluster without ZooKeeper. A
// version is written to a temporary file, synced and renamed. So after a crash the version exists
// completely or not at all, and an incomplete file is a sign of later damage. A damaged newest
// version is an error: the operator must decide which other version should be in force.
type File struct {
	dir  string
	lock *os.File

	mu      sync.Mutex
	numbers []uint64 // ascending
	latest  Version
	failed  error // set if the state on disk is unknown
	changes chan struct{}
}

const (
	suffix        = ".version"
	partialSuffix = ".writing" // end of a file's name before its rename
	lockName      = "lock"
	learnedName   = "forecasts"
)

// OpenFile opens an existing folder. It fails if there is no such folder, if another broker
// has it open, or if its newest version is damaged.
func OpenFile(dir string) (*File, error) {
	// A misspelt path must not become a new, empty store: the cluster would run without its policy.
	if st, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such folder: correct the path, or create the folder (mkdir -p -m 700)", dir)
	} else if err != nil {
		return nil, err
	} else if !st.IsDir() {
		return nil, fmt.Errorf("%s: not a folder", dir)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: another broker has this folder open: stop it, or give each broker a folder of its own", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	f := &File{dir: dir, lock: lock, changes: make(chan struct{}, 1)}
	if err := f.load(); err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

// load reads the folder.
func (f *File) load() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partialSuffix) { // a broker was stopped while it wrote
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil {
				return err
			}
			continue
		}
		digits, found := strings.CutSuffix(e.Name(), suffix)
		if n, err := strconv.ParseUint(digits, 10, 64); found && err == nil && filepath.Base(f.path(n)) == e.Name() && n > 0 {
			f.numbers = append(f.numbers, n)
		}
	}
	slices.Sort(f.numbers)
	if len(f.numbers) == 0 {
		return nil
	}
	f.latest, err = f.read(f.numbers[len(f.numbers)-1])
	return err
}

func (f *File) path(number uint64) string {
	return filepath.Join(f.dir, fmt.Sprintf("%020d%s", number, suffix))
}

func (f *File) read(number uint64) (Version, error) {
	path := f.path(number)
	text, err := settings.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return Version{}, ErrUnknown
	}
	var v Version
	if err == nil {
		if v, err = Decode(text); err == nil && v.Number != number {
			err = fmt.Errorf("it contains version %d", v.Number)
		}
		if err != nil {
			err = fmt.Errorf("%s is damaged: %w", path, err)
		}
	}
	if err != nil {
		return Version{}, fmt.Errorf("%w; restore it from a copy, or move it away to go back to the version before it", err)
	}
	return v, nil
}

// Latest implements Store.
func (f *File) Latest(context.Context) (Version, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest.clone(), f.failed
}

// Get implements Store.
func (f *File) Get(_ context.Context, number uint64) (Version, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.numbers, number) {
		return Version{}, ErrUnknown
	}
	return f.read(number)
}

// History implements Store. It ends at the first version that is dropped while History runs.
func (f *File) History(_ context.Context, limit int, each func(Version) bool) error {
	f.mu.Lock()
	numbers := slices.Clone(f.numbers[max(0, len(f.numbers)-limit):])
	f.mu.Unlock()
	for _, n := range slices.Backward(numbers) {
		f.mu.Lock()
		dropped := n < f.numbers[0]
		var v Version
		var err error
		if !dropped {
			v, err = f.read(n)
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if dropped || !each(v) {
			break
		}
	}
	return nil
}

// Append implements Store. If the final rename fails, it is not known whether the version exists,
// and the store takes no more versions until it is opened again.
func (f *File) Append(_ context.Context, v Version) error {
	text, err := Encode(v)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return f.failed
	}
	if v.Number != f.latest.Number+1 {
		return ErrConflict
	}
	path := f.path(v.Number)
	if err := write(path+partialSuffix, text); err != nil {
		return fmt.Errorf("version %d of the policy was not written: %w", v.Number, err)
	}
	if err := errors.Join(os.Rename(path+partialSuffix, path), syncDir(f.dir)); err != nil {
		f.failed = fmt.Errorf("version %d of the policy may or may not be stored: %w; repair the disk and restart the broker", v.Number, err)
		return f.failed
	}
	f.latest = v.clone()
	f.latest.Time = unixMilli(v.Time.UnixMilli())
	f.numbers = append(f.numbers, v.Number)
	notify(f.changes)
	for len(f.numbers) > Keep { // oldest first: a crash leaves no gap
		if err := os.Remove(f.path(f.numbers[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break // retried with the next version
		}
		f.numbers = f.numbers[1:]
	}
	return nil
}

// write writes and syncs a new file. If it fails, it leaves no file.
func write(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// syncDir syncs a folder.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Changes implements Store.
func (f *File) Changes() <-chan struct{} { return f.changes }

// Learned implements Store.
func (f *File) Learned(context.Context) ([]byte, error) {
	file, err := os.Open(filepath.Join(f.dir, learnedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxLearned+1)) // DecodeLearned refuses what is longer
}

// KeepLearned implements Store. After a crash, either the old record exists or the new one.
func (f *File) KeepLearned(_ context.Context, record []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := filepath.Join(f.dir, learnedName)
	if err := write(path+partialSuffix, record); err != nil {
		return err
	}
	return errors.Join(os.Rename(path+partialSuffix, path), syncDir(f.dir))
}

// Close implements Store.
func (f *File) Close() error { return f.lock.Close() }
