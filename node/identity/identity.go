// Package identity holds the flow that an agent names against what the machine
// itself knows of the process behind it.
//
// Problem: a DFSClient's name is free text, so whoever writes another
// application's name into it would get that application's share. What can be had
// instead of the name: the block token's user, where tokens are on; and the
// process at the other end of the connection, if it runs on this node, which the
// kernel names by way of the socket's inode. A process says much about itself
// that it can also change (environment, command line, working directory, parent);
// it cannot change its cgroup, and can leave its session but never join another
// one. So evidence has an order: the cgroup first, then the session, which
// the NodeManager records for each container when it starts, then the directory,
// and last the environment, which may speak against a claim but never for one.
//
// Choices: asking never delays I/O. A Checker answers from what it knows, or
// later; it makes one lookup for a connection however many streams come by it;
// workers, queue, cache and the time of a lookup have bounds, and past one of
// them the answer is Unknown and counted. What a verdict means for a stream is
// decided by the Mode, a pure function. docs/design/identity.md says what each
// kind of cluster can rely on, and what can still be forged.
package identity

import "fmt"

// Claim is one operation as the DataNode's agent tells it.
type Claim struct {
	Flow string // that it names
	// Client and Server are the ends of its TCP connection, as ip:port; "" if nobody
	// knows them, as those of a domain socket.
	Client, Server string
	// Own: nobody asked for it, the DataNode says that it does it for itself.
	Own  bool
	User string // the block token's; "" without one
}

// State is what was found out about a claim.
type State uint8

const (
	// Unknown: nothing speaks for or against it.
	Unknown State = iota
	// Confirmed: the flow is the stream's.
	Confirmed
	// Corrected: a process that named no application (`clients`, `unattributed`) is in
	// a container. It did not lie, but it may not hide either: Flow is its application's.
	Corrected
	// Refuted: evidence says that the claim is false.
	Refuted

	states = int(Refuted) + 1
)

func (s State) String() string { return stateNames[min(int(s), states)] }

var stateNames = [states + 1]string{"unknown", "confirmed", "corrected", "refuted", "invalid"}

// Evidence is the kind of evidence that a verdict rests on. The ones for a
// container come first, the strongest at the top.
type Evidence uint8

const (
	NoEvidence Evidence = iota
	// Cgroup: the kernel's cgroup path names the container. Only root can fake it.
	Cgroup
	// Session: the process, or an ancestor, is in the session that the NodeManager
	// recorded for the container. Only the NodeManager's user and root can fake it.
	Session
	// Directory: working directory or an ancestor's command line lie in the container's
	// directory, which belongs to the process's user. Any process of that user can fake it.
	Directory
	// Environment: CONTAINER_ID, or a directory against the NodeManager's record. Anybody
	// can fake it, so it may refute and never confirms.
	Environment
	// Token: the block token's user is, or is not, the application's.
	Token
	// Server: the process is an agent's DataNode or NodeManager.
	Server
	// Account: the process is in no container and runs, or does not, as a service's user.
	Account
	// Outside: the process is in no container.
	Outside
	// Own: the DataNode did it for itself.
	Own

	evidences = int(Own) + 1
)

func (e Evidence) String() string { return evidenceNames[min(int(e), evidences)] }

var evidenceNames = [evidences + 1]string{
	"none", "cgroup", "session", "directory", "environment", "token", "server", "account", "outside", "own", "invalid",
}

// proves reports whether evidence for a container is enough to confirm a claim.
func (e Evidence) proves() bool { return e >= Cgroup && e <= Directory }

// Verdict is the answer to a claim.
type Verdict struct {
	State State
	// Flow is the one that the evidence names: the claimed one if Confirmed, the
	// application's or `clients` if Corrected or Refuted, "" if it names none.
	Flow     string
	Evidence Evidence
	// User is a client's short name, or its number on a machine that has no name for it: the block
	// token's, or whom the process belongs to. It is "" for flows of one application, and
	// where nobody knows.
	User   string
	Detail string // for the log: pids, container ids, why not; no secrets
}

func unknown(format string, args ...any) Verdict {
	return Verdict{Detail: fmt.Sprintf(format, args...)}
}

// Mode is how claims are treated.
type Mode uint8

const (
	// Trust: nothing is asked, claims count.
	Trust Mode = iota
	// Verify: a claim counts until it is refuted.
	Verify
	// Strict: a claim counts once it is confirmed.
	Strict
)

// ParseMode reads trust, verify or strict.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return Trust, fmt.Errorf("identity %q: give trust, verify or strict", s)
}

func (m Mode) String() string { return modeNames[min(m, Strict)] }

var modeNames = [...]string{"trust", "verify", "strict"}

// Unattributed is the flow of streams whose claim does not count.
const Unattributed = "unattributed"

// Flow is the flow of a stream that claimed one and got verdict v. The zero
// Verdict stands for one that is not there yet.
//
// A refuted claim is worth the unattributed flow, not the liar's own one: what he
// asked for is not repaired but refused. Where the cgroup names his application the
// stream goes there, as there is then no doubt whose it is.
func (m Mode) Flow(claimed string, v Verdict) string {
	if m == Trust {
		return claimed
	}
	switch v.State {
	case Confirmed, Corrected:
		return v.Flow
	case Refuted:
		if v.Evidence == Cgroup && v.Flow != "" {
			return v.Flow
		}
		return Unattributed
	}
	if m == Strict {
		return Unattributed
	}
	return claimed
}
