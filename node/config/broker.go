package config

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"penstock/settings"
	"penstock/wire/cluster"
)

// maxBrokers is the maximum number of brokers.
const maxBrokers = 16

// Broker holds the settings for the cluster's brokers. Without brokers the node uses local
// shares.
type Broker struct {
	// Addresses are the host:port of each of the 1 to 16 brokers; the leader answers. A broker that
	// does not lead names the leader's --advertise address. The node uses that address only if it
	// is in this list.
	Addresses []string `yaml:"addresses"`
	// Node is the name of this node, as in its certificate; default: the host's name.
	Node string `yaml:"node"`
	// CA, Cert and Key are PEM files. Without them the connection is unencrypted, which is
	// allowed only for brokers on this machine.
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// Period is the time between reports, 100ms to 30s; default 1s.
	Period settings.Duration `yaml:"period"`
	// LimitLease is how long limits of the cluster's policy stay in force without an answer from a broker, 1m to 720h;
	// default 10m.
	LimitLease settings.Duration `yaml:"limit_lease"`
	// Peers is the host:port at which this node answers questions from other nodes about
	// connections; empty: this node does not answer such questions.
	Peers string `yaml:"peers"`
}

// validateBroker fills in the defaults and adds the mistakes that it finds to those in doc.
func (n *Node) validateBroker() {
	b := n.Broker
	if b == nil {
		return
	}
	fail := func(format string, args ...any) { n.doc.Add("broker: ", fmt.Errorf(format, args...), "broker") }
	if len(b.Addresses) == 0 || len(b.Addresses) > maxBrokers {
		fail("addresses: give 1 to %d, each host:port", maxBrokers)
	}
	if b.Node == "" {
		b.Node, _ = os.Hostname()
	}
	if b.Node == "" || len(b.Node) > cluster.MaxName {
		fail("node: give a name of 1 to %d bytes", cluster.MaxName)
	}
	b.Period = cmp.Or(b.Period, settings.Duration(time.Second))
	if p := time.Duration(b.Period); p < 100*time.Millisecond || p > 30*time.Second {
		fail("period %v: use 100ms to 30s", p)
	}
	b.LimitLease = cmp.Or(b.LimitLease, settings.Duration(10*time.Minute))
	if l := time.Duration(b.LimitLease); l < time.Minute || l > 30*24*time.Hour {
		fail("limit_lease %v: use 1m to 720h", l)
	}
	for _, path := range []*string{&b.CA, &b.Cert, &b.Key} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(n.base, *path)
		}
	}
	plain := b.CA == "" && b.Cert == "" && b.Key == ""
	if !plain && (b.CA == "" || b.Cert == "" || b.Key == "") {
		fail("give all of ca, cert and key (`penstock certs` makes them)")
	}
	if b.Peers != "" {
		host, port, err := net.SplitHostPort(b.Peers)
		number, err2 := strconv.ParseUint(port, 10, 16)
		switch ip := net.ParseIP(host); {
		case err != nil || err2 != nil || host != "" && ip == nil:
			fail("peers %q: give IP:port, such as 0.0.0.0:9718", b.Peers)
		case number == 0:
			fail("peers %q: port 0 does not work: give the port at which other nodes ask", b.Peers)
		case plain:
			fail("peers: other nodes must be authenticated: give ca, cert and key (`penstock certs` makes them)")
		}
	}
	for i, address := range b.Addresses {
		if slices.Contains(b.Addresses[:i], address) {
			fail("addresses[%d]: %q is there twice", i, address)
		}
		host, _, err := net.SplitHostPort(address)
		switch ip := net.ParseIP(host); {
		case err != nil:
			fail("addresses[%d]: %q: give host:port", i, address)
		case plain && host != "localhost" && (ip == nil || !ip.IsLoopback()):
			fail("addresses[%d]: %q is on another machine: give ca, cert and key (`penstock certs` makes them)", i, address)
		}
	}
}
