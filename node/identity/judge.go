package identity

import (
	"fmt"

	"penstock/node/monitor/owner"
)

// facts are the evidence for or against a claim, collected before the claim is judged.
type facts struct {
	known bool   // the peer is known
	peer  Peer   // if known
	why   string // if not: the reason
	own   bool   // the DataNode reports the operation as its own
	// tokenUser is the user of the block token, owner the user of the claimed application; "" if
	// not known.
	tokenUser, owner string
	rules            []Rule // of named services
	user             string // name of the peer's user, if there are rules
	name             string // that the client gives itself
	// services are the users that DataNodes and balancers run as, by name and by number.
	services    []string
	serviceUIDs map[uint32]bool
	accounts    map[string]bool // by name, for peers on other nodes
}

// judge returns the verdict on a claim to a flow. It holds all the rules and is a pure function.
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
		case named && p.Evidence.proves() && otherStamp(p.Application, flow):
			return Verdict{State: Corrected, Flow: p.Application, Evidence: p.Evidence, Detail: who}
		case named && p.Application != flow:
			return Verdict{State: Refuted, Flow: p.Application, Evidence: p.Evidence, Detail: who}
		case named && p.Evidence.proves():
			return Verdict{State: Confirmed, Flow: flow, Evidence: p.Evidence, Detail: who}
		case f.known && p.Server:
			if v, ok := f.forwarded(flow, who); ok {
				return v
			}
			return byToken(flow, f)
		case f.known && p.Outside:
			if service, by, proven := f.namedService(); proven {
				return Verdict{State: Corrected, Flow: service, Evidence: by, Detail: who}
			}
			// No process outside of containers works for one application.
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
		}
		if v, ok := f.forwarded(flow, who); ok {
			return v
		}
		switch service, by, proven := f.namedService(); {
		case proven:
			return Verdict{State: Corrected, Flow: service, Evidence: by, Detail: who}
		case service != "":
			return Verdict{State: Unknown, Flow: service, Detail: "only the client's name " + quote(f.name)}
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
		case f.known && p.Outside && p.Node != "" && owner.Digits(p.User, 1, 10):
			return unknown("%s: that machine has no name for its user", who)
		case f.known && p.Outside && f.ofService(p):
			return Verdict{State: Confirmed, Flow: flow, Evidence: Account, Detail: who}
		case f.known && p.Outside:
			return Verdict{State: Refuted, Flow: clients, Evidence: Account, Detail: who + ", not a service's user"}
		}
		return f.nothing()
	}
	// No application has such a name. If the claim stood, a process with an invented name would
	// get a weight of its own and would evade its application's limits.
	if !named {
		return Verdict{State: Refuted, Evidence: NoEvidence, Detail: quote(flow) + " is not a flow"}
	}
	return Verdict{State: Refuted, Flow: p.Application, Evidence: p.Evidence, Detail: quote(flow) + " is not a flow; " + who}
}

// verdict returns judge's verdict. It adds the user if the flow does not belong to one
// application.
func (f facts) verdict(flow string) Verdict {
	v := judge(flow, f)
	if v.State == Corrected || classOf(flow) != classGroup && v.Flow != clients {
		return v
	}
	switch p := f.peer; {
	case p.FlowUser != "" && v.Flow == p.Flow:
		v.User = p.FlowUser
	case f.tokenUser != "":
		v.User = f.tokenUser
	case !f.known || p.Server: // a DataNode forwards other clients' data
	case p.Node != "":
		v.User = p.User
	default:
		v.User, _ = userName(p.UID)
	}
	return v
}

// forwarded returns the verdict on a block that a DataNode forwards to the next one, if the node of the first
// DataNode has verified the flow of its client. That client's claim is the one that the second DataNode sees.
func (f facts) forwarded(flow, who string) (Verdict, bool) {
	p := f.peer
	if !f.known || !p.Server || p.Flow == "" {
		return Verdict{}, false
	}
	v := Verdict{State: Confirmed, Flow: p.Flow, Evidence: Server, Detail: who + ", which forwards a block"}
	switch class := classOf(flow); {
	case p.Flow == flow:
	case p.Flow == Unattributed && class == classApplication:
		v.State = Refuted
	default:
		v.State = Corrected
	}
	return v, true
}

// ofService reports whether a peer runs as the user of a service. User numbers are compared only
// on this machine.
func (f facts) ofService(p Peer) bool {
	if p.Node != "" {
		return f.accounts[p.User]
	}
	return f.serviceUIDs[p.UID]
}

// byToken decides about a peer with no known container. A token names the user of the
// application, so it cannot distinguish applications of the same user.
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

// otherStamp reports whether two applications of YARN have time stamps of different ResourceManagers. Hive on
// Spark puts the time of a query in the place of that stamp, in good faith. Nobody gains anything by such a
// claim: the process gets the application that its container proves, as if it had named none.
func otherStamp(a, b string) bool {
	a, b = stampOf(a), stampOf(b)
	return a != "" && b != "" && a != b
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// choose picks one of several processes that hold a connection's end. A process can get another
// process's socket if the other process passes it on, or if it may trace the other process. So the
// connection belongs to an application if any process of that application holds it. No process
// evades its container by passing its socket to a process outside.
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
		case !p.Outside && !p.Server: // the process could not be examined
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
