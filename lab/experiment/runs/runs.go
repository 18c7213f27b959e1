// Package runs does what all campaigns need around their measurements: it creates a run folder,
// undoes the changes of killed runs, and writes files whole or not at all.
package runs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"penstock/lab/ledger"
)

// parent is the folder of all run folders, below the current directory.
const parent = "run"

// Folder is a run's private folder.
type Folder struct {
	Path string // absolute
	Ours bool   // Make chose the path, so the folder is removed after success
}

// Make creates the folder at path. If path is "", it creates a new folder whose name begins with
// prefix.
func Make(path, prefix string) (f Folder, err error) {
	if path == "" {
		f.Ours = true
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return f, err
		}
		if path, err = os.MkdirTemp(parent, prefix); err != nil {
			return f, err
		}
	} else if err := os.MkdirAll(path, 0o755); err != nil {
		return f, err
	}
	f.Path, err = filepath.Abs(path)
	return f, err
}

// Recover undoes the changes that killed runs have left on the machine. It finds the runs below
// this checkout whose folders' names begin with prefix. `penstock-lab clean` does the same for all
// other runs.
func Recover(prefix string, say func(format string, args ...any)) error {
	// The cluster's ledger is in a folder below the run's folder. It comes first, because the
	// cluster's processes must end before the disks that they use are removed.
	for _, below := range []string{"*", ""} {
		found, err := filepath.Glob(filepath.Join(parent, prefix+"*", below, ledger.FileName))
		if err != nil {
			return err
		}
		for _, file := range found {
			dir := filepath.Dir(file)
			switch err := ledger.Recover(dir); {
			case errors.Is(err, ledger.ErrInUse): // a living run
			case err != nil:
				return fmt.Errorf("undo what a killed run left in %s: %w", dir, err)
			default:
				say("undid the changes of a killed run: %s", dir)
			}
		}
	}
	return nil
}

// Within creates a run folder as Make does, and calls work with it. Before that, it undoes the
// changes of killed runs (Recover). If work succeeds, Within removes a folder whose path it chose
// itself, unless keep is set. If the folder stays, Within prints its path, because the logs are in
// it.
func Within(path, prefix string, keep bool, say func(format string, args ...any), work func(dir string) error) error {
	if err := Recover(prefix, say); err != nil {
		return err
	}
	folder, err := Make(path, prefix)
	if err != nil {
		return err
	}
	if err = work(folder.Path); err == nil && folder.Ours && !keep {
		return os.RemoveAll(folder.Path)
	}
	say("logs: %s", folder.Path)
	return err
}

// WriteFile writes a file whole or not at all, so that a reader never sees half of a file. If path
// is "", it writes nothing; if path is "-", it writes to standard output. It never replaces what is
// not a regular file, such as /dev/null or a named pipe: it writes into it.
func WriteFile(path string, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(os.Stdout)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if found, err := os.Stat(path); err == nil && !found.Mode().IsRegular() {
		return writeInto(path, write)
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

func writeInto(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
