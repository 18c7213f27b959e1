// Package joined joins the connections of measured containers with node/control/join, as the daemon does.
//
// Only connections of the measured processes may be joined, so these processes are in a cgroup of their own. The
// cgroup, the programs' folder and their mount are recorded in the run's ledger before they are made.
package joined

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"penstock/lab/cgroup"
	"penstock/lab/ledger"
	"penstock/node/control/join"
	"penstock/node/control/journal"
)

// NewGroup makes a cgroup (version 2) for measured processes. The name must be unique on the machine while the cgroup
// exists. Only sockets that a process opens after it was added belong to the cgroup.
func NewGroup(book *ledger.Ledger, name string) (*cgroup.Group, error) {
	root, err := join.Root()
	if err != nil {
		return nil, err
	}
	return cgroup.Make(book, root, name)
}

// Options say what is joined.
type Options struct {
	Book  *ledger.Ledger
	Dir   string // folder for the journal and for the programs
	Group *cgroup.Group
	Ports []uint16 // of servers; none: all
	// Do calls a function on a thread in the network namespace in which addresses are translated.
	Do func(f func() error) error
}

// Joining is the joining of connections while something is measured.
type Joining struct {
	book    *ledger.Ledger
	changes []ledger.ID
	journal *journal.Journal
	join    *join.Join
	status  join.Status // before the end
}

// Start begins to join new connections. If it fails, it puts everything back.
func Start(ctx context.Context, o Options) (*Joining, error) {
	j := &Joining{book: o.Book}
	if err := j.start(ctx, o); err != nil {
		return nil, errors.Join(err, j.Stop())
	}
	return j, nil
}

func (j *Joining) start(ctx context.Context, o Options) (err error) {
	pins := filepath.Join(o.Dir, "pins")
	for _, record := range []func(string) (ledger.ID, error){o.Book.Remove, o.Book.Mount} {
		id, err := record(pins)
		if err != nil {
			return err
		}
		j.changes = append(j.changes, id)
	}
	if j.journal, err = journal.Open(filepath.Join(o.Dir, "journal"), map[string]journal.Undo{join.Mechanism: join.Undo}); err != nil {
		return err
	}
	return o.Do(func() (err error) {
		j.join, err = join.Start(ctx, join.Config{Dir: pins, Cgroup: o.Group.Path, Ports: o.Ports, Journal: j.journal, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		return err
	})
}

// Stop puts everything back. Connections that are open use TCP from then on.
func (j *Joining) Stop() (err error) {
	if j.join != nil {
		j.status = j.join.Status()
		err = j.join.Close()
		j.join = nil
	}
	if j.journal != nil {
		err = errors.Join(err, j.journal.Close())
		j.journal = nil
	}
	return errors.Join(err, j.book.Undo(j.changes...))
}

// Bytes returns how many bytes went straight from one socket to another so far, or until Stop.
func (j *Joining) Bytes() uint64 {
	s := j.status
	if j.join != nil {
		s = j.join.Status()
	}
	return s.Document().Bytes
}

// Any returns an error if no bytes went straight from one socket to another: figures are then not those of joined
// connections.
func (j *Joining) Any() error {
	if j.Bytes() > 0 {
		return nil
	}
	if j.join != nil {
		return fmt.Errorf("no connection was joined: %+v", j.join.Status())
	}
	return fmt.Errorf("no connection was joined: %+v", j.status)
}
