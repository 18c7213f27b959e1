package hostile

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/wire"
)

// The attackers' programs. They run in processes of their own.

func task(dir string) wire.Hello {
	return wire.Hello{Role: wire.RoleTask, Flow: attacker, Directories: []string{dir}}
}

// floodProgress has Number connections of Streams writers each that send progress without
// end, one write after the other, as fast as the daemon takes it. Base 1: of an executor.
func floodProgress(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	h := task(p.Dir)
	if p.Base == 1 {
		h.Role = wire.RoleExecutor
	}
	f, err := os.Create(p.Path)
	if err != nil {
		return nil, err
	}
	defer os.Remove(p.Path)
	if err := f.Truncate(1 << 40); err != nil {
		return nil, err
	}
	var agents []*agent
	for range p.Number {
		a, err := connect(p.Socket, h)
		if err != nil {
			return nil, err
		}
		defer a.close()
		for s := range uint32(p.Streams) {
			if err := a.say(wire.Open{Stream: s, Direction: wire.Write, Flow: attacker, Path: p.Path}); err != nil {
				return nil, err
			}
		}
		if err := a.out.Flush(); err != nil {
			return nil, err
		}
		agents = append(agents, a)
	}
	var frames atomic.Int64
	failed := make(chan error, len(agents))
	for _, a := range agents {
		go func() {
			for pos := int64(1); ; pos++ {
				for s := range uint32(p.Streams) {
					if err := a.say(wire.Progress{Stream: s, Position: pos}); err != nil {
						failed <- err
						return
					}
				}
				frames.Add(int64(p.Streams))
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
			}
		}()
	}
	ready()
	begin := time.Now()
	for range agents {
		err = errors.Join(err, <-failed)
	}
	return counts{"frames": frames.Load(), "milliseconds": time.Since(begin).Milliseconds()}, err
}

// holdConnections tries to have Number connections and keeps those that it gets, connecting again
// where it loses one, as an agent does.
func holdConnections(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	var held, refused atomic.Int64
	settled := make(chan struct{}, p.Number)
	for range p.Number {
		go func() {
			for first := true; ; first = false {
				a, err := connect(p.Socket, task(p.Dir))
				if err != nil {
					refused.Add(1)
				} else {
					held.Add(1)
				}
				if first {
					settled <- struct{}{}
				}
				for err == nil {
					a.mu.Lock()
					ended, changed := a.ended, a.changed
					a.mu.Unlock()
					if ended {
						held.Add(-1)
						break
					}
					<-changed
				}
				time.Sleep(500 * time.Millisecond)
			}
		}()
	}
	for range p.Number {
		<-settled
	}
	ready()
	<-stop
	return counts{"held": held.Load(), "refused": refused.Load()}, nil
}

// openFiles has Number connections and opens Streams files on each.
func openFiles(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	f, err := os.Create(fmt.Sprintf("%s.%d", p.Path, os.Getpid()))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	var agents []*agent
	var governed, let, refused int64
	for range p.Number {
		a, err := connect(p.Socket, task(p.Dir))
		if err != nil { // its directory is an open file, too
			refused++
			continue
		}
		for s := range uint32(p.Streams) {
			if err := a.say(wire.Open{Stream: s, Direction: wire.Write, Flow: attacker, Path: f.Name()}); err != nil {
				return nil, err
			}
		}
		if err := a.out.Flush(); err != nil {
			return nil, err
		}
		agents = append(agents, a)
	}
	for _, a := range agents {
		for s := range uint32(p.Streams) {
			if mark, opened := a.await(s, 0, patience); opened {
				return nil, errors.New("the daemon does not answer")
			} else if mark == wire.Unlimited {
				let++
			} else {
				governed++
			}
		}
	}
	ready()
	<-stop
	for _, a := range agents {
		a.close()
	}
	return counts{"governed": governed, "let": let, "refused": refused}, nil
}

// floodConnects connects to be refused: Number times a second, 0 as fast as it can. Base is
// what it is refused for.
func floodConnects(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	h := task(p.Dir)
	switch p.Base {
	case 1: // a task's user is no server's
		h.Role, h.Flow = wire.RoleDataNode, ""
	case 2: // no directory that it may have
		h.Directories = []string{"/etc"}
	case 3: // no flow
		h.Flow = ""
	}
	ready()
	c := counts{}
	for {
		conn, err := net.Dial("unix", p.Socket)
		switch {
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ECONNREFUSED):
			c["full"]++
		case err != nil:
			return nil, err
		default:
			frame, err := wire.Append(nil, h)
			if p.Base == 4 && err == nil { // an agent of another version
				frame[3] = wire.Version + 1
			}
			if err != nil {
				return nil, err
			}
			conn.SetDeadline(time.Now().Add(greeting))
			conn.Write(frame)
			conn.Read(frame) // until it is hung up on
			conn.Close()
			c["refused"]++
		}
		pause := time.Duration(0)
		if p.Number > 0 {
			pause = time.Second / time.Duration(p.Number)
		}
		select {
		case <-stop:
			return c, nil
		case <-time.After(pause):
		}
	}
}

// openOthers names files of another user in every way there is; Dir is a directory above
// them, Path its own.
func openOthers(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	c := counts{}
	for _, role := range []wire.Role{wire.RoleTask, wire.RoleExecutor} {
		h := task(p.Dir)
		h.Role = role
		a, err := connect(p.Socket, h)
		if err != nil {
			return nil, err
		}
		defer a.close()
		own, stream := p.Path+"/blk_5", uint32(0)
		for _, open := range []wire.Open{
			{Path: p.Dir + "/blk_5"},
			{Path: p.Dir + "/blk_5_1001.meta"},
			{Path: p.Dir + "/blk_5", Meta: p.Dir + "/blk_5_1001.meta"},
			{Path: own, Meta: p.Dir + "/blk_5_1001.meta"},
			{Path: own, Meta: p.Path + "/blk_5_1001.meta"}, // a task's files have none
			{Path: p.Dir + "/../data/blk_6"},
			{Path: p.Path + "/link"},
			{Path: p.Path + "/up/blk_5"},
			{Path: p.Path + "/hard"},
			{Path: p.Path + "/../blk_5"},
			{Path: p.Path},
			{Path: "/etc/shadow"},
		} {
			for _, direction := range []wire.Direction{wire.Read, wire.Write} {
				for _, kind := range []wire.Kind{wire.Persistent, wire.Intermediate} {
					stream++
					open.Stream, open.Direction, open.Kind, open.Flow, open.To = stream, direction, kind, attacker, mib
					if err := a.tell(open); err != nil {
						return nil, err
					}
				}
			}
		}
		streams := stream
		if role == wire.RoleTask { // and its own
			streams++
			if err := a.tell(wire.Open{Stream: streams, Direction: wire.Read, Flow: attacker, Path: own, To: mib}); err != nil {
				return nil, err
			}
		}
		for s := uint32(1); s <= streams; s++ {
			mark, opened := a.await(s, 0, patience)
			if opened {
				return nil, errors.New("the daemon does not answer")
			}
			c["opens"]++
			// What is governed and small is let through too, once it is staged.
			if s <= stream && mark == wire.Unlimited {
				c["let"]++
			} else {
				c["governed"]++
			}
		}
	}
	ready()
	<-stop
	return c, nil
}
