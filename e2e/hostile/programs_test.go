package hostile

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"penstock/wire"
)

// The attackers' programs. Each runs in a process of its own.

func task(dir string) wire.Hello {
	return wire.Hello{Role: wire.RoleTask, Flow: attacker, Directories: []string{dir}}
}

// floodProgress has Number connections with Streams writers each. They send progress endlessly, as
// fast as the daemon accepts it. Base 1: the peer is an executor.
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
	// All connect before the first opens a stream: when the user's open files are at their bound, the
	// daemon refuses the directories of further connections.
	var agents []*agent
	for range p.Number {
		a, err := connect(p.Socket, h)
		if err != nil {
			return nil, err
		}
		defer a.close()
		agents = append(agents, a)
	}
	for _, a := range agents {
		for s := range uint32(p.Streams) {
			if err := a.say(wire.Open{Stream: s, Direction: wire.Write, Flow: attacker, Path: p.Path}); err != nil {
				return nil, err
			}
		}
		if err := a.out.Flush(); err != nil {
			return nil, err
		}
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

// holdConnections opens Number connections and keeps them as far as it is allowed to. If it loses
// one, it connects again, as an agent does.
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
		if err != nil { // the connection's directory is an open file, too
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

// floodConnects opens connections that the daemon refuses: Number per second, or as many as
// possible if Number is 0. Base selects the reason of the refusal.
func floodConnects(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	h := task(p.Dir)
	switch p.Base {
	case 1: // the user may run tasks, not servers
		h.Role, h.Flow = wire.RoleDataNode, ""
	case 2: // the user may not register this directory
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
			conn.Read(frame) // until the daemon closes the connection
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

// openOthers names files of another user in every possible way. Dir is a directory above them; Path
// is the attacker's own directory.
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
			{Path: own, Meta: p.Path + "/blk_5_1001.meta"}, // a task's files have no meta files
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
		if role == wire.RoleTask { // and the attacker's own file
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
			// A small governed stream is also let through, once it is staged.
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

// holdSessions keeps Number sessions running, one after the other. They send any frames that a peer
// may send, in any order and with any sizes, drawn from Seed. Path is the attacker's own directory,
// where it also makes, cuts and deletes the files that it names. Dir is a directory of another
// user.
func holdSessions(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	var sessions, frames atomic.Int64
	ended := make(chan error, p.Number)
	for i := range p.Number {
		random := rand.New(rand.NewPCG(p.Seed, uint64(i)))
		go func() {
			for {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				n, err := session(p, random)
				frames.Add(int64(n))
				if sessions.Add(1); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	ready()
	var err error
	for range p.Number {
		err = errors.Join(err, <-ended)
	}
	return counts{"sessions": sessions.Load(), "frames": frames.Load()}, err
}

// session is one connection. It is not an error if the daemon ends the connection; it is an error
// if the daemon does not answer.
func session(p plan, random *rand.Rand) (frames int, err error) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	h := wire.Hello{Role: wire.RoleTask, Flow: attacker}
	if random.IntN(3) == 0 {
		h.Role = wire.RoleExecutor
	}
	if p.Base == 1 { // the user may run servers
		h.Role = []wire.Role{wire.RoleDataNode, wire.RoleNodeManager, wire.RoleExecutor, wire.RoleWorker}[random.IntN(4)]
		h.Threads = random.Uint32()
	}
	h.Directories = []string{p.Path}
	for range random.IntN(8) {
		h.Directories = append(h.Directories, pick(p.Path, p.Path+"/sub/none", p.Dir, "/etc", "/", p.Path+"/../"))
	}
	a, err := connect(p.Socket, h)
	if err != nil {
		time.Sleep(100 * time.Millisecond) // the daemon refuses connections that come too fast
		return 0, nil
	}
	defer a.close()
	names := []string{p.Path + "/blk_1", p.Path + "/blk_2", p.Path + "/blk_3", p.Path + "/gone", p.Path + "/sparse", p.Path + "/up/blk_5",
		p.Path + "/link", p.Path, p.Dir + "/blk_5", p.Path + "/../blk_5", "/etc/shadow", "x"}
	metas := append([]string{"", "", p.Path + "/blk_1_1001.meta", p.Dir + "/blk_5_1001.meta"}, names...)
	position := func() int64 {
		switch random.IntN(4) {
		case 0:
			return []int64{0, 1, 4095, 4096, mib, 4 << 40, 1 << 50, 1<<50 + 1, 1 << 62, math.MaxInt64}[random.IntN(10)]
		case 1:
			return random.Int64N(math.MaxInt64)
		}
		return random.Int64N(8 * mib)
	}
	opened := map[uint32]bool{}
	for range random.IntN(2000) {
		stream := random.Uint32N(64)
		var m wire.Message
		switch random.IntN(10) {
		case 0, 1, 2:
			open := wire.Open{
				Stream: stream, Direction: wire.Direction(1 + random.IntN(2)), Kind: wire.Kind(random.IntN(3)),
				Refusable: random.IntN(2) == 0, Patience: random.Uint32N(100_000) >> random.IntN(17), Flow: pick(attacker, attacker, attacker, neighbour, "clients"),
				Path: pick(names...), Meta: pick(metas...), Client: pick("", wire.Own, "127.0.0.1:1"), User: pick("", "a", "b"),
				From: position(), To: position(),
			}
			if open.To < open.From {
				open.From, open.To = open.To, open.From
			}
			if opened[stream] {
				continue // that would end the connection
			}
			opened[stream] = true
			m = open
		case 3:
			delete(opened, stream)
			m = wire.Close{Stream: stream, Position: position(), Failed: random.IntN(2) == 0}
		case 4:
			if err := change(names[random.IntN(5)], random); err != nil {
				return frames, err
			}
			continue
		default:
			m = wire.Progress{Stream: stream, Position: position()}
		}
		if err := a.tell(m); err != nil {
			return frames, nil
		}
		frames++
	}
	if random.IntN(2) == 0 {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	}
	return frames, nil
}

// change writes to a file, cuts it, makes it sparse, or deletes it.
func change(path string, random *rand.Rand) error {
	if random.IntN(8) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	switch random.IntN(4) {
	case 0:
		return f.Truncate(random.Int64N(4 << 40))
	case 1:
		return f.Truncate(random.Int64N(mib))
	}
	_, err = f.WriteAt(make([]byte, 64*kib), random.Int64N(4*mib))
	return err
}

// readInContainer is a DataNode with one directory that reads a block.
func readInContainer(p plan, ready func(), stop <-chan struct{}) (counts, error) {
	a, err := connect(p.Socket, wire.Hello{Role: wire.RoleDataNode, Directories: []string{p.Dir}, Threads: 4096})
	if err != nil {
		return nil, err
	}
	defer a.close()
	if err := a.tell(wire.Open{Stream: 1, Direction: wire.Read, Flow: neighbour, Path: p.Path, To: 4 * mib}); err != nil {
		return nil, err
	}
	ready()
	<-stop
	return counts{"device": int64(a.welcome.Devices[0])}, nil
}
