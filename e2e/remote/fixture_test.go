package remote

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"penstock/broker/certs"
	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

const (
	// Ports of the broker, and of the nodes that answer other nodes.
	brokerPort, peersPort = 9717, 9718

	nobodysUID = 2_000_000_011
)

// shared is what the tests share: HDFS, its daemon (node 0) and the broker are on this machine;
// clients are on two other machines. The first has a daemon, node 1; the second has no Penstock.
var shared fixture.Stand

// localDir is the NodeManager's directory on the first of the other machines.
func localDir(s *stand.Stand) string { return s.Path("nm-local") }

func TestMain(m *testing.M) {
	var own netip.Addr
	cert := func(s *stand.Stand, name, ending string) string { return s.Path(filepath.Join("certs", name+ending)) }
	node := func(s *stand.Stand, name, peers, more string) daemon.Options {
		return daemon.Options{Mode: "enforce", Base: s.Path(name), Socket: s.Path(name + ".sock"), LogLevel: "debug",
			More: fmt.Sprintf("%sbroker: {addresses: [%q], node: %s, ca: %s, cert: %s, key: %s, peers: %q}\n", more, s.BrokerAddress(), name,
				cert(s, "ca", ".pem"), cert(s, name, ".pem"), cert(s, name, ".key"), fmt.Sprintf("%s:%d", peers, peersPort))}
	}
	fixture.Main(m, &shared, stand.Spec{
		Name:     "remote",
		Machines: 2,
		Public:   true, // one of the clients runs as another user
		Disks:    []disk.Options{{Name: "dn", Size: 2 << 30}},
		Prepare: func(_ context.Context, s *stand.Stand) (err error) {
			if own, err = s.Network.Here(); err != nil {
				return err
			}
			s.SetBrokerAddress(netip.AddrPortFrom(own, brokerPort).String())
			if _, err := certs.Make(s.Path("certs"), []string{own.String(), "here", "there"}, nil); err != nil {
				return err
			}
			return makeNodeManagerDirectory(s)
		},
		Broker: func(s *stand.Stand) []string {
			return []string{"--ca", cert(s, "ca", ".pem"), "--cert", cert(s, own.String(), ".pem"), "--key", cert(s, own.String(), ".key")}
		},
		Nodes: func(s *stand.Stand) []daemon.Options {
			there := node(s, "there", "0.0.0.0", fmt.Sprintf("local_dirs: [%s]\n", localDir(s)))
			there.By = []string{"nsenter", "--net=" + s.Network.Machines[0].Path(), "--"}
			return []daemon.Options{node(s, "here", own.String(), ""), there}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{NoYARN: true, Host: own.String(), DataNodes: s.DataNodes("dfs"), Governed: s.Governed(0)}
		},
		ClientClasses: true,
	}, connected)
}

// makeNodeManagerDirectory makes a NodeManager's directory that belongs to no user. All machines
// here have the same processes, so a NodeManager of another test could be mistaken for the
// directory's writer.
func makeNodeManagerDirectory(s *stand.Stand) error {
	private := filepath.Join(localDir(s), "nmPrivate")
	if err := os.MkdirAll(private, 0o755); err != nil {
		return err
	}
	return os.Chown(private, nobodysUID, -1)
}

// connected waits until the DataNode's agent and the broker are connected.
func connected(ctx context.Context) error {
	return shared.Await(ctx, "an agent and the broker are connected", func(ctx context.Context) (bool, error) {
		doc, err := shared.Status(ctx, 0)
		return err == nil && len(doc.Agents) > 0 && doc.Cluster.Broker != "", err
	})
}
