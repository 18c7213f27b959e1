// Package identity verifies the flow that an agent names, with evidence about the process behind
// the connection.
//
// Problem: the name of a DFSClient is free text. A client that writes another application's name
// into it would get that application's share. There is other evidence: the user of the block
// token, if tokens are on; and the process at the other end of the connection, if it runs on this
// node (the kernel names it through the inode of the socket). A process can change much of what
// describes it: environment, command line, working directory, parent. It cannot change its
// cgroup. It can leave its session, but never join another one. So evidence has an order: first
// the cgroup; then the session, which the NodeManager records for each container at its start;
// then the directory; and last the environment, which can refute a claim but never confirm one.
//
// Choices: a check never delays I/O. A Checker answers at once from what it knows, or later. It
// makes one lookup per connection, however many streams use the connection. Workers, queue, cache
// and lookup time have limits; beyond a limit the answer is Unknown and is counted. A pure
// function, the Mode, decides what a verdict means for a stream. docs/design/identity.md lists
// the evidence in each kind of cluster, and what can still be forged.
package identity

import "fmt"

// Claim is one operation as reported by the DataNode's agent.
type Claim struct {
	Flow string // the flow that the operation names
	// Client and Server are the ends of its TCP connection, as ip:port; "" if they are unknown,
	// as for a domain socket.
	Client, Server string
	// Own: no client requested the operation; the DataNode reports it as its own.
	Own  bool
	User string // of the block token; "" without a token
	// Name is the name that the client gives itself, if it names no application; "" if it is not known.
	Name string
	// Block is the name of the block's file that a DataNode writes for its client; "" for other operations. Writing is a
	// number of this operation, above 0, so that its verdict does not wait for itself.
	Block   string
	Writing int64
}

// State is the result of checking a claim.
type State uint8

const (
	// Unknown: there is no evidence for or against the claim.
	Unknown State = iota
	// Confirmed: the stream belongs to the flow.
	Confirmed
	// Corrected: the claim is not a forgery, but the process belongs to another flow. A process in a
	// container named no application (`clients`, `unattributed`), or one with a time stamp that its
	// cluster does not use: Flow is its application. Or a process in no container is a named service's.
	Corrected
	// Refuted: evidence says that the claim is false.
	Refuted

	states = int(Refuted) + 1
)

func (s State) String() string { return stateNames[min(int(s), states)] }

var stateNames = [states + 1]string{"unknown", "confirmed", "corrected", "refuted", "invalid"}

// Evidence is the kind of evidence for a verdict. The kinds for a container come first, the
// strongest at the top.
type Evidence uint8

const (
	NoEvidence Evidence = iota
	// Cgroup: the kernel's cgroup path names the container. Only root can fake it.
	Cgroup
	// Session: the process, or an ancestor, is in the session that the NodeManager recorded for
	// the container. Only root and the NodeManager's user can fake it.
	Session
	// Directory: the working directory, or the command line of an ancestor, is in the container's
	// directory, which belongs to the user of the process. Any process of that user can fake it.
	Directory
	// Environment: the variable CONTAINER_ID, or a container's directory for which the conditions
	// of Directory could not be verified. Any process can fake it, so it can refute a claim but
	// never confirms one.
	Environment
	// Token: the user of the block token is, or is not, the user of the application.
	Token
	// Server: the process is a DataNode or NodeManager with an agent.
	Server
	// Account: the process is in no container, and its user is, or is not, the user of a service.
	Account
	// Outside: the process is in no container.
	Outside
	// Own: the DataNode reports the operation as its own.
	Own
	// Address: the peer has the address of a pod of this machine, as the orchestrator reports it. Only
	// root, and the network of the cluster, can fake it.
	Address
	// Named: the process is in no container, and a rule names the service that it belongs to. The user is
	// certain if the rule has one; the program is what the process shows.
	Named

	evidences = int(Named) + 1
)

func (e Evidence) String() string { return evidenceNames[min(int(e), evidences)] }

var evidenceNames = [evidences + 1]string{
	"none", "cgroup", "session", "directory", "environment", "token", "server", "account", "outside", "own", "address", "rule", "invalid",
}

// proves reports whether this evidence for a container is enough to confirm a claim.
func (e Evidence) proves() bool { return e >= Cgroup && e <= Directory || e == Address }

// Verdict is the result for one claim.
type Verdict struct {
	State State
	// Flow is the flow that the evidence names: the claimed one if Confirmed; the application's, a named
	// service's or `clients` if Corrected or Refuted; if Unknown, the flow that a rule gives a client with
	// this name. It is "" if there is none.
	Flow     string
	Evidence Evidence
	// User is a client's short name, or its number if the machine has no name for it. It is the
	// block token's user, or the owner of the process. It is "" for the flow of an application,
	// and if the user is unknown.
	User   string
	Detail string // for the log: pids, container ids, reasons; no secrets
}

func unknown(format string, args ...any) Verdict {
	return Verdict{Detail: fmt.Sprintf(format, args...)}
}

// Mode is the treatment of claims.
type Mode uint8

const (
	// Trust: nothing is checked, all claims count.
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

// Flow returns the flow of a stream that claimed a flow and got verdict v. The zero Verdict
// stands for a verdict that is still missing.
//
// The stream of a refuted claim goes to the unattributed flow, unless a cgroup names the
// process's application: then it goes to that application, since cgroup evidence is certain.
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
	switch {
	case m == Strict:
		return Unattributed
	case v.Flow != "":
		return v.Flow
	}
	return claimed
}
