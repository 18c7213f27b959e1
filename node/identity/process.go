package identity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/monitor/owner"
	"penstock/node/mounts"
)

// Peer describes the process at the other end of a connection.
type Peer struct {
	PID         int
	UID         uint32
	Application string // "" if it is in no container, or if nothing is known
	Container   string
	Evidence    Evidence // for the application
	// Outside: the process is in no container of an application.
	Outside bool
	// OnHost: it is in no container of Kubernetes or Mesos either, where an image can have any user. Program
	// is then the name of its program, if it is known.
	OnHost  bool
	Program string
	// Server: the process is a DataNode or NodeManager with an agent. Flow and FlowUser are then the flow and the
	// user of the block that it forwards, as its own node has verified them; "" if that is not known.
	Server         bool
	Flow, FlowUser string
	Detail         string // why nothing is known
	// Node and User are set for a peer on another node: the node's name, and the name of the user
	// there. PID, UID and Container are then unknown.
	Node, User string
}

func (p Peer) who() string {
	if p.Evidence == Address {
		return "another network namespace"
	}
	if p.Node != "" {
		return fmt.Sprintf("node %s, user %s", quote(p.Node), quote(p.User))
	}
	return fmt.Sprintf("pid %d, user %d", p.PID, p.UID)
}

// maxAncestors is the maximum number of ancestors that are examined.
const maxAncestors = 64

// inspector examines processes.
type inspector struct {
	proc    proc
	cgroup  string // the NodeManager's cgroups.hierarchy
	records *records
	users   Users
	servers func(l life) bool
	// containers are those of Kubernetes and Mesos; nil: they are not known.
	containers Containers
}

// inspect finds a process's container. All that it reads belongs to one process: the start time
// of the pid is the same before and after.
func (in *inspector) inspect(ctx context.Context, pid int, since time.Time) (Peer, error) {
	self, err := in.proc.life(pid)
	if err != nil {
		return Peer{}, err
	}
	if self.zombie {
		return Peer{}, errGone
	}
	status, err := in.proc.status(pid)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{PID: pid, UID: status.uid}
	if err := in.find(ctx, self, since, &p); err != nil {
		return Peer{}, err
	}
	p.Server = p.Application == "" && in.servers != nil && in.servers(self)
	if p.OnHost && !p.Server {
		p.Program = in.proc.program(pid)
	}
	after, err := in.proc.life(pid)
	if err != nil || after.start != self.start {
		return Peer{}, errGone
	}
	return p, nil
}

func (in *inspector) find(ctx context.Context, self life, since time.Time, p *Peer) error {
	text, err := in.proc.read(self.pid, "cgroup", maxCgroup)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without cgroups
		return err
	}
	missing, o := "", orchestrated(string(text))
	if in.containers != nil && o.Kind != owner.None {
		c, known := in.containers.Of(o)
		if c.Application != "" { // whatever names root of the container has chosen below its cgroup
			p.name(c.Name, c.Application, Cgroup)
			return nil
		}
		if !known {
			missing = o.String()
		}
	}
	if id := containerOfCgroup(string(text), in.cgroup); id != "" {
		p.name(id, owner.ApplicationOf(id), Cgroup)
		return nil
	}
	if err := in.findInYARN(ctx, self, since, p); err != nil {
		return err
	}
	if missing != "" && p.Outside {
		// The container may belong to an application.
		p.Outside, p.Detail = false, missing+" is not known to its orchestrator, or not yet"
	}
	p.OnHost = p.Outside && o.Kind == owner.None
	return nil
}

// findInYARN looks for a process among the containers of NodeManagers, and of Spark's standalone workers.
func (in *inspector) findInYARN(ctx context.Context, self life, since time.Time, p *Peer) error {
	line, err := in.line(ctx, self)
	if err != nil {
		return err
	}
	id, complete := in.records.lookup(line, since)
	if id != "" {
		p.name(id, owner.ApplicationOf(id), Session)
		return nil
	}
	return in.weakerEvidence(ctx, line, complete, p)
}

func (p *Peer) name(container, application string, e Evidence) {
	p.Container, p.Application, p.Evidence = container, application, e
}

// line returns a process and its ancestors, the nearest first.
func (in *inspector) line(ctx context.Context, self life) ([]life, error) {
	line := []life{self}
	for l := self; l.parent > 1 && len(line) < maxAncestors; {
		if ctx.Err() != nil {
			return nil, errTime
		}
		parent, err := in.proc.life(l.parent)
		if err != nil {
			// The parent has ended in the meantime, and its children have got another parent: the
			// known ancestors end here.
			break
		}
		if parent.start > l.start {
			break // another process has the pid by now
		}
		line = append(line, parent)
		l = parent
	}
	return line, nil
}

