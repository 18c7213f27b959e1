// Package accelerate joins connections between containers of this machine for an operator, without a node daemon. The
// daemon does the same with the setting control.joining; package node/control/join has the design.
package accelerate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"penstock/node/config"
	"penstock/node/control"
	"penstock/node/control/gate"
	"penstock/node/control/join"
	"penstock/node/control/journal"
	"penstock/node/status"
)

const applyEvery = time.Second

// Options say what is joined.
type Options struct {
	// Folder has the record of changes and the pinned programs, as an absolute path. It is that of a node daemon's
	// socket, so that only one of the two joins connections. Run makes the folder if it is missing, and removes it
	// again unless somebody else has put something there.
	Folder string
	Ports  []uint16 // servers' ports; none: all
	Cgroup string   // folder of a cgroup (v2); empty: all sockets of the machine
	Log    *slog.Logger
}

// State is the state of the joined connections, in the form of --json.
type State struct {
	Seconds float64 `json:"seconds"` // since connections are joined
	status.Joining
}

func stateOf(s *join.Status, since time.Time) State {
	return State{time.Since(since).Seconds(), s.Document()}
}

// String returns the state as one line for people.
func (s State) String() string {
	line := fmt.Sprintf("%d open connections between containers, %d joined now, %d released; %.1f MB bypassed the network", s.Connections, s.Joined, s.Released, float64(s.Bytes)/1e6)
	if s.Limited != "" {
		line += "; nothing is joined at present: " + s.Limited
	}
	if s.Error != "" {
		line += "; error: " + s.Error
	}
	return line
}

// removeFolder removes the folder that Run has made. It stays if it is not empty.
func removeFolder(folder string, log *slog.Logger) error {
	err := os.Remove(folder)
	if errors.Is(err, syscall.ENOTEMPTY) {
		log.Warn("the folder stays: a node daemon uses it, or programs are pinned there until bytes that joined connections have sent are read; the next start of this command or of a daemon with control.joining removes these", "folder", folder)
		return nil
	}
	return err
}

// Run joins connections until ctx ends, and then puts everything back. It calls report with the state once a second. It fails
// if connections cannot be joined, and with journal.ErrInUse if a node daemon uses the folder. If readers have not read all joined
// bytes at the end, it returns join.ErrUnread with the last state, and the record stays in the folder.
func Run(ctx context.Context, o Options, report func(State)) (last State, err error) {
	if err := join.Available(); err != nil {
		return State{}, err
	}
	switch err := os.Mkdir(o.Folder, 0o755); {
	case err == nil:
		defer func() { err = errors.Join(err, removeFolder(o.Folder, o.Log)) }()
	case !errors.Is(err, os.ErrExist):
		return State{}, fmt.Errorf("folder for the record of changes: %w", err)
	}
	record := filepath.Join(o.Folder, "control.journal")
	c, err := control.Open(control.Options{Journal: record, Log: o.Log, Protected: func() []int { return nil },
		Held: func(_ string, _ gate.Request, allow func()) { allow() }})
	if errors.Is(err, journal.ErrInUse) {
		return State{}, fmt.Errorf("a node daemon, or this command, already runs with the folder %s (a daemon joins connections with control.joining in its settings): %w", o.Folder, err)
	}
	if err != nil {
		return State{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	want := control.Want{Enforce: true, Joining: &control.Joining{Dir: config.JoinedFolder(record), Cgroup: o.Cgroup, Ports: o.Ports}}
	since := time.Now()
	ticker := time.NewTicker(applyEvery)
	defer ticker.Stop()
	for {
		c.Apply(want)
		s := c.Status()
		if s.Joined == nil {
			return last, errors.New(s.Error)
		}
		last = stateOf(s.Joined, since)
		report(last)
		select {
		case <-ctx.Done():
			return stateOf(c.Status().Joined, since), nil
		case <-ticker.C:
		}
	}
}
