package coord

import "time"

// SettleMost is how long after its beginning a broker's totals count as whole whoever comes and
// goes: with nodes that wait for their turn to be authenticated, the last of ten thousand comes
// after some forty seconds.
const MaxStartup = time.Minute

// Beginning is that of a broker, whose totals lack, for a while, the nodes that have not
// found it yet. Times are of one clock, whose zero does not matter.
type Startup struct {
	// Least is how long they lack nodes at least.
	Least time.Duration

	began, came time.Duration
	wait        time.Duration // after the last that came
	nodes       map[string]struct{}
	complete    bool
}

// Begin begins anew.
func (b *Startup) Reset(now time.Duration) {
	*b = Startup{Least: b.Least, began: now, came: now}
}

// Join notes a node that has come. Its rates come a period later, and a quarter is for the way.
// One that comes again and again keeps nobody waiting, nor does one that comes once the totals are whole.
func (b *Startup) Join(node string, now, period time.Duration) {
	if _, known := b.nodes[node]; known || b.complete {
		return
	}
	if b.nodes == nil {
		b.nodes = map[string]struct{}{}
	}
	b.nodes[node] = struct{}{}
	b.came, b.wait = now, max(b.wait, period+period/4)
}

// Whole tells whether the totals count as whole for a node of this period, others' being alike: two
// of them at least after the beginning, and when nobody has just come.
func (b *Startup) Complete(now, period time.Duration) bool {
	since := now - b.began
	if since >= b.Least && now-b.came >= b.wait || since >= MaxStartup {
		b.complete, b.nodes = true, nil
	}
	return b.complete && since >= 2*period
}
