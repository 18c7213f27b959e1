package queues

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"penstock/broker/applications"
	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
	"penstock/node/status"
)

const offered = 100 // MB/s, by the NodeManager

// shared is a node with queues and with bandwidth as a YARN resource, its daemon, and a broker that
// polls the two ResourceManagers.
var shared fixture.Stand

// directory is a second directory, with the same sources as the broker's.
var directory *applications.Directory

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:      "queues",
		Public:    true, // containers run as other users and must reach the disk
		ZooKeeper: true,
		Disks:     []disk.Options{{Name: "disk", Size: 6 << 30}},
		Nodes: func(s *stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", More: fmt.Sprintf("broker: {addresses: [%q], node: node}\n", s.BrokerAddress())}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{DataNodes: s.DataNodes("dfs"), ZooKeeper: s.ZooKeeper.Address,
				Queues: []string{"root.etl.night", "root.adhoc"}, DiskBandwidth: offered, Governed: s.Governed(0)}
		},
		Broker: func(s *stand.Stand) []string {
			return []string{"--policy", s.PolicyFile(), "--resource-manager", strings.Join(managers(s), ",")}
		},
	}, func(ctx context.Context) (err error) {
		directory, err = applications.New(applications.Options{ResourceManagers: managers(shared.Stand), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			go directory.Run(ctx, func([]string) {}) // until the tests end
		}
		return err
	})
}

// managers returns the addresses of the ResourceManagers, the standby first, so that the standby is
// polled, too.
func managers(s *stand.Stand) []string {
	urls := s.Hadoop.ResourceManagerURLs()
	slices.Reverse(urls)
	return urls
}

// flow returns the node's account of a flow; it is empty if there is no such flow.
func flow(t *testing.T, name string) status.Flow { return fixture.FlowOfAny(shared.Look(t), name) }

func weight(t *testing.T, name string) int    { return flow(t, name).Weight }
func written(t *testing.T, name string) int64 { return flow(t, name).Bytes.Written }

// known returns the directory's entry for an application.
func known(flow string) (a applications.Application) {
	directory.Facts(flow)
	for _, a := range directory.List() {
		if a.Flow == flow {
			return a
		}
	}
	return a
}
