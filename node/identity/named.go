package identity

import (
	"slices"
	"strconv"
	"strings"

	"penstock/core/policy"
	"penstock/node/monitor/owner"
)

// Named services are long-lived clients of HDFS that run in no container, such as the servers of HBase
// and Impala. Their client names do not distinguish them from a shell. So the operator's rules name
// them by what the machine knows about their processes. A rule is as good evidence as its conditions:
//
//   - The user is certain: it comes from the kernel, or from the node of the client, or from a block token.
//   - The program is what the user's process shows. Any process of that user can show the same.
//   - The client's name is a claim. A rule with nothing else never confirms anything.

// NamedFlow is the prefix of the names of flows of named services. No claim to such a flow counts:
// a process gets it only by a rule.
const NamedFlow = "service:"

// AnyUser is the user of a rule that does not look at the user.
const AnyUser = "*"

// Rule names the processes of a service. All its conditions must hold.
type Rule struct {
	Name string // the flow is NamedFlow and the name
	// User is the name of the process's user; or the user's number, which is valid on this machine
	// only; or AnyUser.
	User string
	// Program is a pattern for the program (see program); "": any. A pattern without a dot is also compared
	// with the name of a main class without its package.
	Program string
	// Client is a pattern for the name that the client gives itself; "": any.
	Client string
}

// Flow returns the flow of the rule's service.
func (r Rule) Flow() string { return NamedFlow + r.Name }

// namedService returns the service of a process, or of a client whose process is not known. proven reports
// whether more than the client's own claim speaks for it. The first rule that matches counts.
func (f *facts) namedService() (flow string, by Evidence, proven bool) {
	if f.known && !(f.peer.Outside && f.peer.OnHost) || f.peer.Server || f.own {
		return "", NoEvidence, false
	}
	for _, r := range f.rules {
		if by, proven, ok := r.match(f); ok {
			return r.Flow(), by, proven
		}
	}
	return "", NoEvidence, false
}

// match reports whether a rule's conditions hold, and returns the evidence.
func (r *Rule) match(f *facts) (by Evidence, proven, ok bool) {
	if r.Client != "" && (f.name == "" || !policy.Match(r.Client, f.name)) {
		return NoEvidence, false, false
	}
	if !f.known { // only a token shows the user, and nothing shows the program
		switch {
		case r.Program != "":
			return NoEvidence, false, false
		case r.User == AnyUser:
			return NoEvidence, false, r.Client != ""
		}
		return Token, true, f.tokenUser != "" && f.tokenUser == r.User
	}
	if !r.ofUser(f.peer, f.user) || !r.ofProgram(f.peer.Program) {
		return NoEvidence, false, false
	}
	return Named, r.User != AnyUser || r.Program != "", true
}

// ofUser reports whether a rule is for a process's user. name is the user's name on the machine of
// the process.
func (r *Rule) ofUser(p Peer, name string) bool {
	switch {
	case r.User == AnyUser:
		return true
	case owner.Digits(r.User, 1, 10):
		return p.Node == "" && r.User == strconv.FormatUint(uint64(p.UID), 10)
	}
	return name == r.User
}

func (r *Rule) ofProgram(program string) bool {
	if r.Program == "" {
		return true
	}
	if program == "" {
		return false
	}
	if policy.Match(r.Program, program) {
		return true
	}
	simple := program[strings.LastIndexByte(program, '.')+1:]
	return !strings.Contains(r.Program, ".") && policy.Match(r.Program, simple)
}

// examined adds a peer to the facts.
func (f *facts) examined(p Peer) {
	f.peer, f.known = p, true
	if len(f.rules) == 0 || !p.OnHost || p.Server {
		return
	}
	if f.user = p.User; p.Node == "" {
		f.user, _ = userName(p.UID)
	}
}

// Rules returns the rules in force. They must not be changed.
func (c *Checker) Rules() []Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rules
}

// SetRules replaces the rules of named services. Verdicts so far are forgotten. Operations that are
// open keep their flow.
func (c *Checker) SetRules(rules []Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(c.rules, rules) {
		return
	}
	c.rules = slices.Clone(rules)
	c.ruleSet++
	c.cache.Purge()
}

// clientPrefix begins a claim that names no application, and has the name that the client gives
// itself.
const clientPrefix = "client:"

// Claimed returns the flow that an agent claims for a client, and the name that the client gives
// itself; "" if the claim does not have it.
func Claimed(claim string) (flow, name string) {
	if name, ok := strings.CutPrefix(claim, clientPrefix); ok {
		return Unattributed, name
	}
	return claim, ""
}
