package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/node/mounts"
	"penstock/node/peers"
	"penstock/node/turns"
	"penstock/wire"
)

// This file handles turns of tasks at storage servers (package turns). An OPEN of a task or an executor
// with a Server asks for one: Server is the storage server that holds the range, as the layout of the
// file system names it, and To-From are the bytes.

// storage is the storage server of this machine, and what the daemon knows about others.
type storage struct {
	daemon *Daemon
	stats  turns.Stats
	pacer  turns.Pacer
	away   *peers.Turns // nil: no turns at servers of other machines

	found   atomic.Pointer[foundDisk] // of the server's directory; nil: not found yet
	finding sync.Mutex                // held while the disk is looked for, which may take long
	tried   time.Time                 // protected by finding, as mistake is
	mistake error

	mu    sync.Mutex
	names map[string]bool
	named time.Time // when names was made
}

// foundDisk is the device of the storage server's directory, as found at a time.
type foundDisk struct {
	*governed
	at time.Time
}

const (
	// Time between two attempts to find the storage server's disk, which may not be mounted yet.
	findAgain = time.Second
	// nameAge is how long the addresses of this machine are remembered, and diskAge the disk of the directory: another
	// one may have been mounted there.
	nameAge = time.Minute
	diskAge = time.Minute
)

func newStorage(d *Daemon) *storage {
	if d.settings.Storage == nil {
		return nil
	}
	return &storage{daemon: d}
}

// close ends the streams to other nodes.
func (s *storage) close() {
	if s != nil && s.away != nil {
		s.away.Close()
	}
}

// isTurn reports whether the OPEN asks for a turn.
func isTurn(role wire.Role, m wire.Open) bool {
	return m.Server != "" && m.Kind == wire.Persistent && !ipc.Serves(role)
}

// openTurn asks for a turn for the process's own flow.
func (r *registration) openTurn(m wire.Open, marker device.Marker) (ipc.Stream, error) {
	s := r.daemon.storage
	if s == nil {
		return nil, errors.New("a turn at a storage server: this daemon has no setting storage")
	}
	request := turns.Request{ID: m.Stream, Flow: r.own, Write: m.Direction == wire.Write, Bytes: m.To - m.From}
	if err := turns.Check(request.Bytes); err != nil {
		return nil, err
	}
	if !s.isHere(m.Server) {
		return s.takeAway(m.Server, request, marker)
	}
	target, err := s.target()
	if err != nil {
		return nil, err
	}
	r.deskOnce.Do(func() { r.desk = turns.NewDesk(marker, turns.MaxTurns) })
	turn, err := r.desk.Take(target, request)
	return opened(turn, err)
}

// takeAway asks for a turn at the storage server of another machine.
func (s *storage) takeAway(server string, r turns.Request, marker device.Marker) (ipc.Stream, error) {
	if s.away == nil {
		return nil, fmt.Errorf("the storage server %.64q is not this machine, or has another name here (storage.names in the settings); other machines are asked only with the setting broker and its certificates", server)
	}
	turn, err := s.away.Take(canonical(server), r, marker)
	return opened(turn, err)
}

// opened returns a turn as a stream.
func opened[T ipc.Stream](turn T, err error) (ipc.Stream, error) {
	if errors.Is(err, turns.ErrTooMany) {
		err = errors.Join(err, ipc.ErrBound)
	}
	if err != nil {
		return nil, err
	}
	return turn, nil
}

// isHere reports whether a storage server is this machine.
func (s *storage) isHere(server string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.names == nil || now.Sub(s.named) > nameAge {
		s.names, s.named = s.namesHere(), now
	}
	return s.names[canonical(server)]
}

// canonical returns the name of a machine as a key.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func (s *storage) namesHere() map[string]bool {
	settings := s.daemon.settings
	names := map[string]bool{}
	for _, name := range settings.Storage.Names {
		names[canonical(name)] = true
	}
	if b := settings.Broker; b != nil {
		names[canonical(b.Node)] = true
	}
	if name, err := os.Hostname(); err == nil {
		names[canonical(name)] = true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			names[ip.IP.String()] = true
		}
	}
	return names
}

// target returns the disk of this machine's storage server.
func (s *storage) target() (turns.Target, error) {
	g, err := s.device()
	if err != nil {
		return turns.Target{}, err
	}
	return turns.Target{Loop: g.loop, Expect: g.expect, Pacer: &s.pacer, Stats: &s.stats}, nil
}

// device returns the device of the storage server's directory. It waits only until the disk was found for the first
// time.
func (s *storage) device() (*governed, error) {
	known := s.found.Load()
	if known != nil && time.Since(known.at) < diskAge {
		return known.governed, nil
	}
	switch {
	case !s.finding.TryLock():
		if known == nil {
			return nil, errors.New("the daemon is still looking for the disk of storage.directory")
		}
		return known.governed, nil
	case known != nil:
		go func() {
			defer s.finding.Unlock()
			s.look()
		}()
		return known.governed, nil
	}
	defer s.finding.Unlock()
	s.look()
	if known = s.found.Load(); known == nil {
		return nil, s.mistake
	}
	return known.governed, nil
}

// look looks for the disk, unless it has just done so. If the disk hangs, the known one stays. s.finding is held.
func (s *storage) look() {
	now := time.Now()
	if now.Sub(s.tried) < findAgain {
		return
	}
	s.tried = now
	known, dir := s.found.Load(), s.daemon.settings.Storage.Directory
	dev, err := s.find(dir)
	if s.mistake = err; known != nil && errors.Is(err, mounts.ErrHangs) {
		return
	}
	if known != nil { // a device that is gone, or whose disk was replaced, ends when it has no directory
		known.addDir(dir, -1)
	}
	var g *governed
	if err == nil {
		g, err = s.daemon.device(dev, dir)
	}
	if s.mistake = err; err != nil {
		s.found.Store(nil)
		return
	}
	s.found.Store(&foundDisk{g, now})
}

// find returns the block device of a directory.
func (s *storage) find(path string) (blockfile.Device, error) {
	if path == "" {
		return blockfile.Device{}, errors.New("a turn at the storage server of this machine: give storage.directory in the settings")
	}
	type found struct {
		dev blockfile.Device
		err error
	}
	f, err := mounts.Do(&s.daemon.calls, 0, path, introduction, func() (f found) {
		dir, err := blockfile.OpenDir(path, sysfs)
		if err != nil {
			return found{err: err}
		}
		return found{dir.Device, dir.Close()}
	}, nil)
	if err = errors.Join(err, f.err); err != nil {
		return blockfile.Device{}, fmt.Errorf("storage.directory: %w", err)
	}
	if !f.dev.Local {
		return blockfile.Device{}, fmt.Errorf("storage.directory %s is not on a disk of this machine", path)
	}
	return f.dev, nil
}

// expect returns how long the device takes for a request at a random place, or for one that continues
// another. Without a profile, the value is between those of SSDs and hard disks.
func (g *governed) expect(write, inOrder bool, bytes int64) time.Duration {
	if g.config.Profiled() {
		return g.config.Cost.Of(write, inOrder, bytes)
	}
	return expect(write, bytes)
}
