package identity

import "fmt"

// facts are what speaks for or against a claim, all of it looked up before.
type facts struct {
	known bool   // something is known of the peer
	peer  Peer   // if known
	why   string // if not
	own   bool   // the DataNode does it for itself
	// The block token's user, and the user of the claimed application; "" if not known.
	tokenUser, owner string
	// services are the users that DataNodes and balancers run as, by name and by number.
	services    []string
	serviceUIDs map[uint32]bool
	accounts    map[string]bool // by name, for peers on other nodes
}

// judge is the whole of the rules, without a look at the world.
func judge(flow string, f facts) Verdict {
	p := f.peer
	who := p.who()
	if p.Container != "" {
		who += ", " + p.Evidence.String() + " of " + p.Container
	}
	named := f.known && p.Application != ""
	switch classOf(flow) {
	case classApplication:
		switch {
		case named && p.Application != flow:
			return Verdict{State: Refuted, Flow: p.Application, Evidence: p.Evidence, Detail: who}
		case named && p.Evidence.proves():
			return Verdict{State: Confirmed, Flow: flow, Evidence: p.Evidence, Detail: who}
		case f.known && p.Outside:
			// Nobody outside of containers works for one application.
			if who += ", in no container"; isSparkApplication(flow) {
				who += " and below none of identity's spark_dirs"
			}
			return Verdict{State: Refuted, Flow: clients, Evidence: Outside, Detail: who}
		}
		return byToken(flow, f)

	case classGroup:
		switch {
		case named && p.Evidence.proves():
			return Verdict{State: Corrected, Flow: p.Application, Evidence: p.Evidence, Detail: who}
		case named:
			return unknown("%s, which proves nothing", who)
		case f.known && (p.Outside || p.Server):
			return Verdict{State: Confirmed, Flow: flow, Evidence: Outside, Detail: who}
		}
		return f.nothing()

	case classService:
		switch {
		case f.own:
			return Verdict{State: Confirmed, Flow: flow, Evidence: Own, Detail: "the DataNode's own doing"}
		case named:
			return Verdict{State: Refuted, Flow: p.Application, Evidence: p.Evidence, Detail: who}
		case f.known && p.Server:
			return Verdict{State: Confirmed, Flow: flow, Evidence: Server, Detail: who}
		case f.tokenUser != "" && len(f.services) > 0:
			for _, s := range f.services {
				if s == f.tokenUser {
					return Verdict{State: Confirmed, Flow: flow, Evidence: Token, Detail: "token of " + quote(s)}
				}
			}
			return Verdict{State: Refuted, Flow: clients, Evidence: Token, Detail: "token of " + quote(f.tokenUser)}
		case f.known && p.Outside && p.Node != "" && digits(p.User, 1, 10):
			return unknown("%s: that machine has no name for its user", who)
		case f.known && p.Outside && f.ofService(p):
			return Verdict{State: Confirmed, Flow: flow, Evidence: Account, Detail: who}
		case f.known && p.Outside:
			return Verdict{State: Refuted, Flow: clients, Evidence: Account, Detail: who + ", no service's"}
		}
		return f.nothing()
	}
	// Nobody is such a flow: were it left alone, whoever makes up a name would have a
	// weight of his own, and none of his application's limits.
	if !named {
		return Verdict{State: Refuted, Evidence: NoEvidence, Detail: quote(flow) + " is no flow"}
	}
	return Verdict{State: Refuted, Flow: p.Application, Evidence: p.Evidence, Detail: quote(flow) + " is no flow; " + who}
}

// verdict is judge's, with the user of what belongs to no application.
func (f facts) verdict(flow string) Verdict {
	v := judge(flow, f)
	if v.State == Corrected || classOf(flow) != classGroup && v.Flow != clients {
		return v
	}
	switch p := f.peer; {
	case f.tokenUser != "":
		v.User = f.tokenUser
	case !f.known || p.Server: // a DataNode passes on what others write
	case p.Node != "":
		v.User = p.User
	default:
		v.User, _ = userName(p.UID)
	}
	return v
}

// ofService reports whether a peer runs as a service's user. Numbers of users are their machine's own.
func (f facts) ofService(p Peer) bool {
	if p.Node != "" {
		return f.accounts[p.User]
	}
	return f.serviceUIDs[p.UID]
}

// byToken is for a peer of which no container is known. A token names the user whose the
// application is; among a user's own applications it tells nothing.
func byToken(flow string, f facts) Verdict {
	if f.tokenUser == "" || f.owner == "" {
		return f.nothing()
	}
	detail := fmt.Sprintf("token of %s, application of %s", quote(f.tokenUser), quote(f.owner))
	if f.tokenUser != f.owner {
		return Verdict{State: Refuted, Evidence: Token, Detail: detail}
	}
	return Verdict{State: Confirmed, Flow: flow, Evidence: Token, Detail: detail}
}

func (f facts) nothing() Verdict {
	if f.known {
		return unknown("%s: nothing that proves anything", f.peer.who())
	}
	return unknown("%s", f.why)
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// choose picks one of several processes that hold a connection's end. A process
// gets hold of another's socket if that one passes it on, or if it may trace it; so
// the connection is an application's if any process of that application has it,
// and nobody frees himself of his container by passing his socket out of it.
func choose(flow string, holders []Peer) Peer {
	rank := func(p Peer) int {
		switch class := classOf(flow); {
		case class == classApplication && p.Application == flow && p.Evidence.proves():
			return 0
		case class == classService && p.Server:
			return 0
		case p.Application != "" && p.Evidence.proves():
			return 1 + int(p.Evidence)
		case p.Application != "":
			return 10
		case !p.Outside && !p.Server: // not readable
			return 11
		case p.Outside && !p.Server:
			return 12
		}
		return 13
	}
	best := holders[0]
	for _, p := range holders[1:] {
		if rank(p) < rank(best) {
			best = p
		}
	}
	return best
}
