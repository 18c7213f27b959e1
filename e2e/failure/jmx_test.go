package failure

import (
	"encoding/json"
	"testing"
)

// liveNode is what the NameNode says of a DataNode.
type liveNode struct {
	Info      string `json:"infoAddr"`
	Address   string `json:"xferaddr"`
	Remaining int64  `json:"remaining"` // bytes
}

func dataNode(t *testing.T, i int) liveNode {
	t.Helper()
	var info struct{ LiveNodes string }
	bean(t, shared.Hadoop.NameNodeURL(), "Hadoop:service=NameNode,name=NameNodeInfo", &info)
	var live map[string]liveNode
	if err := json.Unmarshal([]byte(info.LiveNodes), &live); err != nil {
		t.Fatal(err)
	}
	for _, n := range live {
		if n.Address == shared.Hadoop.DataNodeAddress(i) {
			return n
		}
	}
	t.Fatalf("the NameNode does not know DataNode %d: %s", i, info.LiveNodes)
	return liveNode{}
}

// gates is what the agent in DataNode i has counted.
type gates struct {
	Mode      string
	GateWaits int64
}

func agentGates(t *testing.T, i int) (g gates) {
	t.Helper()
	bean(t, "http://"+dataNode(t, i).Info, "penstock:type=Agent", &g)
	return g
}

// bean reads one bean of a daemon's JMX.
func bean(t *testing.T, url, name string, into any) {
	t.Helper()
	body := fetch(t, url+"/jmx?qry="+name)
	var doc struct{ Beans []json.RawMessage }
	if err := json.Unmarshal(body, &doc); err != nil || len(doc.Beans) != 1 {
		t.Fatalf("%s: no %s (%v)", url, name, err)
	}
	if err := json.Unmarshal(doc.Beans[0], into); err != nil {
		t.Fatal(err)
	}
}