// weakerEvidence collects the weaker evidence, which is used if there are no records: working directories
// (a process can enter any directory, but cannot create one under another user's) and environments.
// A standalone Spark worker keeps no records. If recorded is true, the NodeManagers' records are
// complete, and this evidence does not count for their containers.
func (in *inspector) weakerEvidence(ctx context.Context, line []life, recorded bool, p *Peer) error {
	if recorded && !in.records.standalone() {
		p.Outside = true
		return nil
	}
	var byDirectory, byEnvironment place
	proven := false
	for i, l := range line {
		if ctx.Err() != nil {
			return errTime
		}
		place, ok, certain, err := in.directory(l, i > 0, p.UID)
		if err != nil && i == 0 {
			return fmt.Errorf("working directory: %w", err)
		}
		if ok && recorded && !isSparkApplication(place.application) {
			ok = false
		}
		if ok { // the process can influence the outermost directory least
			byDirectory, proven = place, certain
		}
		if recorded || byEnvironment.container != "" {
			continue
		}
		text, err := in.proc.read(l.pid, "environ", maxEnviron)
		if err != nil && i == 0 && !errors.Is(err, errLong) {
			return fmt.Errorf("environment: %w", err)
		}
		if id := containerOfEnviron(text); id != "" {
			byEnvironment.container, byEnvironment.application = id, owner.ApplicationOf(id)
		} else if errors.Is(err, errLong) && i == 0 {
			return fmt.Errorf("environment: %w", err)
		}
	}
	switch {
	case proven:
		p.name(byDirectory.container, byDirectory.application, Directory)
	case byDirectory.application != "":
		p.name(byDirectory.container, byDirectory.application, Environment)
	case byEnvironment.application != "":
		p.name(byEnvironment.container, byEnvironment.application, Environment)
	default:
		p.Outside = true
	}
	return nil
}

// directory looks for a container's directory in a process's working directory and, for an
// ancestor, in its command line. certain reports whether user uid owns the directory, it really
// is the directory of that name, and the application belongs to the user.
func (in *inspector) directory(l life, ancestor bool, uid uint32) (p place, ok, certain bool, err error) {
	link := in.proc.file(l.pid, "cwd")
	cwd, err := os.Readlink(link)
	if err == nil {
		if dir, p, ok := in.records.placeIn(cwd); ok {
			return p, true, in.certain(dir, p, uid) && in.really(link, dir, filepath.Clean(cwd)), nil
		}
	}
	if !ancestor {
		return place{}, false, false, err
	}
	text, err := in.proc.read(l.pid, "cmdline", maxCommand)
	if err != nil && !errors.Is(err, errLong) {
		return place{}, false, false, err
	}
	eachArgument(text, func(arg string) bool {
		var dir string
		dir, p, ok = in.records.placeIn(arg)
		certain = ok && in.certain(dir, p, uid)
		return !ok
	})
	return p, ok, certain, nil
}

// certain reports whether a place can be trusted: user uid owns the directory, and the
// application belongs to the user in whose directory it is.
func (in *inspector) certain(dir string, p place, uid uint32) bool {
	type found struct {
		st unix.Stat_t
		ok bool
	}
	f, _ := mounts.Do(in.records.calls, 0, dir, diskPatience, func() (f found) {
		f.st, f.ok = beneath(dir, p.path)
		return f
	}, nil)
	return f.ok && f.st.Uid == uid && (p.user == "" || in.user(p.application) == p.user)
}

// really is the function of this name, for a disk that may hang.
func (in *inspector) really(link, dir, name string) bool {
	is, _ := mounts.Do(in.records.calls, 0, dir, diskPatience, func() bool { return really(link, dir, name) }, nil)
	return is
}

// really reports whether the target of a process's link is the file that this daemon sees at that
// name below dir. A process in a mount namespace of its own can have anything at any path.
func really(link, dir, name string) bool {
	ours, ok := beneath(dir, strings.TrimPrefix(name, dir+"/"))
	var theirs unix.Stat_t
	return ok && unix.Stat(link, &theirs) == nil && theirs.Dev == ours.Dev && theirs.Ino == ours.Ino
}

// user returns the user of an application, from the ResourceManager's table or the local
// directories.
func (in *inspector) user(application string) string {
	if in.users != nil {
		if user, ok := in.users.User(application); ok {
			return ShortName(user)
		}
	}
	return in.records.user(application)
}
