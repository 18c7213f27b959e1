package failure

import (
	"encoding/json"
	"testing"

	"penstock/e2e/internal/fixture"
)

// liveNode is the NameNode's information about a DataNode.
type liveNode struct {
	Info      string `json:"infoAddr"`
	Address   string `json:"xferaddr"`
	Remaining int64  `json:"remaining"` // bytes
}

func dataNode(t *testing.T, i int) liveNode {
	t.Helper()
	var info struct{ LiveNodes string }
	fixture.Bean(t, shared.Hadoop.NameNodeURL(), "Hadoop:service=NameNode,name=NameNodeInfo", &info)
	var live map[string]liveNode
	fixture.Must(t, json.Unmarshal([]byte(info.LiveNodes), &live))
	for _, n := range live {
		if n.Address == shared.Hadoop.DataNodeAddress(i) {
			return n
		}
	}
	t.Fatalf("the NameNode does not know DataNode %d: %s", i, info.LiveNodes)
	return liveNode{}
}

// gates returns the counters of the agent in DataNode i.
type gates struct {
	Mode      string
	GateWaits int64
}

func agentGates(t *testing.T, i int) (g gates) {
	t.Helper()
	fixture.Bean(t, "http://"+dataNode(t, i).Info, "penstock:type=Agent", &g)
	return g
}
