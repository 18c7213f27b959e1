package doctor

import (
	"strings"
	"testing"
	"time"

	"penstock/node/status"
)

func TestLatency(t *testing.T) {
	ms := int64(time.Millisecond)
	for name, c := range map[string]struct {
		goal     status.LatencyGoal
		warnings int
		want     string
	}{
		"none":       {status.LatencyGoal{}, 0, "no flow has a latency goal"},
		"kept":       {status.LatencyGoal{GoalNS: 50 * ms, LeastNS: 30 * ms, Reads: 100, Attained: 0.99}, 0, "latency goals: 1, none missed"},
		"few reads":  {status.LatencyGoal{GoalNS: 50 * ms, LeastNS: 30 * ms, Reads: 99, Attained: 0.5}, 0, "latency goals: 1, none missed"},
		"missed":     {status.LatencyGoal{GoalNS: 50 * ms, LeastNS: 30 * ms, Reads: 100, Attained: 0.9}, 1, "was missed by 10.0 %"},
		"impossible": {status.LatencyGoal{GoalNS: 20 * ms, LeastNS: 30 * ms}, 1, "cannot keep the latency goal"},
	} {
		f := wellNode()
		f.Status.Devices[0].Flows = []status.Flow{{Name: "a", Latency: c.goal}}
		r := Judge(f, nil)
		if text := r.Text(); r.Warnings != c.warnings || r.Failures != 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
