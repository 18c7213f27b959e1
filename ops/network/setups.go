package network

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// SetUp is a kind of network between the two ends of a connection.
type SetUp struct {
	Name  string
	About string
	// Bridge gives each process a namespace of its own, with a link to a bridge. Otherwise all processes are in
	// one namespace and use its loopback.
	Bridge bool
	// Filter makes the bridge pass packets to iptables, with the rules that Docker makes.
	Filter bool
	// Published makes clients use the servers' published ports at the address of the bridge, so that addresses are
	// translated.
	Published bool
	// Launch, if not nil, starts the process of a container, which it may do by a container runtime. The command
	// has its path, environment and files. The process must be in a network namespace of its own and in the
	// caller's PID namespace. end ends the process; it is always called.
	Launch func(cmd *exec.Cmd) (pid int, end func() error, err error)
	// Accelerate, if not nil, is called when all containers run and none is connected. It makes the
	// connections faster. The function that it returns is called after the measurement, also after a failure.
	Accelerate func(context.Context, *Site) (undo func() error, err error)
}

// Names of set-ups.
const (
	Host         = "host"
	Bridge       = "bridge"
	BridgeFilter = "bridge-filter"
	BridgeNAT    = "bridge-nat"
	// Joined is bridge-nat with the remedy, which joins the sockets of containers (SetUp.Accelerate). SetUps does not have it,
	// because it changes more than namespaces of its own; it is measured by lab/bench/network.
	Joined = "joined"
)

// SetUps returns all set-ups. Each one adds one step to the way of a packet.
func SetUps() []SetUp {
	return []SetUp{
		{Name: Host, About: "two processes, loopback"},
		{Name: Bridge, About: "containers on a bridge that passes packets to no rules", Bridge: true},
		{Name: BridgeFilter, About: "the same, with Docker's rules and connection tracking", Bridge: true, Filter: true},
		{Name: BridgeNAT, About: "the same, through a published port", Bridge: true, Filter: true, Published: true},
	}
}

// Find returns the set-ups with the given names, in the order of SetUps.
func Find(names []string) (found []SetUp, err error) {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var all []string
	for _, s := range SetUps() {
		if all = append(all, s.Name); wanted[s.Name] {
			found = append(found, s)
			delete(wanted, s.Name)
		}
	}
	for _, n := range names {
		if wanted[n] {
			return nil, fmt.Errorf("no set-up %q: the set-ups are %s", n, strings.Join(all, ", "))
		}
	}
	return found, nil
}

// MaxPairs bounds the number of pairs of containers. Each pair is two processes and two namespaces.
const MaxPairs = 128

const (
	bridgeName    = "bridge"
	portsPerPair  = 2 // a stream in each direction
	firstPort     = 7000
	firstPublic   = 20000
	clientNetwork = 2 // third byte of the clients' addresses
	serverNetwork = 1
)

// subnet is the containers' network. It exists in namespaces of the measurement only. It is of the range for
// benchmarks (RFC 2544).
var (
	subnet        = netip.MustParsePrefix("198.18.0.0/16")
	bridgeAddress = netip.AddrFrom4([4]byte{198, 18, 0, 1})
)

func clientAddress(pair int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, clientNetwork, byte(pair + 1)})
}

func serverAddress(pair int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, serverNetwork, byte(pair + 1)})
}

// listenAt returns where the server of a pair listens for its connection number n, counted from 0.
func (s SetUp) listenAt(pair, n int) netip.AddrPort {
	a := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if s.Bridge {
		a = serverAddress(pair)
	}
	return netip.AddrPortFrom(a, uint16(firstPort+pair*portsPerPair+n))
}

// connectTo returns where the client of a pair connects to for the connection.
func (s SetUp) connectTo(pair, n int) netip.AddrPort {
	if s.Published {
		return netip.AddrPortFrom(bridgeAddress, uint16(firstPublic+pair*portsPerPair+n))
	}
	return s.listenAt(pair, n)
}

// rules returns the input of iptables-restore for a number of pairs. They are those that Docker makes for a network
// without its proxy for published ports (--userland-proxy=false): a chain of translations that
// PREROUTING and OUTPUT use, masquerading of what leaves the bridge, and a chain of exceptions for published ports.
func (s SetUp) rules(pairs int) string {
	var translate, accept, masquerade strings.Builder
	for pair := range pairs {
		for n := range portsPerPair {
			to := s.listenAt(pair, n)
			public := firstPublic + pair*portsPerPair + n
			for _, protocol := range []string{TCP, UDP} {
				fmt.Fprintf(&translate, "-A DOCKER -p %s -m %[1]s --dport %d -j DNAT --to-destination %v\n", protocol, public, to)
				fmt.Fprintf(&masquerade, "-A POSTROUTING -s %v/32 -d %[1]v/32 -p %s -m %[2]s --dport %d -j MASQUERADE\n", to.Addr(), protocol, to.Port())
				fmt.Fprintf(&accept, "-A DOCKER -d %v/32 ! -i %[2]s -o %[2]s -p %[3]s -m %[3]s --dport %d -j ACCEPT\n", to.Addr(), bridgeName, protocol, to.Port())
			}
		}
	}
	return strings.NewReplacer("SUBNET", subnet.String(), "BRIDGE", bridgeName).Replace(`*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -o BRIDGE -m addrtype --src-type LOCAL -j MASQUERADE
-A POSTROUTING -s SUBNET ! -o BRIDGE -j MASQUERADE
` + masquerade.String() + translate.String() + `COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o BRIDGE -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o BRIDGE -j DOCKER
-A FORWARD -i BRIDGE ! -o BRIDGE -j ACCEPT
-A FORWARD -i BRIDGE -o BRIDGE -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i BRIDGE ! -o BRIDGE -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o BRIDGE -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
` + accept.String() + `COMMIT
`)
}
