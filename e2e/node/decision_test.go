package node

import (
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/bench/decision"
)

// TestTheAgentsSideIsMeasured compiles the benchmark of the agent's side against the classes of the agent,
// so a change of those classes that breaks it is noticed.
func TestTheAgentsSideIsMeasured(t *testing.T) {
	jar, err := filepath.Abs("../../bin/penstock-agent.jar")
	fixture.Must(t, err)
	res, err := decision.Perform(t.Context(), decision.Request{
		Flows: []int{10}, Length: decision.MinLength, Trips: 200, AgentJar: jar})
	fixture.Must(t, err)
	if res.LeftOut != "" {
		t.Fatalf("run make build first; left out: %s", res.LeftOut)
	}
	want := []string{"echo", "read packet", "write packet", "packet with a message", "agent's thread, a message", "open to mark, resident", "open to mark, cold"}
	if len(res.Agent) != len(want) {
		t.Fatalf("%d figures, want %v: %+v", len(res.Agent), want, res.Agent)
	}
	for i, name := range want {
		if got := res.Agent[i]; got.Name != name || !(got.P50 > 0 && got.P99 >= got.P50) {
			t.Errorf("figure %d is %+v, want %s", i, got, name)
		}
	}
}
