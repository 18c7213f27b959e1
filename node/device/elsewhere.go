package device

import (
	"sync"
	"sync/atomic"

	"penstock/node/blockfile"
)

// Elsewhere is the base of a File for I/O that another process does itself. The first request for any
// of its bytes calls Do, and lasts as long as Do. Do cannot be cut into quanta: later requests find
// all bytes done.
type Elsewhere struct {
	End   int64 // of the range, as a position of the stream
	Write bool
	Do    func() // lets the process do its I/O, and waits until it is done

	working sync.Mutex // held while Do runs
	done    atomic.Bool
}

// SetDone makes requests find all bytes done.
func (e *Elsewhere) SetDone() { e.done.Store(true) }

// Query implements File. Nothing is resident, and nothing is saved until Do has returned.
func (e *Elsewhere) Query(_, length int64) (blockfile.Pages, error) {
	if e.Write && e.done.Load() {
		return blockfile.Pages{Resident: length}, nil
	}
	return blockfile.Pages{Unsaved: length}, nil
}

// Stage implements File.
func (e *Elsewhere) Stage(int64, int64) error { return e.Drain(0, 0) }

// Drain implements File.
func (e *Elsewhere) Drain(int64, int64) error {
	e.working.Lock()
	defer e.working.Unlock()
	if !e.done.Load() {
		e.Do()
		e.done.Store(true)
	}
	return nil
}

// Deleted implements File.
func (e *Elsewhere) Deleted() bool { return false }

// Size implements File.
func (e *Elsewhere) Size() (int64, error) { return e.End, nil }

// Space implements File.
func (e *Elsewhere) Space() (int64, error) { return e.End, nil }
